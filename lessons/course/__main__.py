"""`python -m course progress` and `python -m course reset NN`, from the folder of the lessons."""

import argparse
import sys
from collections.abc import Sequence

from .learner import progress, reset


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m course", description="What you have done in the course.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("progress", help="which exercises are answered right")
    again = commands.add_parser("reset", help="begin a lesson again; your answers are kept under another name")
    again.add_argument("number", metavar="NN", help='the lesson, "00" to "18"')
    args = parser.parse_args(argv)
    if args.command == "progress":
        progress()
        return 0
    try:
        print("\n".join(reset(args.number)))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
