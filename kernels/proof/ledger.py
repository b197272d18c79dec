"""The ledger: a file for each GPU of what was found on it, and what of it still holds (`python -m kernels.ledger`).

`kernels/results/<gpu>.json` holds, for each op, a hash of its code (`fingerprint`), the errors that were found or why
its check failed, versions and date; and section by section the times of the op and of its peers in the same run.
`tests/benchmarks/gpu/lease.py` on a GPU writes it. `kernels/results/machine.json` says which kernels were executed as
machine code on a CPU; `python -m kernels.machine` writes it. The hashes are compared with those of the code as it is:
that needs no GPU, nor PyTorch.
"""

import json
import re
from pathlib import Path
from typing import Any

from minitransformer.system.atomic import atomic_write

from .. import KERNELS, functions_of
from .fingerprint import fingerprint

RESULTS = Path(__file__).parents[1] / "results"
MANIFEST = "machine.json"
DTYPES = ("float32", "float16", "bfloat16")

Ledger = dict[str, Any]

Entry = dict[str, Any]
"""A task and what was found: `op`, `what`, `size`, `date`, and `contestants`, each with `ms` or why it `failed`."""

OURS = "ours"

FLEX = "FlexAttention"
"""A contestant that compiles for seconds: it comes after all others."""

FORWARD, BACKWARD, BOTH = "forward", "backward", "forward + backward"
"""The ways in which a pair is timed."""

NO_TIME = "no time left"
LATE = {"failed": NO_TIME}
"""Stands for a contestant until it is measured."""

WRONG = {"failed": "wrong: see what its check says"}
"""Stands for our time of an op whose check failed."""


# --- The file -------------------------------------------------------------------------------------------------


def path_of(folder: Path, gpu: str) -> Path:
    """Return `nvidia-h200.json` of "NVIDIA H200"."""
    return folder / f"{re.sub('[^a-z0-9]+', '-', gpu.lower()).strip('-')}.json"


def read(path: Path) -> Ledger:
    """Return what was written."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, ledger: Ledger) -> None:
    """Write the whole file, or nothing of it."""
    with atomic_write(path) as file:
        file.write((json.dumps(ledger, indent=1, ensure_ascii=False) + "\n").encode())


def ledgers(folder: Path = RESULTS) -> dict[str, Ledger]:
    """Return what each GPU's file says, by the GPU's name."""
    found = (read(path) for path in sorted(folder.glob("*.json")))
    return {ledger["gpu"]: ledger for ledger in found if "gpu" in ledger}


# --- Its times ------------------------------------------------------------------------------------------------


def entries(ledger: Ledger, section: str) -> list[Entry]:
    """Return the tasks of a section, without our times of ops whose check failed; none where it has not run."""
    found = []
    for entry in ledger["sections"].get(section, {"entries": []})["entries"]:
        times, wrong = entry["contestants"], "failed" in ledger["ops"].get(entry["op"], {})
        found.append(entry | {"contestants": times | {OURS: WRONG}} if wrong and OURS in times else entry)
    return found


def timed(entry: Entry) -> dict[str, dict[str, Any]]:
    """Return the contestants that have a time."""
    return {name: found for name, found in entry["contestants"].items() if "ms" in found}


def task_of(entry: Entry) -> str:
    """Return "softmax, forward: rows 8, columns 64"."""
    return f"{entry['op']}, {entry['what']}: {size_of(entry)}"


def size_of(entry: Entry) -> str:
    """Return an entry's size in words: "causal, B 4, H 16, Tq 4,096, Tk 4,096, D 128"."""
    parts = (value if isinstance(value, str) else f"{name} {value:,}" for name, value in entry["size"].items())
    return ", ".join(parts)


def number(value: float) -> str:
    """Return four digits of it, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


# --- What still holds -----------------------------------------------------------------------------------------


def current(op: str) -> str:
    """Return the hash of an op's code as it is."""
    return fingerprint(KERNELS[op][0], *functions_of(op))


def state(op: str, ledger: Ledger) -> str:
    """Return what one GPU's ledger says of an op."""
    entry = ledger["ops"].get(op, {})
    if "failed" in entry:
        return _since(op, entry, "failed its check", "changed since it ")
    return _since(op, entry, "verified")


def machine_state(op: str, executed: dict[str, Any]) -> str:
    """Return what the manifest says of an op."""
    return _since(op, executed.get(op, {}), "executed as machine code")


def _since(op: str, entry: dict[str, Any], what: str, changed: str = "changed since it was ") -> str:
    if not entry:
        return f"not yet {what}"
    return f"{'' if entry['hash'] == current(op) else changed}{what} on {entry['date']}"


def manifest(folder: Path = RESULTS) -> dict[str, Any]:
    """Return what was executed as machine code: of each op the hash of its source, the day, and findings by dtype."""
    path = folder / MANIFEST
    return read(path)["ops"] if path.exists() else {}


def report(folder: Path = RESULTS) -> list[str]:
    """Return the lines that `python -m kernels.ledger` prints."""
    found, executed, width = ledgers(folder), manifest(folder), max(map(len, KERNELS))
    lines = []
    if not found:
        lines.append(f"not yet verified on a GPU: {', '.join(KERNELS)}")
        lines.append("to verify them, on a machine with one: python tests/benchmarks/gpu/lease.py")
    for gpu, ledger in found.items():
        lines.append(gpu)
        for op in KERNELS:
            lines.append(f"  {op:{width}}  {state(op, ledger)}")
            lines += [f"  {'':{width}}    {reason}" for reason in ledger["ops"].get(op, {}).get("failed", [])]
    lines.append("machine code of a gfx1100, on a CPU")
    return lines + [f"  {op:{width}}  {machine_state(op, executed)}" for op in KERNELS]
