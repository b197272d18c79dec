"""`python -m course progress` and `python -m course reset NN`, from the folder of the lessons."""

import argparse
import sys
from collections.abc import Sequence

from minitransformer.cli import main as run_command
from minitransformer.cli.common import Parser
from minitransformer.cli.errors import ERROR, complain

from .learner import reset, standing


def build_parser() -> Parser:
    """The parser of both commands."""
    parser = Parser(prog="python -m course", description="What you have done in the course.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    how_far = commands.add_parser("progress", help="which exercises are answered right")
    how_far.add_argument("number", metavar="NN", nargs="?", type=_number, help="one lesson (default: all)")
    how_far.set_defaults(run=_progress)
    again = commands.add_parser("reset", help="begin a lesson again; your answers are kept under another name")
    again.add_argument("number", metavar="NN", type=_number, help='the lesson, "00" to "26"')
    again.set_defaults(run=_reset)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, by default that of `sys.argv`; returns the exit status, as `minitransformer.cli` has it."""
    return run_command(argv, build_parser, "course", ("course",))


def _number(text: str) -> str:
    return text.zfill(2)


def _progress(args: argparse.Namespace) -> int:
    lines, faults = standing(args.number)
    print("\n".join(lines), flush=True)
    for fault in faults:
        complain(f"course: {fault}")
    return ERROR if faults else 0


def _reset(args: argparse.Namespace) -> int:
    print("\n".join(reset(args.number)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
