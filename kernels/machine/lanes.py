"""Instructions that pass numbers from lane to lane. Source: AMD, RDNA3 ISA, §7.9 (DPP), V_PERMLANEX16_B32."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .assembly import Instruction, Unknown
from .registers import LANES, Group, Step, is_register, reader, scalar_reader, scalar_writer, span, writer

LANE = np.arange(LANES)
ROW, IN_ROW = LANE // 16, LANE % 16


def source_lanes(modifiers: dict[str, str]) -> tuple[Any, Any]:
    """Return for each lane the lane that DPP reads from, and True if there is one."""
    (name, value), *more = ((name, modifiers[name]) for name in PERMUTATIONS if name in modifiers)
    if more:
        raise Unknown(f"two permutations at once: {modifiers}")
    return PERMUTATIONS[name](value)


def _in_row(places: Any) -> tuple[Any, Any]:
    valid = (places >= 0) & (places < 16)
    return np.where(valid, ROW * 16 + places, 0), valid


def _quads(value: str) -> tuple[Any, Any]:
    chosen = np.array([int(lane) for lane in value.strip("[]").split(",")])
    return LANE // 4 * 4 + chosen[LANE % 4], np.ones(LANES, bool)


PERMUTATIONS: dict[str, Callable[[str], tuple[Any, Any]]] = {
    "quad_perm": _quads,
    "row_shl": lambda n: _in_row(IN_ROW + int(n)),
    "row_shr": lambda n: _in_row(IN_ROW - int(n)),
    "row_ror": lambda n: _in_row((IN_ROW - int(n)) % 16),
    "row_mirror": lambda _: _in_row(15 - IN_ROW),
    "row_half_mirror": lambda _: _in_row(IN_ROW // 8 * 8 + 7 - IN_ROW % 8),
    "row_share": lambda n: _in_row(np.full(LANES, int(n))),
    "row_xmask": lambda n: _in_row(IN_ROW ^ int(n, 0)),
}


def permuted(
    instruction: Instruction, read: Callable[[Group], Any], write: Callable[[Group, Any], None]
) -> tuple[Callable[[Group], Any], Callable[[Group, Any], None]]:
    """Return a reader of the first operand from other lanes, and a writer that skips lanes without a source.

    A lane whose source is off, or beyond its row, reads 0 with `bound_ctrl:1`; else it keeps its value.
    """
    modifiers = instruction.modifiers
    source, valid = source_lanes(modifiers)
    rows, banks = (int(modifiers.get(name, "0xf"), 0) for name in ("row_mask", "bank_mask"))
    enabled = (rows >> ROW & 1 == 1) & (banks >> (IN_ROW // 4) & 1 == 1)
    zero, inactive_too = modifiers.get("bound_ctrl") == "1", modifiers.get("fi") == "1"

    def there(group: Group) -> Any:
        on = valid[None] if inactive_too or group.mask is None else group.mask[:, source] & valid
        return np.broadcast_to(on, (group.count, LANES))

    def read_permuted(group: Group) -> Any:
        value = np.broadcast_to(read(group), (group.count, LANES))[:, source]
        return np.where(there(group), value, value.dtype.type(0))

    def write_enabled(group: Group, value: Any) -> None:
        before = group.mask
        on = np.broadcast_to(enabled, (group.count, LANES)) if zero else enabled & there(group)
        group.mask = on if before is None else before & on
        write(group, value)
        group.mask = before

    return read_permuted, write_enabled


def step(instruction: Instruction) -> Step | None:
    """Return a function that executes an instruction between lanes; None for another kind."""
    kinds = {
        "v_readlane_b32": _read_lane, "v_readfirstlane_b32": _read_first_lane, "v_writelane_b32": _write_lane,
        "v_permlane16_b32": _permute_rows, "v_permlanex16_b32": _permute_rows, "ds_bpermute_b32": _gather_lanes,
        "ds_permute_b32": _scatter_lanes, "ds_swizzle_b32": _swizzle,
    }  # fmt: skip
    return kinds[instruction.name](instruction) if instruction.name in kinds else None


def _read_lane(instruction: Instruction) -> Step:
    """Read a lane, even one that is off."""
    into, source, lane = instruction.operands
    write, number, which = scalar_writer(into, "u32"), span(source)[1], scalar_reader(lane, "u32")

    def execute(group: Group) -> None:
        values = group.vector[number][group.waves]
        chosen = np.broadcast_to(which(group) & 31, (group.count,)).astype(np.int64)
        write(group, values[np.arange(group.count), chosen])

    return execute


def _read_first_lane(instruction: Instruction) -> Step:
    """Read the first lane that is on, or lane 0."""
    into, source = instruction.operands
    write, number = scalar_writer(into, "u32"), span(source)[1]

    def execute(group: Group) -> None:
        first = np.argmax(group.lanes(), axis=1)
        write(group, group.vector[number][group.waves][np.arange(group.count), first])

    return execute


def _write_lane(instruction: Instruction) -> Step:
    into, source, lane = instruction.operands
    number, value, which = span(into)[1], scalar_reader(source, "u32"), scalar_reader(lane, "u32")

    def execute(group: Group) -> None:
        chosen = np.broadcast_to(which(group) & 31, (group.count,)).astype(np.int64)
        waves = np.arange(group.vector.shape[1])[group.waves]
        group.vector[number][waves, chosen] = value(group)

    return execute


def _permute_rows(instruction: Instruction) -> Step:
    """Let lane i of a row read the lane in its row, with x in the other, that the i-th 4 bits of two scalars give."""
    into, source, low, high = instruction.operands
    write, read = writer(into, "u32"), reader(source, "u32")
    lows, highs = scalar_reader(low, "u32"), scalar_reader(high, "u32")
    other = instruction.name == "v_permlanex16_b32"
    fetch_inactive, zero = (
        bit == "1" for bit in instruction.modifiers.get("op_sel", "[0,0]").strip("[]").split(",")[:2]
    )

    def execute(group: Group) -> None:
        words = [np.broadcast_to(each(group), (group.count,))[:, None] for each in (lows, highs)]
        chosen = np.where(IN_ROW < 8, words[0], words[1]) >> (4 * (IN_ROW % 8)).astype(np.uint32) & 15
        lane = ((ROW ^ 1 if other else ROW) * 16 + chosen).astype(np.int64)
        value = np.take_along_axis(np.broadcast_to(read(group), (group.count, LANES)), lane, 1)
        there = np.take_along_axis(group.lanes(), lane, 1) if not fetch_inactive else np.ones_like(lane, bool)
        if there.all():
            write(group, value)
        elif zero:
            write(group, np.where(there, value, np.uint32(0)))
        else:
            before = group.mask
            group.mask = there & group.lanes()
            write(group, value)
            group.mask = before

    return execute


def _gather_lanes(instruction: Instruction) -> Step:
    """Let each lane read the lane at its address, in bytes; 0 from a lane that is off."""
    into, address, source = instruction.operands
    write, where, read = writer(into, "u32"), reader(address, "u32"), reader(source, "u32")
    offset = np.uint32(int(instruction.modifiers.get("offset", "0"), 0))

    def execute(group: Group) -> None:
        lane = ((np.broadcast_to(where(group), (group.count, LANES)) + offset) >> np.uint32(2) & 31).astype(np.int64)
        value = np.take_along_axis(np.where(group.lanes(), read(group), np.uint32(0)), lane, 1)
        write(group, value)

    return execute


def _scatter_lanes(instruction: Instruction) -> Step:
    """Let each lane send to the lane at its address; the highest of several senders wins, and without one it is 0."""
    into, address, source = instruction.operands
    write, where, read = writer(into, "u32"), reader(address, "u32"), reader(source, "u32")
    offset = np.uint32(int(instruction.modifiers.get("offset", "0"), 0))

    def execute(group: Group) -> None:
        lane = ((np.broadcast_to(where(group), (group.count, LANES)) + offset) >> np.uint32(2) & 31).astype(np.int64)
        value = np.zeros((group.count, LANES), np.uint32)
        waves, senders = np.nonzero(group.lanes())
        value[waves, lane[waves, senders]] = np.broadcast_to(read(group), lane.shape)[waves, senders]
        write(group, value)

    return execute


def _swizzle(instruction: Instruction) -> Step:
    """Let each lane read the lane `((lane & and) | or) ^ xor`. Raises `Unknown` for other patterns."""
    into, source = instruction.operands
    pattern = int(instruction.modifiers["offset"], 0) if is_register(source) else 0x8000
    if pattern & 0x8000:
        raise Unknown(instruction.text)
    lane = ((LANE & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31)
    write, read = writer(into, "u32"), reader(source, "u32")

    def execute(group: Group) -> None:
        value = np.where(group.lanes(), read(group), np.uint32(0))
        write(group, value[:, lane])

    return execute
