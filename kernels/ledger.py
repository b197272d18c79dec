"""`python -m kernels.ledger` lists what a GPU has verified, what has changed since, and what times are predicted.

See `kernels.bench.ledger` and `kernels.predict`.
"""

from .bench.ledger import report
from .bench.predictions import described

if __name__ == "__main__":
    print("\n".join([*report(), *described()]))
