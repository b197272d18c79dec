"""`python -m minitransformer`, also installed as `minitransformer`: the command line.

`main` imports the rest of the package: that takes a third of a second, and Ctrl-C during it must not print a traceback.
"""

import importlib
import os
import signal
import sys

INTERRUPTED = 130


def main(module: str = "minitransformer.cli") -> int:
    """Import the command line, or another module with a `main`, and run it; return the exit status."""
    interrupt = signal.getsignal(signal.SIGINT)  # a shell's background jobs ignore it, and still do afterwards
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))  # an imported module might catch an exception
    run = importlib.import_module(module).main
    signal.signal(signal.SIGINT, interrupt)
    return run()


if __name__ == "__main__":
    sys.exit(main())
