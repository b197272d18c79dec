"""Compare the gradient of every operation, layer and model parameter with central differences.

example:
  {program} check

It needs no data and takes a few seconds. The exit status is 1 where a gradient is wrong.
"""

import argparse

from .common import Parser, say

HELP = "compare every hand-written gradient with finite differences"


def add_options(parser: Parser) -> None:
    """There are no options."""


def run(args: argparse.Namespace) -> int:
    """Print the table; returns 1 if a gradient is wrong."""
    from ..check import run_checks

    return 0 if all(result.passed for result in run_checks(report=say)) else 1
