"""Loads and stores: global memory with the tensors, the shared memory of programs, and the scratch of lanes.

Source: AMD, RDNA3 Instruction Set Architecture, §9 to 12.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .assembly import Instruction, Unknown
from .registers import LANES, Group, Step, reader, scalar_reader, span
from .watch import Fault, Watch, Who

if TYPE_CHECKING:
    from .execute import Machine

SIZES = {"u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "b256": 32,
         "b512": 64}  # fmt: skip
ANOTHER_WAVE, ANOTHER_PROGRAM = "another wave touches with no barrier between", "another program touches"
ACCESS = re.compile(
    r"(?P<where>buffer|global|flat|ds|scratch)_(?P<what>load|store)_(?P<two>2addr_)?(?P<far>stride64_)?"
    r"(?P<before>d16_(?:hi_)?)?(?P<type>[ubi]\d+)(?P<after>_d16(?:_hi)?)?"
)
"""The names of loads and stores: `ds_load_u16_d16_hi`, `buffer_store_d16_hi_b16`, `ds_load_2addr_stride64_b32`, …"""


class Memory:
    """Bytes, and a watch of the waves that touch them."""

    def __init__(self, data: np.ndarray, granule: int, what: str) -> None:
        padded = np.zeros(-(-data.size // 16) * 16 + 16, np.uint8)
        padded[: data.size] = data
        self.size, self.data, self.what = data.size, padded, what
        self.words, self.halves = padded.view(np.uint32), padded.view(np.uint16)
        self.watch = Watch(padded.size, granule)

    def load(self, index: Any, size: int) -> list[Any]:
        """Load the words `(…)` that begin at these bytes; a narrow number fills the lower bits of one."""
        if size == 1:
            return [self.data[index].astype(np.uint32)]
        if size == 2 and not (index & 1).any():
            return [self.halves[index >> 1].astype(np.uint32)]
        if size >= 4 and not (index & 3).any():
            first = index >> 2
            return [self.words[first + i] for i in range(size // 4)]
        parts = self.data[index[..., None] + np.arange(size)]
        filled = np.zeros((*index.shape, -(-size // 4) * 4), np.uint8)
        filled[..., :size] = parts
        words = filled.view(np.uint32)
        return [words[..., i] for i in range(words.shape[-1])]

    def store(self, index: Any, values: list[Any], size: int) -> None:
        """Write words at these bytes."""
        if size == 1:
            self.data[index] = values[0]
        elif size == 2 and not (index & 1).any():
            self.halves[index >> 1] = values[0]
        elif size >= 4 and not (index & 3).any():
            for i, value in enumerate(values):
                self.words[(index >> 2) + i] = value
        else:
            parts = np.ascontiguousarray(np.stack(values, -1)).view(np.uint8)[..., :size]
            self.data[index[..., None] + np.arange(size)] = parts


# --- Instructions -----------------------------------------------------------------------------------------------


def step(instruction: Instruction) -> Step | None:
    """Return a function that executes a load or a store; None for another kind."""
    name = instruction.name
    if found := re.fullmatch(r"s_load_(b\d+)", name):
        return _scalar_load(instruction, SIZES[found[1]])
    found = ACCESS.fullmatch(name)
    if found is None or found["type"] not in SIZES:
        return None
    part = (found["before"] or "") + (found["after"] or "")
    access = Access(instruction, found["type"], "hi" if "hi" in part else "lo" if part else "")
    if found["where"] == "ds":
        places = _shared(instruction, access.size, bool(found["two"]), 64 if found["far"] else 1)
    else:
        places = {"buffer": _buffer, "global": _global, "flat": _global, "scratch": _scratch}[found["where"]]
        places = places(instruction, found["what"] == "store")
    return places(access.load if found["what"] == "load" else access.store)


class Access:
    """One kind of load or store: its width, and the registers that it fills or reads."""

    def __init__(self, instruction: Instruction, kind: str, half: str) -> None:
        self.instruction, self.kind, self.half = instruction, kind, half
        self.size = SIZES[kind]
        self.num_words = -(-self.size // 4)

    def load(self, group: Group, memory: Memory, index: Any, lanes: Any, number: int, outside: Any = None) -> None:
        """Fill registers from `number` on; lanes that are `outside` of a buffer read 0."""
        watched(self, group, memory, index, lanes, None)
        words = memory.load(np.where(lanes, index, 0), self.size)
        for i, word in enumerate(words):
            if self.kind in ("i8", "i16"):
                shift = np.uint32(32 - 8 * self.size)
                word = ((word << shift).view(np.int32) >> shift.astype(np.int32)).view(np.uint32)
            if outside is not None:
                word = np.where(outside, np.uint32(0), word)
            if self.half:
                before = group.vector[number][group.waves]
                low = (before & 0xFFFF) | (word << np.uint32(16))
                word = low if self.half == "hi" else (before & np.uint32(0xFFFF0000)) | (word & 0xFFFF)
            group.write(number + i, word)

    def store(self, group: Group, memory: Memory, index: Any, lanes: Any, number: int, outside: Any = None) -> None:
        """Store registers from `number` on."""
        values = [group.vector[number + i][group.waves][lanes] for i in range(self.num_words)]
        if self.half == "hi":
            values = [values[0] >> np.uint32(16)]
        watched(self, group, memory, index, lanes, values)


def watched(access: Access, group: Group, memory: Memory, index: Any, lanes: Any, values: list[Any] | None) -> None:
    """Check and note an access; with `values`, one for each lane that is on, store them."""
    place = index[lanes]
    if not place.size:
        return
    machine: Machine = group.machine
    granules = max(access.size // memory.watch.granule, 1)
    wide = (place[:, None] // memory.watch.granule + np.arange(granules)).reshape(-1)
    who = Who(*(np.repeat(np.broadcast_to(each[group.waves][:, None], lanes.shape)[lanes], granules)
                for each in (machine.program, machine.wave, machine.phase)))  # fmt: skip
    if values is None:
        racing = memory.watch.loaded(wide, who)
    else:
        before = memory.load(place, access.size)
        memory.store(place, values, access.size)
        disagree = _differ(access.size, values, memory.load(place, access.size)).any(1)
        if disagree.any():
            _refuse(access, group, memory, place, lanes, disagree, _rivals(place, disagree, machine, group, lanes))
        changed = _differ(access.size, before, values).reshape(wide.size, -1).any(1)
        racing = np.zeros(wide.size, bool)
        racing[changed] = memory.watch.stored(wide[changed], who.only(changed))
    if racing.any():
        first = int(np.argmax(racing))
        ledgers = (memory.watch.written, memory.watch.read)[: 1 if values is None else 2]
        foreign = any(ledger.foreign(wide[first : first + 1], who.only([first]))[0] for ledger in ledgers)
        verb = "reads" if values is None else "writes"
        why = f"{verb} what {ANOTHER_PROGRAM if foreign else ANOTHER_WAVE}"
        _refuse(access, group, memory, place, lanes, racing.reshape(-1, granules).any(1), why)


def _differ(size: int, words: list[Any], others: list[Any]) -> Any:
    """Return True, `(lanes, bytes)`, where two lists of words, of which `size` bytes count, differ."""
    one, other = (np.ascontiguousarray(np.stack(each, -1)).view(np.uint8)[:, :size] for each in (words, others))
    return one != other


def _rivals(place: Any, disagree: Any, machine: "Machine", group: Group, lanes: Any) -> str:
    """Name the other writer of a place that was written twice: a lane of the wave, another wave, another program."""
    numbers = np.arange(machine.num_waves)[group.waves][np.nonzero(lanes)[0]]
    last = dict(zip(place.tolist(), numbers.tolist(), strict=True))
    winners = np.array([last[each] for each in place[disagree].tolist()])
    if (winners == numbers[disagree]).any():
        return "disagrees with another lane about what to write"
    if (machine.program[winners] == machine.program[numbers[disagree]]).any():
        return f"writes what {ANOTHER_WAVE}"
    return f"writes what {ANOTHER_PROGRAM}"


def _refuse(access: Access, group: Group, memory: Memory, place: Any, lanes: Any, which: Any, why: str) -> NoReturn:
    """Raise a `Fault` about the first of the lanes concerned."""
    waves, numbers = np.nonzero(lanes)
    first = int(np.argmax(which))
    at = int(place[first])
    raise group.machine.fault(access.instruction, group, int(waves[first]), int(numbers[first]), why, memory, at)


Places = Callable[[Callable[..., None]], Step]


def _global(instruction: Instruction, is_store: bool) -> Places:
    """Address global memory by two registers, or by 32 bits and a scalar base."""
    operands = instruction.operands
    data, address = (operands[1], operands[0]) if is_store else (operands[0], operands[1])
    offset = np.int64(int(instruction.modifiers.get("offset", "0"), 0))
    number = span(data)[1]
    if operands[2] == "off" or len(operands) < 3:
        read = reader(address, "i64")
    else:
        low, base = reader(address, "u32"), reader(operands[2], "i64")
        read = lambda group: base(group) + low(group).astype(np.int64)  # noqa: E731 - as the other branch

    def places(act: Callable[..., None]) -> Step:
        def execute(group: Group) -> None:
            address = np.broadcast_to(read(group) + offset, (group.count, LANES))
            lanes = group.lanes()
            index = group.machine.index(instruction, group, address, lanes, SIZES[_type(instruction)])
            act(group, group.machine.memory, index, lanes, number)

        return execute

    return places


def _type(instruction: Instruction) -> str:
    found = ACCESS.fullmatch(instruction.name)
    assert found is not None
    return found["type"]


def _buffer(instruction: Instruction, is_store: bool) -> Places:
    """Address a buffer that four scalar registers describe by an offset; nothing beyond its size is touched."""
    data, address, resource, scalar = instruction.operands
    offset = np.int64(int(instruction.modifiers.get("offset", "0"), 0))
    number, size, modifiers = span(data)[1], SIZES[_type(instruction)], instruction.modifiers
    if "idxen" in modifiers:
        raise Unknown(instruction.text)
    first = span(resource)[1]
    low = reader(address, "u32") if "offen" in modifiers else None
    extra = scalar_reader(scalar, "u32")

    def places(act: Callable[..., None]) -> Step:
        def execute(group: Group) -> None:
            words = [group.scalar[first + i][group.waves].astype(np.int64)[:, None] for i in range(3)]
            base, num_bytes = words[0] | (words[1] & 0xFFFF) << 32, words[2]
            within = offset + (low(group).astype(np.int64) if low else 0)
            within = np.broadcast_to(within, (group.count, LANES))
            outside = within + size > num_bytes
            lanes = group.lanes() & ~outside
            shift = np.broadcast_to(extra(group), (group.count,)).astype(np.int64)[:, None]
            index = group.machine.index(instruction, group, base + within + shift, lanes, size)
            act(group, group.machine.memory, index, lanes, number, outside)

        return execute

    return places


def _shared(instruction: Instruction, size: int, two: bool, stride: int) -> Places:
    """Address the program's shared memory; with `2addr` by two offsets, in units of the access."""
    operands, modifiers = instruction.operands, instruction.modifiers
    is_store = "_store_" in instruction.name
    address = reader(operands[0] if is_store else operands[1], "u32")
    names = ("offset0", "offset1") if two else ("offset",)
    unit = size * stride if two else 1
    offsets = [np.int64(int(modifiers.get(name, "0"), 0) * unit) for name in names]
    words = -(-size // 4)
    if is_store:
        numbers = [span(operand)[1] for operand in operands[1 : 1 + len(names)]]
    else:
        numbers = [span(operands[0])[1] + words * i for i in range(len(names))]

    def places(act: Callable[..., None]) -> Step:
        def execute(group: Group) -> None:
            machine: Machine = group.machine
            where = np.broadcast_to(address(group).astype(np.int64), (group.count, LANES))  # a load may fill it
            lanes = group.lanes()
            for offset, number in zip(offsets, numbers, strict=True):
                within = where + offset
                beyond = lanes & (within + size > machine.shared_size)
                if beyond.any():
                    wave, lane = (int(each[0]) for each in np.nonzero(beyond))
                    why = f"touches byte {within[wave, lane]} of {machine.shared_size} of shared memory"
                    raise machine.fault(instruction, group, wave, lane, why)
                index = within + machine.shared_base[group.waves][:, None]
                act(group, machine.shared, index, lanes, number)

        return execute

    return places


def _scratch(instruction: Instruction, is_store: bool) -> Places:
    """Address a lane's own bytes, to which the compiler spills registers."""
    operands = instruction.operands
    data, address = (operands[1], operands[0]) if is_store else (operands[0], operands[1])
    offset, number = np.int64(int(instruction.modifiers.get("offset", "0"), 0)), span(data)[1]
    size = SIZES[_type(instruction)]
    low = reader(address, "u32") if address != "off" else None
    base = scalar_reader(operands[2], "u32") if operands[2] != "off" else None

    def places(act: Callable[..., None]) -> Step:
        def execute(group: Group) -> None:
            machine: Machine = group.machine
            within = offset + (low(group).astype(np.int64) if low else 0)
            within = within + (np.broadcast_to(base(group), (group.count,))[:, None].astype(np.int64) if base else 0)
            within = np.broadcast_to(within, (group.count, LANES))
            if (within + size > machine.scratch_size).any():
                raise Fault(f"{instruction.text}: beyond the {machine.scratch_size} bytes of scratch")
            waves = np.arange(machine.num_waves)[group.waves][:, None]
            index = (waves * LANES + np.arange(LANES)) * machine.scratch_size + within
            act(group, machine.scratch, index, group.lanes(), number)

        return execute

    return places


def _scalar_load(instruction: Instruction, size: int) -> Step:
    """Load words of the kernel's arguments, or of a tensor, the same for a whole wave."""
    into, base, offset = instruction.operands
    first, address = span(into)[1], scalar_reader(base, "i64")
    extra = np.int64(int(instruction.modifiers.get("offset", "0"), 0))
    more = scalar_reader(offset, "u32")

    def execute(group: Group) -> None:
        machine: Machine = group.machine
        where = np.broadcast_to(address(group) + extra + more(group).astype(np.int64), (group.count,))
        for i, word in enumerate(machine.scalar_words(instruction, group, where, size // 4)):
            group.write_scalar(first + i, word)

    return execute
