"""`python -m paper`, with `lessons` on the path: the paper's tables and figures. `make paper` runs this command."""

import sys

from minitransformer.__main__ import main

if __name__ == "__main__":
    sys.exit(main("paper.command"))
