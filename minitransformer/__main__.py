"""`python -m minitransformer`, also installed as `minitransformer`: the command line.

The rest of the package is imported inside `main`: that takes a third of a second, and Ctrl-C must not end it in a
traceback of somebody's import.
"""

import importlib
import os
import signal
import sys

INTERRUPTED = 130


def main(module: str = "minitransformer.cli") -> int:
    """Import the command line, or another module with such a `main`, and run it; returns the exit status."""
    interrupt = signal.getsignal(signal.SIGINT)  # ignored in a shell's background jobs: then it stays so
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))  # an exception might be caught by an import
    run = importlib.import_module(module).main
    signal.signal(signal.SIGINT, interrupt)
    return run()


if __name__ == "__main__":
    sys.exit(main())
