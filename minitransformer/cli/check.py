"""`check`: every gradient against central differences, on this machine."""

import argparse
from typing import Any

EPILOG = """\
example:
  {program} check

It needs no data and takes a few seconds. The exit status is 1 where a gradient is wrong.
"""


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "check",
        help="compare every hand-written gradient with finite differences",
        description="Compare the gradient of every operation, layer and model parameter with central differences.",
        epilog=EPILOG,
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table; 1 where a gradient is wrong."""
    from ..check import run_checks
    from .common import say

    return 0 if all(result.passed for result in run_checks(report=say)) else 1
