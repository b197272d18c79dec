"""The command line: `python -m minitransformer <command>`, also installed as `minitransformer`.

Each command is a module. Its docstring is the text of `--help`, `add_options` declares its options, and `run` runs it
and returns the exit status: 0 for success, 1 if `check` finds a wrong gradient, 2 for an error that the user can mend
(one line on standard error), 130 after Ctrl-C. A bug shows its traceback; `MINITRANSFORMER_DEBUG=1` shows every
traceback.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial

from .. import __version__
from ..training.parallel.launch import world_size
from . import (
    average,
    caption,
    check,
    classify,
    demo,
    embed,
    evaluate,
    explore,
    fill,
    generate,
    info,
    inside,
    similar,
    train,
    translate,
)
from .common import Parser, invocation
from .errors import BROKEN_PIPE, ERROR, INTERRUPTED, complain, drop_output, message_of, prepare_streams

SHARING = (train, evaluate)
"""The commands that several processes share."""

COMMANDS = (
    demo, train, translate, generate, fill, classify, caption, embed, similar, evaluate, explore, inside, average, info,
    check,
)  # fmt: skip

EXAMPLES = """\
examples:
  {program} demo
  {program} translate runs/demo/model.safetensors "The old teacher reads a book."
  {program} train --dataset multi30k --preset tiny --out runs/captions
  {program} evaluate runs/captions/step-00004000.safetensors --dataset multi30k

`{program} COMMAND --help` tells more about one of them.
"""


def build_parser() -> Parser:
    """Return the parser of every command."""
    parser = Parser(
        prog=invocation(),
        description='The Transformer of "Attention Is All You Need" in NumPy: train it, use it, look inside.',
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"minitransformer {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for command in COMMANDS:
        description, _, epilog = str(command.__doc__).partition("\n\n")
        name = command.__name__.rpartition(".")[2]
        one = commands.add_parser(name, help=command.HELP, description=description.replace("\n", " "), epilog=epilog)
        command.add_options(one)
        one.set_defaults(run=command.run if command in SHARING else partial(run_alone, command.run, name))
    return parser


def run_alone(run: Callable[[Namespace], int], name: str, args: Namespace) -> int:
    """Run a command of one process. Raises ValueError if a launcher has started several."""
    if world_size() > 1:
        raise ValueError(f"only train and evaluate share their work among processes: run {name} without torchrun")
    return run(args)


def main(
    argv: Sequence[str] | None = None,
    parser: Callable[[], Parser] = build_parser,
    program: str = "minitransformer",
    packages: Sequence[str] = (),
) -> int:
    """Run one command, by default that of `sys.argv`; returns the exit status.

    A command line of other packages passes the function that makes its parser, its name as `program`, and the packages
    whose messages are for the user.
    """
    try:
        prepare_streams()
        args = parser().parse(argv)
        status = args.run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        drop_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        complain("")
        complain(f"{program}: interrupted")
        return INTERRUPTED
    except SystemExit:  # after --help and --version
        drop_output()
        raise
    except Exception as error:
        message = message_of(error, ("minitransformer", *packages))
        if message is None or os.environ.get("MINITRANSFORMER_DEBUG") == "1":
            raise
        drop_output()
        complain(f"{program}: error: {message}")
        return ERROR
