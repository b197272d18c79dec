"""`python -m kernels.ledger` lists what was verified, where, and what has changed since: see `kernels.proof.ledger`."""

from .proof.ledger import report

if __name__ == "__main__":
    print("\n".join(report()))
