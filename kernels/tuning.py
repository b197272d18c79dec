"""The properties of a GPU that kernels depend on, and a tuner that finds the fastest of several tiles.

`triton.autotune` is not used. Its key can hold only arguments of the kernel, not the size class of a problem. It
computes the key at each launch, which slows small models down. And it can neither announce that it is going to measure
nor skip small problems and captured graphs. `Tuner` does the rest of its work: it measures each candidate once, and
remembers the choice in memory and in Triton's cache on disk.

`MINITRANSFORMER_TUNE=0` switches tuning off: then every kernel uses the default tile of its table.
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
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import triton
from triton.runtime.cache import get_cache_manager
from triton.runtime.errors import OutOfResources, PTXASError

from .availability import interpreting

KIBIBYTE = 1024
SECONDS_TO_COMPILE = 1.5
"""Seconds that one candidate takes, roughly."""


class Tile(NamedTuple):
    """How a kernel divides its problem: rows and columns of a block, its warps, and the blocks loaded ahead."""

    rows: int
    columns: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Capability:
    """The properties that tiles depend on: `("cuda", 90, …)`, `("hip", "gfx942", …)`, or the interpreter's."""

    kind: str
    arch: int | str
    shared_memory: int
    """The bytes that one program may use."""


_pretended: list[Capability] = []


def capability(device: torch.device) -> Capability:
    """The capability of a tensor's device. Raises `ValueError` if Triton can't run on it."""
    if _pretended:
        return _pretended[-1]
    if interpreting():
        return Capability("interpreter", "", 64 * KIBIBYTE)
    if device.type != "cuda":
        raise ValueError(f"the tensors are on {device}, and Triton's kernels need a GPU or TRITON_INTERPRET=1")
    return _read_capability(device.index)


@contextmanager
def pretending(pretended: Capability) -> Iterator[None]:
    """Inside it every device has this capability, and nothing is tuned: so kernels can be compiled for other GPUs."""
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
    """Chooses the fastest tile of one kernel."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._chosen: dict[tuple, Tile] = {}

    def __call__(self, candidates: Sequence[Tile], key: tuple, launch: Callable[[Tile], None]) -> Tile:
        """The fastest of `candidates`, the first of which is the default; `launch` runs the kernel with one.

        `key` holds everything that the fastest may depend on, with size classes rather than sizes, because candidates
        are measured again for each new key.
        """
        chosen = self._chosen.get(key)
        if chosen is None:
            if len(candidates) == 1 or not may_tune():
                return candidates[0]
            chosen = self._chosen[key] = self._remembered_or_measured(candidates, key, launch)
        return chosen

    def _remembered_or_measured(self, candidates: Sequence[Tile], key: tuple, launch: Callable[[Tile], None]) -> Tile:
        """On disk another GPU, Triton, kernel or list of candidates is another choice."""
        name = self.kernel.__name__
        choice = (torch.cuda.get_device_name(), triton.__version__, self.kernel.cache_key, key, candidates)
        on_disk, file = get_cache_manager(hashlib.sha256(repr(choice).encode()).hexdigest()), f"{name}.tile.json"
        path = on_disk.get_file(file)
        if path is not None:
            return Tile(*json.loads(Path(path).read_text(encoding="utf-8"))["tile"])
        what = ", ".join(str(part).removeprefix("torch.") for part in key)
        seconds = math.ceil(len(candidates) * SECONDS_TO_COMPILE)
        said = f"kernels: tuning {name} ({what}) over {len(candidates)} tiles: about {seconds} s, once"
        print(said, file=sys.stderr, flush=True)
        milliseconds = {tile: measure(launch, tile) for tile in candidates}
        chosen = min(candidates, key=milliseconds.__getitem__)
        record = {"tile": chosen, "milliseconds": [[*tile, time] for tile, time in milliseconds.items()]}
        on_disk.put(json.dumps(record), file, binary=False)
        return chosen


def may_tune() -> bool:
    """Whether tuning is switched on and time can be measured: a graph that is being captured must not wait."""
    if os.environ.get("MINITRANSFORMER_TUNE") == "0" or interpreting() or _pretended:
        return False
    return not torch.cuda.is_current_stream_capturing()


def measure(launch: Callable[[Tile], None], tile: Tile) -> float:
    """The median of a kernel's milliseconds; infinite for a tile that does not fit this GPU."""
    try:
        return cast(float, triton.testing.do_bench(lambda: launch(tile), warmup=10, rep=50, return_mode="median"))
    except (OutOfResources, PTXASError, torch.OutOfMemoryError):  # measuring takes memory too
        return math.inf
