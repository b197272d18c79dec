"""Machine code of NVIDIA's Hopper as `cuobjdump -sass` prints it: its loops, and a warp's cycles.

    cuobjdump -sass kernel.cubin | python tests/support/kernels/sass.py

Each instruction holds what the compiler knows of its time: how many cycles the next one waits, which of six scoreboards
it holds until its result is there, and for which it waits itself (Jia et al. 2018, "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking", §2). So a warp's way through the code can be followed without a GPU.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

SCHEDULERS = 4
"""Those of a multiprocessor. Each issues one instruction of one warp in a cycle, and has its own pipes."""

HALF_FLOPS = 1024
"""Operations that a scheduler's tensor core does in a cycle, on numbers of 16 bits; half as many in tf32 (NVIDIA, "H100
Tensor Core GPU Architecture": 989 TFLOP/s dense at 1.83 GHz)."""

WARP_PRODUCTS = 0.63
"""How much of that the products of a single warp reach, `HMMA` (Luo et al. 2025, "Dissecting the NVIDIA Hopper
Architecture through Microbenchmarking", mma against wgmma)."""

PIPES = {
    "fma": {"FFMA": 1, "FADD": 1, "FMUL": 1, "HFMA2": 1, "HADD2": 1, "HMUL2": 1, "IMAD": 2, "IDP": 2},
    "transcendental": {"MUFU": 8, "I2F": 8, "F2I": 8, "F2F": 8, "FCHK": 8, "POPC": 8, "FLO": 8, "BREV": 8},
    "memory": dict.fromkeys(
        "LD ST LDG STG LDGSTS LDS STS LDSM STSM LDL STL SHFL ATOM ATOMS RED".split(),
        SCHEDULERS,  # one of them in a cycle, for the four schedulers together
    ),
}
"""Cycles for which an instruction of a warp keeps its pipe busy, in a scheduler's share of the multiprocessor.

From "throughput of native arithmetic instructions" in NVIDIA's CUDA C++ Programming Guide, compute capability 9.0:
results a cycle and multiprocessor are 128 of an FMA, 64 of an integer product or sum, a comparison or a conversion to
16 bits, 32 moved between threads, and 16 of exp2, log2, reciprocals and conversions between integers and floats.
"""

ONLY_ISSUED = re.compile(
    r"U[A-Z0-9]+|R2UR|S2U?R|CS2R|LDC|BRA|BRX|EXIT|NOP|BAR|B[A-Z]*SY\w*|WARP\w*|DEPBAR|LDGDEPBAR|CALL|RET|MEMBAR|FENCE"
    r"|VOTEU?|SYNCS|ERRBAR|CCTL|KILL|YIELD|ELECT|ENDCOLLECTIVE|ACQBULK"
)
"""Instructions that take a turn of the scheduler and none of the pipes above; all others are integers' and logic's."""

LATENCY = {"LDG": 479, "LDGSTS": 479, "LDS": 29, "LDSM": 29, "LDL": 40, "LDC": 40, "SHFL": 24, "MUFU": 22, "HMMA": 33}
"""Cycles until a result is there, of those that hold a scoreboard (Luo et al. 2025, memory's without load)."""

OTHER_LATENCY, BARRIER = 20, 30
"""The same of all others; and of a barrier between warps that arrive together."""


class Instruction(NamedTuple):
    """One line of machine code."""

    place: int
    name: str
    """ "LDG.E.128", without the predicate before it."""
    text: str
    stall: int
    """Cycles before the warp's next instruction."""
    holds: tuple[int, ...]
    """Scoreboards that it holds."""
    waits: tuple[int, ...]
    """Scoreboards that must be free before it."""

    @property
    def base(self) -> str:
        """ "LDG"."""
        return self.name.partition(".")[0]


def instructions(sass: str) -> list[Instruction]:
    """Return the code up to its last exit; behind it are routines for rare numbers, as denormal divisors, or padding.

    Two words of 64 bits stand beside each. Of the second, bits 41–44 are the stall, 46–48 and 49–51 the scoreboards
    that are held (7: none), 52–57 those that are waited for.
    """
    word = r"/\* 0x([0-9a-f]{16}) \*/"
    found = re.findall(rf"^\s+/\*([0-9a-f]{{4,}})\*/\s+(.*?)\s*;\s+{word}\s+{word}", sass, re.M)
    code = []
    for place, text, _, second in found:
        control = int(second, 16) >> 41
        boards = (control >> 5) & 7, (control >> 8) & 7
        waits = tuple(board for board in range(6) if (control >> 11) >> board & 1)
        name = re.sub(r"^@!?U?P\w+\s+", "", text).split()[0]
        code.append(Instruction(int(place, 16), name, text, control & 15, tuple(b for b in boards if b != 7), waits))
    exits = [number for number, each in enumerate(code) if each.text == "EXIT"]
    return code[: exits[-1] + 1] if exits else code


def loops(code: Sequence[Instruction]) -> list[tuple[int, int]]:
    """Return first and last instruction of each loop by number, in the order of their beginnings, outer ones first."""
    number = {each.place: index for index, each in enumerate(code)}
    ends: dict[int, int] = {}
    for index, each in enumerate(code):
        target = re.search(r"\b0x([0-9a-f]+)$", each.text) if each.base == "BRA" else None
        begin = number.get(int(target[1], 16), index) if target else index
        if begin < index:
            ends[begin] = max(index, ends.get(begin, 0))
    return sorted(ends.items(), key=lambda loop: (loop[0], -loop[1]))


