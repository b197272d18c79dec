"""The registers of all waves side by side, and the ways in which instructions read and write them.

A wave is 32 lanes, which share the scalar registers. Waves that stand at the same instruction execute it together, so
an instruction is a few operations of NumPy on arrays `(waves, 32)`, however many programs there are.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .assembly import Unknown
from .numbers import NARROW, WIDE, dtype_of, read, written

LANES = 32
POISON = np.uint32(0x7FC07FC0)
"""The bits of a register before it is written: NaN as float32, and in both halves as float16 and as bfloat16."""

VCC, NULL, M0, EXEC = 106, 124, 125, 126
NUM_SCALARS = 128
NAMED = {"vcc_lo": VCC, "vcc_hi": VCC + 1, "null": NULL, "m0": M0, "exec_lo": EXEC, "exec_hi": EXEC + 1}
PAIRS = {"vcc": VCC, "exec": EXEC}
ALL = np.uint32(0xFFFFFFFF)

Step = Callable[["Group"], None]
"""An instruction, ready to be executed for waves."""


class Registers:
    """`vector (registers, waves, 32)`, `scalar (registers, waves)` and `scc (waves)`."""

    def __init__(self, num_vectors: int, num_waves: int) -> None:
        self.vector = np.full((num_vectors, num_waves, LANES), POISON)
        self.scalar = np.full((NUM_SCALARS, num_waves), POISON)
        self.scc = np.zeros(num_waves, bool)
        self.scalar[NULL] = 0
        self.scalar[EXEC] = ALL


class Group:
    """Waves that execute together, and the mask of their lanes that are on."""

    def __init__(self, registers: Registers, waves: Any, machine: Any = None) -> None:
        self.vector, self.scalar, self.scc = registers.vector, registers.scalar, registers.scc
        self.waves = waves
        """The numbers of the waves, or `slice(None)` for all, so that registers are read without a copy."""
        self.everyone = isinstance(waves, slice)
        self.machine = machine
        self.count = self.scalar[EXEC][waves].size
        self.switch()

    def switch(self) -> None:
        """Read exec again after it was written: `mask` `(waves, 32)` are the lanes that are on, None if all are."""
        on = self.scalar[EXEC][self.waves]
        self.mask = None if (on == ALL).all() else lanes_of(on)

    def lanes(self) -> Any:
        """Return the mask of the lanes that are on, `(waves, 32)`."""
        return np.ones((self.count, LANES), bool) if self.mask is None else self.mask

    def write(self, number: int, value: Any) -> None:
        """Write bits `(waves, 32)` to a vector register, in the lanes that are on."""
        register = self.vector[number]
        if self.everyone:
            np.copyto(register, value, where=True if self.mask is None else self.mask)
        elif self.mask is None:
            register[self.waves] = value
        else:
            register[self.waves] = np.where(self.mask, value, register[self.waves])

    def write_scalar(self, number: int, value: Any) -> None:
        """Write bits `(waves,)` to a scalar register; nothing to null."""
        if number != NULL:
            self.scalar[number][self.waves] = value
        if number == EXEC:
            self.switch()

    def write_mask(self, number: int, lanes: Any) -> None:
        """Write a bit for each lane to a scalar register: 0 where a lane is off."""
        lanes = np.broadcast_to(lanes, (self.count, LANES))
        self.write_scalar(number, bits_of(lanes if self.mask is None else lanes & self.mask))


def lanes_of(bits: Any) -> Any:
    """Return `(waves,)` of 32 bits as `(waves, 32)` booleans."""
    return np.unpackbits(bits.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little").view(bool)


def bits_of(lanes: Any) -> Any:
    """Return `(waves, 32)` booleans as `(waves,)` of 32 bits."""
    return np.packbits(lanes, axis=1, bitorder="little").view(np.uint32)[:, 0]


# --- Operands ---------------------------------------------------------------------------------------------------

Reader = Callable[[Group], Any]


def span(text: str) -> tuple[str, int, int]:
    """Return the kind ("v" or "s"), the first number and the count of the registers `v[4:7]`, `s3` or `vcc_lo`."""
    if text in NAMED or text in PAIRS:
        return "s", (NAMED | PAIRS)[text], 1 if text in NAMED else 2
    found = re.fullmatch(r"([vs])(?:(\d+)|\[(\d+):(\d+)\])", text)
    if found is None:
        raise Unknown(f"the operand {text!r}")
    if found[2]:
        return found[1], int(found[2]), 1
    return found[1], int(found[3]), int(found[4]) - int(found[3]) + 1


def is_register(text: str) -> bool:
    """Return True if an operand is a register, not a number."""
    return text in NAMED or text in PAIRS or re.match(r"[vs](\d|\[)", text) is not None


def constant(text: str, kind: str) -> Any:
    """Return the number `0x3fb8aa3b`, `-1` or `0.5` as an operand of this kind."""
    dtype = dtype_of(kind)
    bits = np.dtype(f"uint{8 * dtype.itemsize}").type
    if re.fullmatch(r"-?\d+\.\d*(e[-+]?\d+)?", text):  # the bits of a float, whatever the kind
        return np.array(float(text), f"f{dtype.itemsize}").view(dtype)[()]
    value = int(text, 0)
    return bits(value & (2 ** (8 * dtype.itemsize) - 1)).view(dtype)


def reader(text: str, kind: str, half: int = 0) -> Reader:
    """Return a function that reads an operand: `(waves, 32)`, of a scalar register `(waves, 1)`, or a number.

    `-v1`, `|v1|` and `-|v1|` are understood; `half` is 1 for the upper 16 bits of a register.
    """
    text, negative, absolute = modified(text)
    if not is_register(text):
        number = constant(text, kind)
        number = np.abs(number) if absolute else number
        number = -number if negative else number
        return lambda group: number
    plain = register_reader(text, kind, half)
    if negative and absolute:
        return lambda group: -np.abs(plain(group))
    if negative:
        return lambda group: -plain(group)
    if absolute:
        return lambda group: np.abs(plain(group))
    return plain


def modified(text: str) -> tuple[str, bool, bool]:
    """Return an operand without its modifiers, True if it is negated, and True if its absolute value is taken first."""
    if negative := text.startswith("neg("):
        text = text[4:-1]
    elif text.startswith("-") and not text[1:2].isdigit():
        text, negative = text[1:], True
    absolute = text.startswith(("|", "abs("))
    return text.removeprefix("abs(").strip("|)") if absolute else text, negative, absolute


def register_reader(text: str, kind: str, half: int) -> Reader:
    """Return a function that reads a register."""
    which, first, count = span(text)
    wide, shift = kind in WIDE, np.uint32(16)
    if wide and count != 2:
        raise Unknown(f"{text} as 64 bits")

    def bits(group: Group, number: int) -> Any:
        return group.vector[number][group.waves] if which == "v" else group.scalar[number][group.waves][:, None]

    if kind in NARROW and half:
        return lambda group: read(bits(group, first) >> shift, None, kind)
    if wide:
        return lambda group: read(bits(group, first), bits(group, first + 1), kind)
    if kind == "u32":
        return lambda group: bits(group, first)
    return lambda group: read(bits(group, first), None, kind)


def writer(text: str, kind: str, half: int = 0) -> Callable[[Group, Any], None]:
    """Return a function that writes numbers to a vector register; 16 bits leave the other half as it is."""
    which, first, _ = span(text)
    if which != "v":
        raise Unknown(f"{text} as a vector register")

    def write(group: Group, value: Any) -> None:
        for number, bits in enumerate(written(value, kind), first):
            group.write(number, bits)

    def write_half(group: Group, value: Any) -> None:
        (bits,), before = written(value, kind), group.vector[first][group.waves]
        low, high = (
            (before & np.uint32(0xFFFF), bits << np.uint32(16)) if half else (bits, before & np.uint32(0xFFFF0000))
        )
        group.write(first, low | high)

    return write_half if kind in NARROW else write


def scalar_reader(text: str, kind: str) -> Reader:
    """Return a function that reads an operand of a scalar instruction: `(waves,)` or a number."""
    if text == "scc":
        return lambda group: group.scc[group.waves].astype(np.uint32)
    if not is_register(text):
        number = constant(text, kind)
        return lambda group: number
    which, first, _ = span(text)
    if which != "s":
        raise Unknown(f"{text} as a scalar register")
    if kind in WIDE:
        return lambda group: read(group.scalar[first][group.waves], group.scalar[first + 1][group.waves], kind)
    return lambda group: read(group.scalar[first][group.waves], None, kind)


def scalar_writer(text: str, kind: str) -> Callable[[Group, Any], None]:
    """Return a function that writes the numbers of a scalar instruction."""
    which, first, _ = span(text)
    if which != "s":
        raise Unknown(f"{text} as a scalar register")

    def write(group: Group, value: Any) -> None:
        for number, bits in enumerate(written(value, kind), first):
            group.write_scalar(number, bits)

    return write
