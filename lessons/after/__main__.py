"""`python -m after`, with `lessons` on the path: experiments on later ideas. `make after` runs this command."""

import sys

from minitransformer.__main__ import main

if __name__ == "__main__":
    sys.exit(main("after.command"))
