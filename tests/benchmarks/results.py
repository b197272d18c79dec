"""The races' results: a JSON file each, with the machine that it was measured on."""

import importlib.metadata
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """The processor, the cores this process may use, the memory, and the versions of what was raced."""
    packages = ("numpy", "torch", "transformers", "tokenizers", "subword-nmt")
    processor = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # pyright: ignore[reportOptionalSubscript]
    return {
        "processor": processor.group(1).strip() if processor else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9),
        "python": platform.python_version(),
        "blas": f"{blas['name']} {blas['version']}",
        **{name: importlib.metadata.version(name) for name in packages},
    }


def write(name: str, command: str, threads: int, races: list[dict[str, Any]]) -> None:
    """Writes `results/<name>.json`; `threads` are those of each contestant, unless a race names its own."""
    FOLDER.mkdir(exist_ok=True)
    report = {"machine": machine(), "command": command, "threads": threads, "races": races}
    path(name).write_text(json.dumps(report, indent=1) + "\n")


def read(name: str) -> dict[str, Any]:
    """Read the results of a race."""
    return json.loads(path(name).read_text())


def path(name: str) -> Path:
    """Return the file of a race's results."""
    return FOLDER / f"{name}.json"
