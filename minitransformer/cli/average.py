"""Average the weights of several checkpoints of one training into one that translates.

examples:
  {program} average --last 5 runs/captions --output runs/captions/average.safetensors
  {program} average step-00003500.safetensors step-00004000.safetensors --output average.safetensors

The paper averages the last 5 checkpoints of its base model and the last 20 of its big one.
"""

import argparse
import os
from pathlib import Path

from ..training.checkpoint import average_checkpoints, list_checkpoints, save_checkpoint, step_of
from .common import Parser, add_option, path_name, positive_int, say
from .outputs import check_output, is_same_file

HELP = "average the weights of several checkpoints"


def add_options(parser: Parser) -> None:
    """Declare the options of `average`."""
    help_text = "checkpoints, or one folder with --last"
    paths = add_option(parser, "checkpoints", "CHECKPOINT", path_name, help_text, nargs="+")
    add_option(parser, "--last", "N", positive_int, "take the last N checkpoints in the folder")
    add_option(parser, "--output", "FILE", path_name, "where the average goes", required=True)
    parser.set_defaults(trailing=paths)


def run(args: argparse.Namespace) -> int:
    """Average the checkpoints, save the result and say which steps are in it."""
    paths = [Path(path) for path in args.checkpoints]
    if args.last is not None:
        paths = last_checkpoints(paths, args.last)
    check_output("--output", args.output, paths)
    check_paths(Path(args.output), paths)
    average = average_checkpoints(paths)
    average.model_config()  # raises for what is no model's
    save_checkpoint(args.output, average)
    say(f"{args.output}: the average of steps {', '.join(map(str, average.state['averaged_steps']))}")
    return 0


def check_paths(output: Path, paths: list[Path]) -> None:
    """Raise ValueError if a checkpoint is given twice, or the output has the name of a training's own checkpoint."""
    for path in paths:
        if sum(path == other or is_same_file(path, other) for other in paths) > 1:
            raise ValueError(f"{path} is given twice: an average takes each checkpoint once")
    if any(step_of(path) is not None for path in (output, Path(os.path.realpath(output)))):
        raise ValueError(f"--output {output} has the name of a training's own checkpoint: choose another name")


def last_checkpoints(folders: list[Path], count: int) -> list[Path]:
    """Return the last `count` checkpoints in the one folder given. Raises ValueError if there are fewer."""
    if len(folders) != 1 or not folders[0].is_dir():
        raise ValueError(f"--last takes one folder, got {' '.join(map(str, folders))}")
    paths = list_checkpoints(folders[0])
    if len(paths) < count:
        raise ValueError(f"{folders[0]} holds {len(paths)} checkpoints, fewer than {count}")
    return paths[-count:]