def pipe_of(instruction: Instruction) -> tuple[str, float]:
    """Return the pipe that an instruction needs, and for how many cycles; "" for one that is only issued."""
    base, name = instruction.base, instruction.name
    if base in ("HGMMA", "HMMA"):
        rate = HALF_FLOPS * (WARP_PRODUCTS if base == "HMMA" else 1) / (2 if "TF32" in name else 1)
        return "tensor", product_flops(name) / rate
    for pipe, cycles in PIPES.items():
        if base in cycles:
            return pipe, cycles[base] * (width_of(name) if pipe == "memory" and base != "SHFL" else 1)
    return ("", 0) if ONLY_ISSUED.fullmatch(base) else ("integer", 2)


def width_of(name: str) -> int:
    """Return the times 4 bytes of a thread that an access to memory moves, 1 at the least: 128 bytes take a cycle."""
    wide = re.search(r"\.(64|128)\b", name) or re.search(r"M88\.(2|4)", name)
    return {"64": 2, "128": 4, "2": 2, "4": 4}[wide[1]] if wide else 1


def product_flops(name: str) -> float:
    """Return a warp's operations in a product of matrices: a quarter of `HGMMA.64x128x16`, which four warps share."""
    if shape := re.search(r"\.(\d+)x(\d+)x(\d+)", name):
        m, n, k = map(int, shape.groups())
        return 2 * m * n * k / 4
    shape = re.search(r"\.(16)(8)(\d+)", name)
    if shape is None:
        raise ValueError(f"{name} has no shape")
    return 2 * 16 * 8 * int(shape[3])


@dataclass
class Warp:
    """A warp on its way, beside `beside` others of its program that do the same on the same scheduler, in turn."""

    beside: int = 1
    now: float = 0
    passed: float = 0
    """Cycles in which all went on as before."""
    boards: dict[int, float] = field(default_factory=dict)
    """When each scoreboard is free."""
    pipes: dict[str, float] = field(default_factory=dict)
    """When each pipe is free."""
    copied: float = 0
    copies: list[float] = field(default_factory=list)
    """When each group of copies into shared memory is there, and the last copy of none yet."""
    products: list[float] = field(default_factory=list)
    """When each group of products of matrices is done."""

    def run(self, code: Sequence[Instruction], trips: Sequence[float]) -> float:
        """Return the cycles for all of the code. A loop is followed twice; the second time counts for the others."""
        self._run(code, 0, len(code), dict(zip(loops(code), trips, strict=True)))
        return self.now + self.passed

    def _run(self, code: Sequence[Instruction], index: int, end: int, inside: dict[tuple[int, int], float]) -> None:
        while index < end:
            loop = next((each for each in inside if each[0] == index and each[1] < end), None)
            if loop is None:
                self._issue(code[index])
                index += 1
                continue
            trips, inner = inside[loop], {each: times for each, times in inside.items() if each != loop}
            before = 0.0
            for _ in range(min(2, ceil(trips))):
                before = self.now + self.passed
                self._run(code, index, loop[1] + 1, inner)
            self.passed += max(trips - 2, 0) * (self.now + self.passed - before)
            index = loop[1] + 1

    def _issue(self, each: Instruction) -> None:
        pipe, cycles = pipe_of(each)
        self.now = max([self.now, *(self.boards.get(board, 0) for board in each.waits)])
        if each.base == "DEPBAR":
            self._wait(self.copies, each.text)
        elif each.name.startswith("WARPGROUP.DEPBAR"):
            self._wait(self.products, each.text)
        elif each.base == "BAR":
            self.now += BARRIER
        begins = max(self.now, self.pipes.get(pipe, 0)) if pipe else self.now
        if pipe:
            self.pipes[pipe] = begins + cycles * self.beside
        if each.base != "HGMMA":
            self.now = begins  # products of four warps queue up, and the warp goes on
        elif "gsb0" in each.text:
            self.products.append(self.pipes["tensor"])
        if each.base == "LDGSTS":
            self.copied = self.now + LATENCY["LDGSTS"]
        elif each.base == "LDGDEPBAR":
            self.copies.append(self.copied)
        else:
            for board in each.holds:
                self.boards[board] = self.now + LATENCY.get(each.base, OTHER_LATENCY)
        self.now += max(each.stall, self.beside)

    def _wait(self, groups: list[float], text: str) -> None:
        """Wait until no more groups are under way than the instruction says."""
        allowed = re.search(r"0x([0-9a-f]+)$", text)
        done = groups[: len(groups) - int(allowed[1], 16)] if allowed else []
        self.now = max([self.now, *done])


def described(sass: str) -> list[str]:
    """Return a line for each loop: its instructions, and the cycles of a trip for two warps."""
    code = instructions(sass)
    lines, every = [], loops(code)
    once = Warp(2).run(code, [1.0] * len(every))
    for begin, end in every:
        around = Warp(2).run(code, [1.0 if loop != (begin, end) else 2.0 for loop in every]) - once
        where = f"{code[begin].place:#x}–{code[end].place:#x}: {end + 1 - begin} instructions"
        lines.append(f"{where}, {around:,.0f} cycles a trip of two warps")
    return lines


if __name__ == "__main__":
    print("\n".join(described(sys.stdin.read())))
