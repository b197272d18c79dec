"""`python -m kernels.ledger` says what was verified on a GPU, and what has changed since (`kernels.bench.ledger`)."""

from .bench.ledger import report

if __name__ == "__main__":
    print("\n".join(report()))
