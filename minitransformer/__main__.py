"""`python -m minitransformer`: the command line."""

import sys

from minitransformer.cli import main

if __name__ == "__main__":
    sys.exit(main())
