"""Predict the time of every task of the bench, and write the tables."""

import argparse
import os
import sys
from pathlib import Path

from ..bench.ledger import RESULTS


def main() -> None:
    """Compiles for Hopper whatever the interpreter's variable says: it must be gone before Triton is imported."""
    parser = argparse.ArgumentParser(prog="python -m kernels.predict", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="DIR", default=RESULTS, help="where to write (kernels/results)")
    chosen = parser.parse_args()
    os.environ.pop("TRITON_INTERPRET", None)
    from .tasks import predict

    for path in predict(chosen.out):
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
