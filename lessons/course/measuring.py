"""Measure times, passes over memory and the machine itself, for the lessons about speed."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.ops import Ops
from minitransformer.probe import Call as OpCall
from minitransformer.probe import probe
from minitransformer.system.threads import blas_threads

BENCHMARKS = Path(__file__).resolve().parents[2] / "tests" / "benchmarks"

Call = Callable[[], Any]


@dataclass(frozen=True)
class Machine:
    """A machine in three numbers: floating-point operations a second, bytes a second, seconds for an empty call."""

    flops: float
    bandwidth: float
    call: float


def race(calls: Mapping[Any, Call], rounds: int = 9, turn: float = 0.003) -> dict[Any, float]:
    """Return the least seconds of each call over `rounds` turns: other load on the machine can only add to them.

    Calls warm up, then take turns, so that other load affects all alike. A turn repeats a call for about `turn`
    seconds.
    """
    repeats, times = {}, {name: [] for name in calls}
    for name, call in calls.items():
        call()
        repeats[name] = max(1, int(turn / max(_seconds(call, 1), 1e-9)))
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(_seconds(call, repeats[name]))
    return {name: min(each) for name, each in times.items()}


def _seconds(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def this_machine() -> Machine:
    """Measure one core, in float32: a large product, a copy much larger than the caches, and a tiny addition."""
    rng, size = np.random.default_rng(0), 1024
    a, b = rng.random((2, size, size), dtype=np.float32)
    source = rng.random(24 << 20, dtype=np.float32)  # 96 MiB
    copy, one = np.empty_like(source), np.ones(1, np.float32)
    with blas_threads(1):
        seconds = race(
            {
                "product": lambda: np.matmul(a, b),
                "copy": lambda: np.copyto(copy, source),
                "call": lambda: np.add(one, one),
            }
        )
    return Machine(2 * size**3 / seconds["product"], 2 * source.nbytes / seconds["copy"], seconds["call"])


class Stopwatch:
    """A table of ops that records times: `seconds` has the time of each pair in `ops`, summed over all threads."""

    def __init__(self, ops: Ops) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self.ops = probe(ops, self._add)

    def _add(self, call: OpCall) -> None:
        if call.way or call.op == "adam_step":
            with self._lock:
                self.seconds[call.op.removesuffix("_step")] += call.seconds

    def profile(self, step: Call, steps: int = 1, threads: int = 1) -> dict[str, float]:
        """Return the milliseconds of a step: "total", and each pair's share if `threads` threads work in parallel."""
        self.seconds.clear()
        total = _seconds(step, steps)
        return {"total": 1000 * total} | {name: 1000 * s / steps / threads for name, s in self.seconds.items()}


def quietest(
    profiles: Mapping[str, Callable[[], dict[str, float]]], rounds: int = 12, seconds: float = 6.0
) -> dict[str, dict[str, float]]:
    """Return each profile's run with the least "total"; they take turns for `rounds` rounds or about `seconds`."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in profiles}
    end = time.perf_counter() + seconds
    for number in range(rounds):
        if number > 1 and time.perf_counter() > end:
            break
        for name, profile in profiles.items():
            found[name].append(profile())
    return {name: min(each, key=lambda one: one["total"]) for name, each in found.items()}


class Passes(np.ndarray):
    """An array that counts how often it, and every array computed from it, is read or written as a whole.

    `array.view(Passes)` is counted; `Passes.count(function, *arrays)` returns the passes over the first array.
    """

    elements = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [each.view(np.ndarray) if isinstance(each, Passes) else each for each in inputs]
        targets = None if out is None else tuple(each.view(np.ndarray) for each in out)
        result = getattr(ufunc, method)(*plain, out=targets, **options)
        Passes.elements += sum(each.size for each in plain if isinstance(each, np.ndarray)) + result.size
        return result.view(Passes) if out is None else out[0]

    def __setitem__(self, place: Any, value: Any) -> None:
        view = self.view(np.ndarray)
        view[place] = value
        if not np.shares_memory(view, value):  # `a[i] += b` has been counted, and then assigns the same view
            Passes.elements += 2 * np.size(value)

    @classmethod
    def count(cls, function: Callable[..., Any], *arrays: np.ndarray) -> float:
        cls.elements = 0
        function(*(array.view(cls) for array in arrays))
        return cls.elements / arrays[0].size


def page_faults() -> int | None:
    """Return the number of this process's minor page faults so far, or None if the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def caches() -> dict[str, int]:
    """Return the sizes of a core's data caches, "L1" to "L3", in bytes; an empty dict if the system does not tell."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = int(size.removesuffix("K")) * 1024
    return found
