"""The properties of a GPU that kernels depend on, and a tuner that finds the fastest of several tiles.

`triton.autotune` is not used. Its key can hold only arguments of the kernel, not the size class of a problem. It
computes the key at each launch, which slows small models down. And it can neither announce that it is going to measure
nor skip small problems and captured graphs. `Tuner` measures each candidate once, and remembers the choice in memory
and in Triton's cache on disk. Processes that share this cache and a kind of GPU share the choice: one measures, the
others wait for it, so that all ranks of a training compute with the same tiles.

`MINITRANSFORMER_TUNE=0` switches tuning off: then every kernel uses the default tile of its table, whatever another
process has chosen, and its bits do not depend on a clock.
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
from torch import Tensor
from triton.errors import TritonError
from triton.runtime.cache import get_cache_manager

from .availability import interpreting

try:
    import fcntl
except ImportError:  # Windows: there each process measures for itself
    fcntl = None

KIBIBYTE = 1024
SECONDS_TO_COMPILE = 1.5
"""The seconds that one candidate takes, roughly."""


class Tile(NamedTuple):
    """A kernel's division of its problem: rows and columns of a block, its warps, and the blocks loaded ahead."""

    rows: int
    columns: int
    num_warps: int
    num_stages: int
    descriptors: bool = False
    """Whether blocks are loaded by tensor descriptors, which Hopper's tensor memory accelerator follows."""


@dataclass(frozen=True)
class Capability:
    """The properties that tiles depend on: `("cuda", 90, …)`, `("hip", "gfx942", …)`, or the interpreter's."""

    kind: str
    arch: int | str
    shared_memory: int
    """The bytes that one program may use."""


_pretended: list[Capability] = []


def capability(device: torch.device) -> Capability:
    """Return the capability of a tensor's device. Raises `ValueError` if Triton can't run on it."""
    if _pretended:
        return _pretended[-1]
    if interpreting():
        return Capability("interpreter", "", 64 * KIBIBYTE)
    if device.type != "cuda":
        raise ValueError(f"the tensors are on {device}, and Triton's kernels need a GPU or TRITON_INTERPRET=1")
    return _read_capability(device.index)


def lacks_tensor_cores(gpu: Capability) -> bool:
    """Return True if Triton's products are slow on this GPU because they use no tensor cores; nor is bfloat16 fast."""
    return gpu.kind == "cuda" and int(gpu.arch) < 80


@contextmanager
def pretending(pretended: Capability) -> Iterator[None]:
    """Give every device this capability inside the block, and tune nothing: so kernels compile for other GPUs."""
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

    def __call__(
        self, candidates: Sequence[Tile], key: tuple, launch: Callable[[Tile], None], results: Sequence[Tensor] = ()
    ) -> Tile:
        """Return the fastest of `candidates`, the first of which is the default; `launch` runs the kernel with one.

        `key` holds everything that the fastest may depend on, with size classes rather than sizes, because candidates
        are measured again for each new key. A candidate that does not compile, does not fit this GPU, or writes other
        `results` than the default is left out, and the reason is printed and kept.
        """
        if len(candidates) == 1:
            return candidates[0]
        chosen = self._chosen.get(key)
        if chosen is None:
            if not may_tune():
                return candidates[0]
            chosen = self._chosen[key] = self._remembered_or_measured(candidates, key, launch, results)
        return chosen

    def _remembered_or_measured(
        self, candidates: Sequence[Tile], key: tuple, launch: Callable[[Tile], None], results: Sequence[Tensor]
    ) -> Tile:
        """Return the choice on disk for this kind of GPU, Triton, kernel and candidates; measure it if missing."""
        known = torch.cuda.get_device_name(), *(part for part in key if not isinstance(part, torch.device))
        choice = (known, triton.__version__, self.kernel.cache_key, candidates)
        on_disk = get_cache_manager(hashlib.sha256(repr(choice).encode()).hexdigest())
        file = f"{self.kernel.__name__}.tile.json"
        # A remote cache has no file to lock: then /dev/null is the one lock of all choices on this machine.
        with open(getattr(on_disk, "lock_path", os.devnull), "w") as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            path = on_disk.get_file(file)
            if path is not None:
                return Tile(*json.loads(Path(path).read_text(encoding="utf-8"))["tile"])
            found = self._measured(candidates, key, launch, results)
            on_disk.put(json.dumps(found), file, binary=False)
        return found["tile"]

    def _measured(
        self, candidates: Sequence[Tile], key: tuple, launch: Callable[[Tile], None], results: Sequence[Tensor]
    ) -> dict[str, Any]:
        """Measure all tiles; return the fastest, the milliseconds of each, and those left out, with the reason."""
        name = self.kernel.__name__
        what = ", ".join(str(part).removeprefix("torch.") for part in key)
        seconds = math.ceil(len(candidates) * SECONDS_TO_COMPILE)
        said = f"kernels: tuning {name} ({what}) over {len(candidates)} tiles: about {seconds} s, once"
        print(said, file=sys.stderr, flush=True)
        milliseconds, left_out, expected = {}, [], None
        for tile in candidates:
            try:
                for result in results:
                    result.fill_(math.nan)  # so that a candidate that writes nothing is noticed
                milliseconds[tile] = measure(launch, tile)
                if expected is None:
                    expected = [result.clone() for result in results]
                elif not all(map(agree, results, expected)):
                    raise RuntimeError("it computes other numbers than the default")
            except (TritonError, RuntimeError) as error:  # the latter from passes of the compiler and from CUDA
                milliseconds[tile] = math.inf
                reason = f"{type(error).__name__}: {error}"
                left_out.append([*tile, reason])
                print(f"kernels: {name} without {tile}: {reason.splitlines()[0]}", file=sys.stderr, flush=True)
        chosen = min(candidates, key=milliseconds.__getitem__)
        times = [[*tile, time] for tile, time in milliseconds.items()]
        return {"tile": chosen, "milliseconds": times, "left out": left_out}


def agree(found: Tensor, expected: Tensor) -> bool:
    """Return True if two results differ by no more than rounding does: by 1/32 of the largest number of a row."""
    allowed = expected.abs().nan_to_num(posinf=0.0).amax(-1, keepdim=True) / 32
    unwritten = found.isnan() & expected.isnan()  # rows that belong to no sentence
    return bool((unwritten | (found == expected) | ((found - expected).abs() <= allowed)).all())


def may_tune() -> bool:
    """Return True if tuning is on and time can be measured: a graph that is being captured must not wait."""
    if os.environ.get("MINITRANSFORMER_TUNE") == "0" or interpreting() or _pretended:
        return False
    return not torch.cuda.is_current_stream_capturing()


def measure(launch: Callable[[Tile], None], tile: Tile) -> float:
    """Return the median of a kernel's milliseconds."""
    return cast(float, triton.testing.do_bench(lambda: launch(tile), warmup=10, rep=50, return_mode="median"))
