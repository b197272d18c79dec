"""Chips that the paper's trainings may be thought of on, and GPUs that a training step was timed on."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...published import P100_FLOPS

LEDGER = Path(__file__).parents[4] / "kernels" / "results"
"""Where `python -m kernels.bench` writes what it measured on a GPU."""


@dataclass(frozen=True)
class Chip:
    """What a data sheet promises: operations a second in `kind` of numbers, dense, and rated power in watts."""

    name: str
    kind: str
    flops: float
    watts: float


CHIPS = [
    Chip("P100", "float32", P100_FLOPS, 300),
    Chip("V100", "float16", 125e12, 300),
    Chip("A100", "bfloat16", 312e12, 400),
    Chip("H100", "bfloat16", 989e12, 700),
]
"""NVIDIA's data sheets, for the modules with SXM; the P100 as the paper counts it (its sheet says 10.6e12)."""


@dataclass(frozen=True)
class MeasuredStep:
    """A training step of the paper's base on a GPU: the fastest a token of ours, with so many tokens on each side."""

    gpu: str
    what: str
    tokens_per_side: int
    seconds: float


def measured_steps(folder: Path = LEDGER) -> Iterator[MeasuredStep]:
    """What the ledger has of each GPU; nothing where none was timed, or there is no ledger.

    Raises `ValueError` naming a file that is no JSON.
    """
    for path in sorted(folder.glob("*.json")):
        try:
            ledger = json.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}") from None
        if "gpu" not in ledger or ledger.get("smoke"):
            continue
        entries = ledger["sections"].get("swap", {"entries": []})["entries"]
        timed = [entry for entry in entries if "ms" in entry["contestants"].get("ours", {})]
        if timed:
            best = min(timed, key=lambda entry: entry["contestants"]["ours"]["ms"] / _tokens(entry))
            tokens = _tokens(best)
            yield MeasuredStep(ledger["gpu"], best["what"], tokens, best["contestants"]["ours"]["ms"] / 1000)


def _tokens(entry: dict[str, Any]) -> int:
    return entry["size"]["sentences"] * entry["size"]["length"]
