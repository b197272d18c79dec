"""The ledger's file: what was found on one GPU, kept section by section."""

import json
import re
from pathlib import Path
from typing import Any

from minitransformer.atomic import atomic_write

Ledger = dict[str, Any]

Entry = dict[str, Any]
"""A task and what was found: `op`, `what`, `size` and `contestants`, each with `ms`, or with why it `failed`."""


def path_of(folder: Path, gpu: str) -> Path:
    """`nvidia-h200.json` of "NVIDIA H200"."""
    return folder / f"{re.sub('[^a-z0-9]+', '-', gpu.lower()).strip('-')}.json"


def opened(path: Path, gpu: str, smoke: bool) -> Ledger:
    """What the file says, to be added to; or a new one's beginning."""
    if path.exists():
        return read(path)
    return {"gpu": gpu, "smoke": smoke, "ops": {}, "sections": {}}


def read(path: Path) -> Ledger:
    """What was written."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, ledger: Ledger) -> None:
    """The whole file, or nothing of it."""
    with atomic_write(path) as file:
        file.write((json.dumps(ledger, indent=1, ensure_ascii=False) + "\n").encode())


def entries(ledger: Ledger, section: str) -> list[Entry]:
    """The tasks of a section; none where it has not run."""
    return ledger["sections"].get(section, {"entries": []})["entries"]


def size_of(entry: Entry) -> str:
    """An entry's size in words: "causal, B 4, H 16, Tq 4,096, Tk 4,096, D 128"."""
    parts = (value if isinstance(value, str) else f"{name} {value:,}" for name, value in entry["size"].items())
    return ", ".join(parts)


def number(value: float) -> str:
    """Four digits of it, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
