"""The committed predictions, `kernels/results/predicted-<gpu>.json`: what they say, and whether it still holds.

A table is no ledger: nothing in it was measured. It holds each op's hash as `kernels.bench.ledger` does, so that a
prediction of code that has changed since is known. This needs neither PyTorch nor Triton.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import KERNELS
from .ledger import RESULTS, Entry, current, path_of, read, write

Table = dict[str, Any]


def place(folder: Path, gpu: str) -> Path:
    """`predicted-nvidia-h200.json` of "NVIDIA H200"."""
    return path_of(folder, f"predicted {gpu}")


def save(folder: Path, gpu: str, table: Mapping[str, Any]) -> Path:
    """Write a GPU's table."""
    path = place(folder, gpu)
    write(path, {"predicted": gpu, **table})
    return path


def tables(folder: Path = RESULTS) -> dict[str, Table]:
    """All of them, by the GPU's name."""
    found = (read(path) for path in sorted(folder.glob("predicted-*.json")))
    return {table["predicted"]: table for table in found}


def table_for(gpu: str, folder: Path = RESULTS) -> Table | None:
    """That of a GPU by the name that its driver gives: "NVIDIA H100" is also "NVIDIA H100 80GB HBM3"."""
    return next((table for name, table in tables(folder).items() if gpu.startswith(name)), None)


def predicted(entry: Entry, table: Table | None) -> Entry | None:
    """The prediction for a task of the bench: `ms`, what it is `bound` by, `launches`."""
    task = {name: entry[name] for name in ("op", "what", "size")}
    return next((each for each in table["entries"] if task.items() <= each.items()), None) if table else None


def stale(table: Table) -> list[str]:
    """Ops whose code has changed since, or that were not there."""
    return [op for op in KERNELS if table["hashes"].get(op) != current(op)]


def described(folder: Path = RESULTS) -> list[str]:
    """A line for each table."""
    lines = []
    for gpu, table in tables(folder).items():
        old = stale(table)
        changed = f"; changed since: {', '.join(old)} (python -m kernels.predict)" if old else ""
        lines.append(f"predicted for an {gpu}: {len(table['entries'])} tasks{changed}")
    return lines
