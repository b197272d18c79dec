"""Show what is in a checkpoint or another model, or what a preset comes to.

examples:
  {program} info runs/demo/model.safetensors
  {program} info gpt2
  {program} info --preset base
  {program} info --preset tiny --vocab-size 4000 --length 64

CHECKPOINT is also a folder of a model as `transformers` saves it, or a name on the Hugging Face hub.
"""

import argparse
import re
from collections import Counter
from pathlib import Path
from typing import Any

from ..costs import flops_per_token, inference_bytes, parameter_groups, training_bytes
from ..models import PRESETS, TransformerConfig
from ..training import TrainingSettings
from ..training.checkpoint import Checkpoint, load_checkpoint
from .backend import NUMPY
from .common import Parser, add_checkpoint_argument, add_option, as_bytes, given, positive_int, say
from .opened import is_checkpoint, open_model

BATCH_TOKENS = 4096
THREADS = 2
BEAM = 4

HELP = "a model's configuration, parameters, FLOPs and memory"


def add_options(parser: Parser) -> None:
    """Declare the options of `info`."""
    add_checkpoint_argument(parser, nargs="?")
    parser.add_argument("--preset", choices=PRESETS, help="a size instead of a checkpoint")
    help_text = "tokens of the vocabulary, with --preset (default: the preset's own)"
    add_option(parser, "--vocab-size", "N", positive_int, help_text)
    add_option(parser, "--length", "N", positive_int, "tokens in a sentence, for the costs (default: 32)", default=32)


def run(args: argparse.Namespace) -> int:
    """Print the configuration, the parameters and the costs."""
    if (args.checkpoint is None) == (args.preset is None):
        raise ValueError("name a checkpoint or a --preset, one of the two")
    if args.preset is not None:
        say_transformer(getattr(TransformerConfig, args.preset)(**given(args, ["vocab_size"])), args.length)
        return 0
    if args.vocab_size is not None:
        raise ValueError("--vocab-size goes with --preset; a checkpoint has its own")
    if not is_checkpoint(args.checkpoint):
        return say_folder(args.checkpoint)
    checkpoint = load_checkpoint(args.checkpoint)
    config = checkpoint.model_config()
    say_section(args.checkpoint, checkpoint_rows(Path(args.checkpoint), checkpoint))
    if isinstance(config, TransformerConfig):
        say_transformer(config, args.length)
    else:  # only a Transformer's costs are known
        say_section("configuration", config.to_dict())
        say_parameters(of_all_layers({name: array.size for name, array in checkpoint.parameters.items()}))
    return 0


def say_folder(name: str) -> int:
    """Print what a folder of another library's holds."""
    model, tokenizer, _ = open_model(name, NUMPY)
    tokens = None if tokenizer is None else f"{tokenizer.vocab_size:,} tokens"
    say_section(name, {"memory of the weights, float32": as_bytes(4 * model.parameters.count), "tokenizer": tokens})
    say_section("configuration", model.config.to_dict())
    say_parameters(of_all_layers({name: each.data.size for name, each in model.parameters.named.items()}))
    return 0


def of_all_layers(counts: dict[str, int]) -> dict[str, int]:
    """The numbers of parameters by name, those of the same part in all layers together."""
    together = Counter[str]()
    for name, count in counts.items():
        together[re.sub(r"\.\d+\.", ".*.", name)] += count
    return dict(together)


def say_transformer(config: TransformerConfig, length: int) -> None:
    """Print a Transformer's configuration, parameters and costs."""
    say_section("configuration", config.to_dict())
    groups = parameter_groups(config)
    say_parameters(groups)
    say_section(f"costs, with {length} tokens in a sentence", cost_rows(config, sum(groups.values()), length))


def say_parameters(counts: dict[str, int]) -> None:
    """Print the number of parameters of each part, and of all together."""
    rows = counts | {"all": sum(counts.values())}
    say_section("parameters", {name: f"{count:>13,}" for name, count in rows.items()})


def checkpoint_rows(path: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """The rows about the file, and about what it holds besides the model."""
    rows: dict[str, Any] = {
        "size": as_bytes(path.stat().st_size),
        "step": f"{checkpoint.step:,}",
        "tokenizer": "yes" if checkpoint.tokenizer else "no",
        "optimiser state": "yes" if checkpoint.optimizer else "no",
    }
    if checkpoint.languages:
        rows["languages"] = " → ".join(checkpoint.languages)
    if "averaged_steps" in checkpoint.state:
        rows["average of steps"] = ", ".join(map(str, checkpoint.state["averaged_steps"]))
    if "settings" in checkpoint.state:
        settings = TrainingSettings.from_checkpoint(checkpoint, path).to_dict()
        rows |= {f"trained with {name}": value for name, value in settings.items()}
    return rows


def cost_rows(config: TransformerConfig, num_parameters: int, length: int) -> dict[str, str]:
    """The rows about FLOPs and memory."""
    flops = flops_per_token(config, length)
    training = training_bytes(config, num_parameters, BATCH_TOKENS, length, THREADS)
    translation = inference_bytes(config, num_parameters, length, BEAM)
    return {
        "forward, a source token": f"{flops.source / 1e6:,.2f} MFLOP",
        "forward, a target token": f"{flops.target / 1e6:,.2f} MFLOP",
        "training, a token": f"{flops.training / 1e6:,.2f} MFLOP",
        f"memory to train ({BATCH_TOKENS} tokens a batch, {THREADS} threads)": f"about {as_bytes(training)}",
        f"memory to translate (a sentence, beam {BEAM})": as_bytes(translation),
    }


def say_section(title: str, rows: dict[str, Any]) -> None:
    """Print a titled table."""
    width = max(map(len, rows)) + 2
    say(title)
    for name, value in rows.items():
        say(f"  {name:{width}}{'–' if value is None else value}")
    say()
