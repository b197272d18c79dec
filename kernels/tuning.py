"""What a GPU is to a kernel, and which of several tiles is fastest on it.

`triton.autotune` is not used: its key can hold only arguments of the kernel, not the size class of a problem; it works
out that key anew at each launch, which small models feel; and it can neither say beforehand that it is going to measure
nor leave a small problem or a captured graph alone. What it does beyond that is in `Tuner`: measure each candidate
once, remember the choice in memory and in Triton's cache on disk.

`MINITRANSFORMER_TUNE=0` switches tuning off: then every kernel takes the default tile of its table.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, cast

import torch
import triton
from triton.runtime.cache import get_cache_manager
from triton.runtime.errors import OutOfResources, PTXASError

from .availability import interpreting

KIBIBYTE = 1024
SECONDS_TO_COMPILE = 1.5
"""About what one candidate takes."""


class Tile(NamedTuple):
    """How a kernel cuts its problem: rows and columns of a block, its warps, and the blocks loaded ahead."""

    rows: int
    columns: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Capability:
    """What tiles depend on: `("cuda", 90, …)`, `("hip", "gfx942", …)`, or the interpreter."""

    kind: str
    arch: int | str
    shared_memory: int
    """Bytes that one block may have."""


_pretended: list[Capability] = []


def capability(device: torch.device) -> Capability:
    """The capability of a tensor's device. Raises `ValueError` where Triton can't run on it."""
    if _pretended:
        return _pretended[-1]
    if interpreting():
        return Capability("interpreter", "", 64 * KIBIBYTE)
    if device.type != "cuda":
        raise ValueError(f"the tensors are on {device}, and Triton's kernels need a GPU or TRITON_INTERPRET=1")
    return _read_capability(device.index)


@contextmanager
def pretending(pretended: Capability) -> Iterator[None]:
    """Within it, every device has this capability, and nothing is tuned: for compiling what another GPU would run."""
    _pretended.append(pretended)
    try:
        yield
    finally:
        _pretended.pop()


@cache
def _read_capability(index: int) -> Capability:
    properties: Any = torch.cuda.get_device_properties(index)
    shared = getattr(properties, "shared_memory_per_block_optin", 0) or properties.shared_memory_per_block
    if torch.version.hip:
        return Capability("hip", properties.gcnArchName.split(":")[0], shared)
    return Capability("cuda", 10 * properties.major + properties.minor, shared)


# --- Tuning ---------------------------------------------------------------------------------------------------


class Tuner:
    """Chooses among the tiles of one kernel."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._chosen: dict[tuple, Tile] = {}

    def __call__(self, candidates: Sequence[Tile], key: tuple, launch: Callable[[Tile], None]) -> Tile:
        """The fastest of `candidates`, the first of which is the default; `launch` runs the kernel with one.

        `key` is what the fastest may depend on, a size class rather than a size: each new one is measured.
        """
        chosen = self._chosen.get(key)
        if chosen is None:
            if len(candidates) == 1 or not may_tune():
                return candidates[0]
            chosen = self._chosen[key] = self._recall(candidates, key) or self._measure(candidates, key, launch)
        return chosen

    def _recall(self, candidates: Sequence[Tile], key: tuple) -> Tile | None:
        path = get_cache_manager(self._digest(candidates, key)).get_file(self._file)
        if path is None:
            return None
        with open(path, encoding="utf-8") as file:
            return Tile(*json.load(file)["tile"])

    def _measure(self, candidates: Sequence[Tile], key: tuple, launch: Callable[[Tile], None]) -> Tile:
        what = ", ".join(str(part).removeprefix("torch.") for part in key)
        seconds = math.ceil(len(candidates) * SECONDS_TO_COMPILE)
        print(
            f"kernels: tuning {self.kernel.__name__} ({what}) over {len(candidates)} tiles: about {seconds} s, once",
            file=sys.stderr,
            flush=True,
        )
        milliseconds = {tile: measure(launch, tile) for tile in candidates}
        chosen = min(candidates, key=milliseconds.__getitem__)
        record = {"tile": chosen, "milliseconds": [[*tile, time] for tile, time in milliseconds.items()]}
        get_cache_manager(self._digest(candidates, key)).put(json.dumps(record), self._file, binary=False)
        return chosen

    @property
    def _file(self) -> str:
        return f"{self.kernel.__name__}.tile.json"

    def _digest(self, candidates: Sequence[Tile], key: tuple) -> str:
        """Another GPU, Triton, kernel or list of candidates is another choice."""
        parts = (torch.cuda.get_device_name(), triton.__version__, self.kernel.cache_key, key, candidates)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def may_tune() -> bool:
    """Not where it is switched off, nor where nothing can be measured: a captured graph must not wait for a clock."""
    if os.environ.get("MINITRANSFORMER_TUNE") == "0" or interpreting() or _pretended:
        return False
    return not torch.cuda.is_current_stream_capturing()


def measure(launch: Callable[[Tile], None], tile: Tile) -> float:
    """The median of a kernel's milliseconds; infinite for a tile that this GPU has no room for after all."""
    try:
        return cast(float, triton.testing.do_bench(lambda: launch(tile), warmup=10, rep=50, return_mode="median"))
    except (OutOfResources, PTXASError, torch.OutOfMemoryError):  # the clock takes memory too
        return math.inf
