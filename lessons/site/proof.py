"""The worst errors of gradients in the last run of the proof, which the reference shows beside each op."""

import json
from pathlib import Path

PROOF = Path(__file__).resolve().parents[2] / "build/proof.json"
"""What `make build/proof.json` writes; not committed, since other machines round differently."""

KINDS = ("autograd", "finite differences")


class Proof:
    """The worst errors of a run of the tests, by component and kind; empty if no run has left its file."""

    def __init__(self, path: Path) -> None:
        found = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.worst: dict[str, dict[str, float]] = found.get("worst", {})
        self.versions: dict[str, str] = found.get("versions", {})

    def of(self, op: str) -> dict[str, float]:
        """Return an op's worst errors over all of its cases, such as "attention, causal"."""
        cases = [errors for name, errors in self.worst.items() if name.partition(",")[0] == op]
        return {kind: max(each[kind] for each in cases) for kind in KINDS} if cases else {}


def shown(error: float) -> str:
    """Return an error as text, with a minus sign, at which no line is broken."""
    return f"{error:.1e}".replace("-", "−")
