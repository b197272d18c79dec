"""Scalar instructions: a number for each wave. Source: AMD, RDNA3 Instruction Set Architecture, §16.1 to 16.5."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .assembly import Instruction
from .registers import EXEC, Group, Step, scalar_reader, scalar_writer

one = np.uint32(1)


def _overflow(total: Any, a: Any, b: Any) -> Any:
    return ((total ^ a) & (total ^ b)) < 0  # the sum's sign is neither's


def _add(a: Any, b: Any) -> tuple[Any, Any]:
    return a + b, _overflow(a + b, a, b)


def _subtract(a: Any, b: Any) -> tuple[Any, Any]:
    return a - b, _overflow(a - b, a, ~b)


def _add_unsigned(a: Any, b: Any) -> tuple[Any, Any]:
    return a + b, (a + b) < a


def _shift_add(bits: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    def compute(a: Any, b: Any) -> tuple[Any, Any]:
        total = (np.uint64(1) * a << np.uint64(bits)) + b
        return total.astype(np.uint32), total >> np.uint64(32) != 0

    return compute


def _bit_field(kind: str) -> Callable[[Any, Any], Any]:
    """Return a function that takes b[22:16] bits of a from bit b[4:0] on; if signed, the highest is the sign."""

    def compute(a: Any, b: Any) -> Any:
        offset, width = (b & 31).astype(np.int64), (b.astype(np.uint32) >> 16 & 0x7F).astype(np.int64)
        field = (a.astype(np.uint32).astype(np.int64) >> offset) & ((1 << np.minimum(width, 32)) - 1)
        sign = (field >> np.maximum(width - 1, 0)) & 1 if kind == "i32" else 0
        return (field - (sign << width)).astype(np.uint32)

    return compute


def _ones(a: Any) -> Any:
    return np.bitwise_count(a).astype(np.uint32)


def _first_one(a: Any) -> Any:
    """Return the number of the lowest bit that is set, −1 if none is."""
    return np.where(a == 0, np.int32(-1), np.bitwise_count((a & -a) - one).astype(np.int32))


def leading_zeros(a: Any) -> Any:
    """Return the number of zeros above the highest bit that is set, −1 if none is."""
    return np.where(a == 0, -1, 32 - np.frexp(a.astype(np.float64))[1]).astype(np.int32)


PLAIN: dict[str, tuple[str, Callable[..., Any]]] = {
    "s_mov_b32": ("u32 u32", lambda a: a),
    "s_mov_b64": ("u64 u64", lambda a: a),
    "s_movk_i32": ("i32 i16", lambda a: a),
    "s_mul_i32": ("u32 u32 u32", lambda a, b: a * b),
    "s_mulk_i32": ("i32 i32 i16", lambda a, b: a * b),
    "s_mul_hi_u32": ("u32 u32 u32", lambda a, b: a * np.uint64(1) * b >> np.uint64(32)),
    "s_mul_hi_i32": ("i32 i32 i32", lambda a, b: a * np.int64(1) * b >> np.int64(32)),
    "s_sext_i32_i16": ("i32 i16", lambda a: a),
    "s_sext_i32_i8": ("i32 u32", lambda a: a.astype(np.int8)),
    "s_brev_b32": ("u32 u32", lambda a: reversed_bits(a)),
    "s_ctz_i32_b32": ("i32 u32", _first_one),
    "s_clz_i32_u32": ("i32 u32", leading_zeros),
    "s_bfm_b32": ("u32 u32 u32", lambda a, b: ((one << (a & 31)) - one) << (b & 31)),
    "s_pack_ll_b32_b16": ("u32 u32 u32", lambda a, b: (a & 0xFFFF) | (b << 16)),
    "s_pack_lh_b32_b16": ("u32 u32 u32", lambda a, b: (a & 0xFFFF) | (b & 0xFFFF0000)),
    "s_pack_hh_b32_b16": ("u32 u32 u32", lambda a, b: (a >> 16) | (b & 0xFFFF0000)),
}
"""Instructions that leave scc as it is: the types of the result and of the operands, and the function."""

NONZERO: dict[str, tuple[str, Callable[..., Any]]] = {
    **{f"s_and_b{n}": (f"u{n} u{n} u{n}", lambda a, b: a & b) for n in (32, 64)},
    **{f"s_or_b{n}": (f"u{n} u{n} u{n}", lambda a, b: a | b) for n in (32, 64)},
    **{f"s_xor_b{n}": (f"u{n} u{n} u{n}", lambda a, b: a ^ b) for n in (32, 64)},
    **{f"s_and_not1_b{n}": (f"u{n} u{n} u{n}", lambda a, b: a & ~b) for n in (32, 64)},
    **{f"s_or_not1_b{n}": (f"u{n} u{n} u{n}", lambda a, b: a | ~b) for n in (32, 64)},
    **{f"s_nand_b{n}": (f"u{n} u{n} u{n}", lambda a, b: ~(a & b)) for n in (32, 64)},
    **{f"s_nor_b{n}": (f"u{n} u{n} u{n}", lambda a, b: ~(a | b)) for n in (32, 64)},
    **{f"s_xnor_b{n}": (f"u{n} u{n} u{n}", lambda a, b: ~(a ^ b)) for n in (32, 64)},
    **{f"s_not_b{n}": (f"u{n} u{n}", lambda a: ~a) for n in (32, 64)},
    **{f"s_lshl_b{n}": (f"u{n} u{n} u32", lambda a, b, n=n: a << (b & (n - 1)).astype(a.dtype)) for n in (32, 64)},
    **{f"s_lshr_b{n}": (f"u{n} u{n} u32", lambda a, b, n=n: a >> (b & (n - 1)).astype(a.dtype)) for n in (32, 64)},
    **{f"s_ashr_i{n}": (f"i{n} i{n} u32", lambda a, b, n=n: a >> (b & (n - 1)).astype(a.dtype)) for n in (32, 64)},
    "s_abs_i32": ("i32 i32", np.abs),
    "s_bfe_u32": ("u32 u32 u32", _bit_field("u32")),
    "s_bfe_i32": ("i32 i32 u32", _bit_field("i32")),
    "s_bcnt1_i32_b32": ("u32 u32", _ones),
}
"""Instructions that set scc if the result is not zero."""

FLAGGED: dict[str, tuple[str, Callable[..., Any]]] = {
    "s_add_u32": ("u32 u32 u32", _add_unsigned),
    "s_sub_u32": ("u32 u32 u32", lambda a, b: (a - b, b > a)),
    "s_add_i32": ("i32 i32 i32", _add),
    "s_addk_i32": ("i32 i32 i16", lambda a, b: _add(a, np.int32(b))),
    "s_sub_i32": ("i32 i32 i32", _subtract),
    **{f"s_lshl{n}_add_u32": ("u32 u32 u32", _shift_add(n)) for n in (1, 2, 3, 4)},
    **{f"s_max_{kind}": (f"{kind} {kind} {kind}", lambda a, b: (np.maximum(a, b), a >= b)) for kind in ("i32", "u32")},
    **{f"s_min_{kind}": (f"{kind} {kind} {kind}", lambda a, b: (np.minimum(a, b), a < b)) for kind in ("i32", "u32")},
}
"""Instructions that compute scc beside their result: an overflow, a carry, or that the first operand was taken."""

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip

COMPARED: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    **{f"s_cmp_{name}_{kind}": (f"{kind} {kind}", RELATIONS[name]) for name in RELATIONS for kind in ("i32", "u32")},
    **{
        f"s_cmpk_{name}_{kind}": (f"{kind} {kind[0]}16", RELATIONS[name])
        for name in RELATIONS
        for kind in ("i32", "u32")
    },
    **{f"s_cmp_{name}_u64": ("u64 u64", RELATIONS[name]) for name in ("eq", "lg")},
    "s_bitcmp0_b32": ("u32 u32", lambda a, b: a >> (b & 31) & 1 == 0),
    "s_bitcmp1_b32": ("u32 u32", lambda a, b: a >> (b & 31) & 1 == 1),
}
"""Instructions whose only result is scc."""

SAVING: dict[str, Callable[[Any, Any], Any]] = {
    "s_and_saveexec_b32": lambda source, on: source & on,
    "s_or_saveexec_b32": lambda source, on: source | on,
    "s_xor_saveexec_b32": lambda source, on: source ^ on,
    "s_and_not0_saveexec_b32": lambda source, on: ~source & on,
    "s_and_not1_saveexec_b32": lambda source, on: source & ~on,
}
"""Instructions that keep exec in their result and compute a new one."""


def reversed_bits(a: Any) -> Any:
    """Return the 32 bits of each number in reverse order."""
    bits = np.unpackbits(np.ascontiguousarray(a).view(np.uint8), bitorder="little").reshape(*np.shape(a), 32)
    return np.packbits(bits[..., ::-1], axis=-1, bitorder="little").view(np.uint32).reshape(np.shape(a))


def step(instruction: Instruction) -> Step | None:
    """Return a function that executes a scalar instruction; None for another kind."""
    name, operands = instruction.name, instruction.operands
    for table, execute in ((PLAIN, _plain), (NONZERO, _nonzero), (FLAGGED, _flagged)):
        if name in table:
            types, function = table[name]
            into, *kinds = types.split()
            if name in ("s_addk_i32", "s_mulk_i32"):
                operands = operands[0], *operands
            read = [scalar_reader(text, kind) for text, kind in zip(operands[1:], kinds, strict=True)]
            return execute(scalar_writer(operands[0], into), read, function)
    if name in COMPARED:
        types, function = COMPARED[name]
        read = [scalar_reader(text, kind) for text, kind in zip(operands, types.split(), strict=True)]
        return _compared(read, function)
    if name in SAVING:
        return _saving(scalar_writer(operands[0], "u32"), scalar_reader(operands[1], "u32"), SAVING[name])
    special = {
        "s_cselect_b32": _select, "s_cselect_b64": _select, "s_cmov_b32": _move,
        "s_addc_u32": _add_with_carry, "s_subb_u32": _subtract_with_borrow,
    }  # fmt: skip
    return special[name](instruction) if name in special else None


def _plain(write: Callable, read: list, function: Callable) -> Step:
    def execute(group: Group) -> None:
        write(group, function(*(each(group) for each in read)))

    return execute


def _nonzero(write: Callable, read: list, function: Callable) -> Step:
    def execute(group: Group) -> None:
        value = function(*(each(group) for each in read))
        write(group, value)
        group.scc[group.waves] = value != 0

    return execute


def _flagged(write: Callable, read: list, function: Callable) -> Step:
    def execute(group: Group) -> None:
        value, flag = function(*(each(group) for each in read))
        write(group, value)
        group.scc[group.waves] = flag

    return execute


def _compared(read: list, function: Callable) -> Step:
    def execute(group: Group) -> None:
        group.scc[group.waves] = function(*(each(group) for each in read))

    return execute


def _saving(write: Callable, read: Callable, function: Callable) -> Step:
    def execute(group: Group) -> None:
        before, source = group.scalar[EXEC][group.waves].copy(), read(group)
        group.write_scalar(EXEC, function(source, before))
        write(group, before)
        group.scc[group.waves] = group.scalar[EXEC][group.waves] != 0

    return execute


def _select(instruction: Instruction) -> Step:
    kind = "u" + instruction.name[-2:]
    write = scalar_writer(instruction.operands[0], kind)
    yes, no = (scalar_reader(text, kind) for text in instruction.operands[1:])

    def execute(group: Group) -> None:
        write(group, np.where(group.scc[group.waves], yes(group), no(group)))

    return execute


def _move(instruction: Instruction) -> Step:
    write = scalar_writer(instruction.operands[0], "u32")
    yes, no = (scalar_reader(text, "u32") for text in (instruction.operands[1], instruction.operands[0]))

    def execute(group: Group) -> None:
        write(group, np.where(group.scc[group.waves], yes(group), no(group)))

    return execute


def _add_with_carry(instruction: Instruction) -> Step:
    return _with_carry(instruction, lambda a, b, carry: a + b + carry)


def _subtract_with_borrow(instruction: Instruction) -> Step:
    return _with_carry(instruction, lambda a, b, borrow: a - b - borrow)


def _with_carry(instruction: Instruction, function: Callable) -> Step:
    write = scalar_writer(instruction.operands[0], "u32")
    read = [scalar_reader(text, "u32") for text in instruction.operands[1:]]

    def execute(group: Group) -> None:
        total = function(*(np.int64(1) * each(group) for each in read), group.scc[group.waves])
        write(group, total.astype(np.uint32))
        group.scc[group.waves] = total >> 32 != 0

    return execute
