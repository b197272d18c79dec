"""What is assumed of a GPU, in one place, and the time that a launch takes on it by these assumptions.

Left out: what one launch leaves in the cache for the next, a bank of memory that several threads want at once, the
branch that is not taken (both count), the order in which programs reach memory, and the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from . import sass

KIBIBYTE = 1024

REGISTERS, THREADS, PROGRAMS = 65_536, 2048, 32
"""The most of a multiprocessor (CUDA C++ Programming Guide, "technical specifications", compute capability 9.0)."""

SHARED, SHARED_RESERVED = 228 * KIBIBYTE, KIBIBYTE
"""Bytes of shared memory of a multiprocessor, and those that the system takes for each program (the same)."""

NEAR = 64 * KIBIBYTE
"""Bytes of a tensor that stay in a multiprocessor's own cache, of 256 KiB, beside what streams through it."""


@dataclass(frozen=True)
class GPU:
    """Numbers of a data sheet, and how much of them large copies and products reach."""

    name: str
    memory_gbs: float
    """Bandwidth of the data sheet."""

    processors: int = 132
    clock_ghz: float = 1.755
    """Under load: between 1.4 (a large product, limited by power) and 1.98 (idle multiprocessors)."""

    copied: float = 0.9
    """How much of the bandwidth a large copy reaches: 4.3 of 4.8 TB/s on an H200, 3.0 of 3.35 on an H100."""

    multiplied: float = 0.83
    """How much of the tensor cores' peak at `clock_ghz`, 949 TFLOP/s, a large product reaches: 788, by power."""

    cache_bytes: float = 50e6
    cache_gbs: float = 5500
    """The cache that all multiprocessors share (Chips and Cheese 2023, "Nvidia's H100: Funny L2, and Tons of
    Bandwidth")."""

    launch_us: float = 2.5
    """From the end of a kernel to the beginning of the next one's work, when the host is ahead."""

    @property
    def copy_gbs(self) -> float:
        """What a copy reaches."""
        return self.memory_gbs * self.copied

    @property
    def matmul_tflops(self) -> float:
        """What a product of numbers of 16 bits reaches."""
        flops = self.processors * sass.SCHEDULERS * sass.HALF_FLOPS
        return flops * self.clock_ghz * self.multiplied / 1000


H200, H100 = GPU("NVIDIA H200", 4800), GPU("NVIDIA H100", 3350)
"""Data sheets: "NVIDIA H200 Tensor Core GPU" and "NVIDIA H100 Tensor Core GPU", SXM."""

GPUS = (H200, H100)


@dataclass(frozen=True)
class Work:
    """What a launch asks of a GPU."""

    programs: int
    warps: int
    """Warps of a program."""
    registers: int
    """Registers of a thread."""
    shared: int
    """Bytes of a program."""
    code: Sequence[sass.Instruction]
    trips: Sequence[float]
    """How often a program runs each loop whenever it is reached, on the average."""
    even: bool
    """Whether all programs take as long."""
    moved: float
    """Bytes that must come from memory or go there: each tensor's once."""
    passed: float
    """Bytes that programs load and store: more where several programs, or one program twice, load the same. What is
    small stays in each multiprocessor's own cache, and counts once (`NEAR`)."""


class Time(NamedTuple):
    """Milliseconds, and what limits them."""

    ms: float
    bound: str


def at_once(work: Work) -> int:
    """Programs that a multiprocessor has room for."""
    threads = 32 * work.warps
    by_registers = REGISTERS // (8 * ceil(work.registers / 8) * threads)
    by_shared = SHARED // (work.shared + SHARED_RESERVED)
    return max(1, min(by_registers, by_shared, THREADS // threads, PROGRAMS))


def time_of(work: Work, gpu: GPU) -> Time:
    """The time of a launch: its programs wait for what they need, and share memory and a multiprocessor's pipes.

    Of R programs at once on a multiprocessor, each needs what they share for D in all and the busiest of it for d, and
    waits for Z besides: alone it takes D + Z, and all R together `D + Z + (R − 1) · d / (1 + Z / (R · D))` at the most
    (Lazowska et al. 1984, "Quantitative System Performance", table 5.2, balanced job bounds). That is near R · d for
    many, which hide each other's waiting. A program's warps go in step (`sass.Warp`).
    """
    each = work.programs / gpu.processors  # programs of a multiprocessor
    slots = max(1, min(at_once(work), ceil(each)))
    share = work.warps / sass.SCHEDULERS  # of a program's warps, each scheduler's
    needed = {pipe: busy * share / gpu.clock_ghz / 1e6 for pipe, busy in sass.busy(work.code, work.trips).items()}
    others = max(needed[pipe] for pipe in needed if pipe != "tensor")  # these work at the same time
    needed["tensor"] = needed.get("tensor", 0.0) / gpu.multiplied
    held = work.moved * min(1.0, slots / each)  # what those that run at once use, if each has its share
    lost = max(0.0, 1 - gpu.cache_bytes / held) if held else 0.0  # of what is loaded again, that much is not there now
    needed["memory"] = (work.moved + lost * max(0.0, work.passed - work.moved)) / each / gpu.copy_gbs / 1e6
    needed["cache"] = work.passed / each / gpu.cache_gbs / 1e6
    bound = max(needed, key=needed.__getitem__)
    warp = sass.Warp(max(1, round(share)), slower={"tensor": 1 / gpu.multiplied})
    alone = max(needed[bound], warp.run(work.code, work.trips) / gpu.clock_ghz / 1e6)
    together = min(alone, needed["memory"] + needed["tensor"] + others)

    def turn(count: int) -> float:
        return alone + (count - 1) * needed[bound] / (1 + (alone - together) / (count * together))

    whole, rest = divmod(ceil(each) if work.even else each, slots)  # the last turn has what is left
    total = whole * turn(slots) + (turn(max(1, ceil(rest))) if rest and work.even else rest / slots * turn(slots))
    return Time(total + gpu.launch_us / 1000, "latency" if alone > slots * needed[bound] else bound)


SWEEPS = {"sort": 4}
"""PyTorch's operations that go through memory several times: a sort of 32-bit ids takes them a byte at a time."""


def time_of_torch(name: str, moved: float, flops: float, gpu: GPU) -> Time:
    """The time of one of PyTorch's own operations: its inputs read once, its output written once, or its products."""
    memory, products = SWEEPS.get(name, 1) * moved / gpu.copy_gbs / 1e6, flops / gpu.matmul_tflops / 1e9
    return Time(max(memory, products) + gpu.launch_us / 1000, "tensor" if products > memory else "memory")
