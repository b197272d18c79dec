"""The ledger's file: what was found on one GPU, kept section by section."""

import json
import re
from pathlib import Path
from typing import Any

from minitransformer.atomic import atomic_write

from .supervisor import NO_TIME

Ledger = dict[str, Any]

Entry = dict[str, Any]
"""A task and what was found: `op`, `what`, `size`, `date`, and `contestants`, each with `ms` or why it `failed`."""

OURS = "ours"

LATE = {"failed": NO_TIME}
"""Said of a contestant until it is measured."""

WRONG = {"failed": "wrong: see what its check says"}


def path_of(folder: Path, gpu: str) -> Path:
    """`nvidia-h200.json` of "NVIDIA H200"."""
    return folder / f"{re.sub('[^a-z0-9]+', '-', gpu.lower()).strip('-')}.json"


def opened(path: Path, gpu: str, smoke: bool) -> Ledger:
    """What the file says, to be added to; or a new one's beginning. Raises `ValueError` for what is no ledger."""
    if not path.exists():
        return {"gpu": gpu, "smoke": smoke, "ops": {}, "sections": {}, "failures": []}
    try:
        ledger = read(path)
        return ledger | {"ops": dict(ledger["ops"]), "sections": dict(ledger["sections"]), "failures": []}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no ledger ({error!r}): move it away") from None


def read(path: Path) -> Ledger:
    """What was written."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, ledger: Ledger) -> None:
    """The whole file, or nothing of it."""
    with atomic_write(path) as file:
        file.write((json.dumps(ledger, indent=1, ensure_ascii=False) + "\n").encode())


def entries(ledger: Ledger, section: str) -> list[Entry]:
    """The tasks of a section, without our times of ops whose check failed; none where it has not run."""
    return [_as_checked(entry, ledger) for entry in ledger["sections"].get(section, {"entries": []})["entries"]]


def _as_checked(entry: Entry, ledger: Ledger) -> Entry:
    if "failed" not in ledger["ops"].get(entry["op"], {}) or OURS not in entry["contestants"]:
        return entry
    return entry | {"contestants": entry["contestants"] | {OURS: WRONG}}


def task_of(entry: Entry) -> str:
    """ "softmax, forward: rows 8, columns 64"."""
    return f"{entry['op']}, {entry['what']}: {size_of(entry)}"


def size_of(entry: Entry) -> str:
    """An entry's size in words: "causal, B 4, H 16, Tq 4,096, Tk 4,096, D 128"."""
    parts = (value if isinstance(value, str) else f"{name} {value:,}" for name, value in entry["size"].items())
    return ", ".join(parts)


def number(value: float) -> str:
    """Four digits of it, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
