"""How often a kernel's loops run, and what it moves: read from Triton's own code of it (TTIR), for every program.

The bounds of most loops follow from the kernel's arguments and the number of its program. These scalars are computed
here, as arrays with a number for each program. What follows from the contents of memory is not known: of two values
between which it decides the larger is taken, a loop that it bounds runs once, and both branches of a condition.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "divsi": lambda a, b: np.trunc(a / b).astype(np.int64),
    "divui": np.floor_divide,
    "remsi": np.fmod,
    "remui": np.fmod,
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "minui": np.minimum,
    "maxui": np.maximum,
    "shli": np.left_shift,
    "shrsi": np.right_shift,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "select": np.where,
    **dict.fromkeys(("extsi", "extui", "trunci", "index_cast"), np.asarray),
}

COMPARED = {
    "eq": np.equal, "ne": np.not_equal, "slt": np.less, "sle": np.less_equal, "sgt": np.greater,
    "sge": np.greater_equal, "ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal,
}  # fmt: skip

AXES = "xyz"

BITS = {"i1": 8, "i8": 8, "fp8": 8, "i16": 16, "f16": 16, "bf16": 16, "i32": 32, "f32": 32, "i64": 64, "f64": 64}


@dataclass
class Found:
    """What is read from a kernel's code."""

    programs: int
    trips: list[np.ndarray | None] = field(default_factory=list)
    """For each loop in the order of the code, how often each program runs it whenever it is reached; None: unknown."""

    branches: bool = False
    """Whether some condition is unknown."""

    loaded: dict[int, float] = field(default_factory=dict)
    stored: dict[int, float] = field(default_factory=dict)
    """Bytes that all programs together load and store through a pointer, by the number of the argument that it is;
    masked numbers count too."""


def read(ttir: str, arguments: Sequence[Any], grid: Sequence[int]) -> Found:
    """The loops and the traffic of a launch with these arguments: numbers, and anything for what is no number."""
    return _Reader(arguments, grid).read(ttir)


class _Reader:
    def __init__(self, arguments: Sequence[Any], grid: Sequence[int]) -> None:
        self.arguments, self.grid = arguments, [*grid, 1, 1][:3]
        self.values: dict[str, Any] = {}
        self.origins: dict[str, int] = {}
        program = np.arange(int(np.prod(self.grid)))
        self.programs = len(program)
        self.found = Found(self.programs)
        self.numbers = dict(zip(AXES, np.unravel_index(program, self.grid, order="F"), strict=True))
        self.around: list[Any] = []
        """How often each block runs that is open here."""

    def read(self, ttir: str) -> Found:
        for line in ttir.splitlines():
            code = re.sub(r" loc\(.*$", "", line).strip()
            if "tt.func" in code:
                self._open(line)
            elif code.startswith("}"):
                before = self.around.pop()
                if code.endswith("{"):  # the other branch, or the second part of a while
                    self.around.append(before)
            else:
                self._line(code)
        return self.found

    def _open(self, line: str) -> None:
        names = re.findall(r"(%\w+): (?:!tt\.\w+<|\w)", line.partition("@")[2])
        for number, (name, value) in enumerate(zip(names, self.arguments, strict=True)):
            self.origins[name] = number
            self.values[name] = value if isinstance(value, int | float) else None
        self.around.append(1)

    def _line(self, code: str) -> None:
        if loop := re.search(r"scf\.for (?:unsigned )?(%\w+) = (\S+) to (\S+) step (\S+)", code):
            self._loop(code, *loop.groups())
        elif "scf.while" in code:
            self.found.trips.append(None)
            self.around.append(1)
        elif condition := re.search(r"scf\.if (%\w+)", code):
            self.found.branches |= self.values.get(condition[1]) is None
        elif made := re.match(r"(%\w+)(?::\d+)? = \"?([\w.]+)\"?(.*)", code):
            self._value(*made.groups(), code)
        if "tt.load" in code or "descriptor_load" in code:
            self._moved(code, self.found.loaded)
        elif "tt.store" in code or "descriptor_store" in code:
            self._moved(code, self.found.stored)
        if code.endswith("{") and "scf.for" not in code and "scf.while" not in code:
            self.around.append(1)

    def _loop(self, code: str, variable: str, *bounds: str) -> None:
        start, stop, step = (self.values.get(name) for name in bounds)
        trips = None
        if start is not None and stop is not None and step is not None:
            trips = np.maximum(-(-(np.asarray(stop) - start) // step), 0) + np.zeros(self.programs, np.int64)
            self.values[variable] = start + step * (np.maximum(trips - 1, 0) // 2)  # loops inside see its middle
        self.found.trips.append(trips)
        self.around.append(1 if trips is None else trips)
        for name, first in re.findall(r"(%\w+) = (%\w+)", code.partition("iter_args")[2]):
            if first in self.origins:
                self.origins[name] = self.origins[first]

    def _value(self, name: str, operation: str, rest: str, code: str) -> None:
        dialect, _, what = operation.partition(".")
        operands = re.findall(r"%\w+", rest.partition(" : ")[0])
        if operands and operands[0] in self.origins and dialect == "tt":
            self.origins[name] = self.origins[operands[0]]
        scalar = "tensor<" not in code
        if what == "constant" and (number := re.match(r" (-?\d+|true|false)(?: :|$)", rest)):
            self.values[name] = int(number[1]) if number[1][-1].isdigit() else number[1] == "true"
        elif what == "get_program_id":
            self.values[name] = self.numbers[rest.split()[0]]
        elif what == "get_num_programs":
            self.values[name] = self.grid[AXES.index(rest.split()[0])]
        elif dialect == "arith" and scalar:
            known = [self.values.get(operand) for operand in operands]
            function = COMPARED[rest.split(",")[0].strip()] if what == "cmpi" else ARITHMETIC.get(what)
            if function is not None and known and all(value is not None for value in known):
                with np.errstate(divide="ignore", invalid="ignore"):
                    self.values[name] = function(*known)
            elif what == "select" and known[1] is not None and known[2] is not None:
                self.values[name] = np.maximum(*known[1:])

    def _moved(self, code: str, into: dict[int, float]) -> None:
        pointer = re.search(r"(?:load|store)\s+(%\w+)", code)
        kind = code.rpartition(" : ")[2]
        shape = re.search(r"(?:tensor|tensordesc)<(?:tensor<)?((?:\d+x)*)(?:!tt\.ptr<)?(\w+)", kind)
        shape = shape or re.search(r"!tt\.ptr<()(\w+)", kind)
        if pointer is None or shape is None or pointer[1] not in self.origins:
            raise ValueError(f"an access to memory that is not understood: {code}")
        elements = int(np.prod([int(size) for size in shape[1].split("x") if size] or [1]))
        times: Any = np.ones(self.programs)
        for each in self.around:
            times = times * each
        origin = self.origins[pointer[1]]
        into[origin] = into.get(origin, 0.0) + float(np.sum(times)) * elements * BITS.get(shape[2], 32) / 8
