"""Vector arithmetic: a number for each lane. Source: AMD, RDNA3 Instruction Set Architecture, §16.7 to 16.12.

The suffixes `_e32` and `_e64` are only encodings of the same instruction; with `_dpp` the lanes of the first operand
are permuted before, and `v_dual_` joins two instructions that both read before either writes.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .assembly import Instruction, Unknown
from .lanes import permuted
from .numbers import div_fixup, div_fmas, div_scale, dtype_of, fma, fma16, to_integer
from .registers import LANES, VCC, Group, Step, lanes_of, modified, reader, span, writer
from .scalar import leading_zeros, reversed_bits

Table = dict[str, tuple[str, Callable[..., Any]]]


def _shift(function: Callable, bits: int) -> Callable[[Any, Any], Any]:
    """Return a shift by the lower bits of the first operand: `v_lshlrev` names the count first."""
    return lambda by, a: function(a, (by & (bits - 1)).astype(a.dtype) if hasattr(by, "astype") else by & (bits - 1))


def _field(a: Any, offset: Any, width: Any) -> Any:
    """Return the `width` bits of a that begin at bit `offset`."""
    return (a >> (offset & 31)) & ((np.uint32(1) << (width & 31)) - np.uint32(1))


def _signed_field(a: Any, offset: Any, width: Any) -> Any:
    sign = np.where((width & 31) == 0, 0, np.uint32(1) << ((width - np.uint32(1)) & 31)).astype(np.uint32)
    return (_field(a, offset, width) ^ sign) - sign


def _byte(number: int) -> Callable[[Any], Any]:
    return lambda a: (a >> np.uint32(8 * number) & 0xFF).astype(np.float32)


def _permuted_bytes(a: Any, b: Any, chosen: Any) -> Any:
    """Choose each byte of the result by a byte of `chosen`: 0 to 3 are the bytes of b, 4 to 7 those of a."""
    a, b, chosen = np.broadcast_arrays(a, b, chosen)
    eight = np.stack([x >> np.uint32(8 * i) & 0xFF for x in (b, a) for i in range(4)])
    signs = [np.where(x & np.uint32(bit), 0xFF, 0) for x in (b, a) for bit in (0x8000, 0x80000000)]
    values = np.concatenate([eight, np.stack(signs), np.zeros((1, *a.shape)), np.full((1, *a.shape), 0xFF)])
    result = np.zeros(a.shape, np.uint32)
    for i in range(4):
        which = np.minimum(chosen >> np.uint32(8 * i) & 0xFF, 13)
        result |= np.take_along_axis(values, which[None].astype(np.int64), 0)[0].astype(np.uint32) << np.uint32(8 * i)
    return result


def _median(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _inserted(a: Any, b: Any, c: Any) -> Any:
    """Return the bits of b where those of a are set, else those of c."""
    return (a & b) | (~a & c)


def _aligned(a: Any, b: Any, c: Any) -> Any:
    """Return 32 bits of the 64 of a and b, from bit c on."""
    return ((a.astype(np.uint64) << np.uint64(32) | b) >> (c & 31).astype(np.uint64)).astype(np.uint32)


def dot2(a: Any, b: Any, c: Any) -> Any:
    """Add `c` and two products of float16 in float64, and round once; the manual leaves the order open."""
    total = np.asarray(c, np.float64)
    for number in (0, 1):
        x, y = ((each >> np.uint32(16 * number)).astype(np.uint16).view(np.float16) for each in (a, b))
        total = total + x.astype(np.float64) * y
    return total.astype(np.float32)


LANE = np.arange(LANES, dtype=np.uint32)

ARITHMETIC: Table = {
    "v_mov_b32": ("u32 u32", lambda a: a + np.uint32(0)),
    "v_add_f32": ("f32 f32 f32", lambda a, b: a + b),
    "v_sub_f32": ("f32 f32 f32", lambda a, b: a - b),
    "v_subrev_f32": ("f32 f32 f32", lambda a, b: b - a),
    "v_mul_f32": ("f32 f32 f32", lambda a, b: a * b),
    "v_max_f32": ("f32 f32 f32", np.fmax),
    "v_min_f32": ("f32 f32 f32", np.fmin),
    "v_max3_f32": ("f32 f32 f32 f32", lambda a, b, c: np.fmax(np.fmax(a, b), c)),
    "v_min3_f32": ("f32 f32 f32 f32", lambda a, b, c: np.fmin(np.fmin(a, b), c)),
    "v_maxmin_f32": ("f32 f32 f32 f32", lambda a, b, c: np.fmin(np.fmax(a, b), c)),
    "v_minmax_f32": ("f32 f32 f32 f32", lambda a, b, c: np.fmax(np.fmin(a, b), c)),
    "v_med3_f32": ("f32 f32 f32 f32", _median),
    "v_fma_f32": ("f32 f32 f32 f32", fma),
    "v_fmamk_f32": ("f32 f32 f32 f32", fma),
    "v_fmaak_f32": ("f32 f32 f32 f32", fma),
    "v_ldexp_f32": ("f32 f32 i32", np.ldexp),
    "v_exp_f32": ("f32 f32", np.exp2),
    "v_log_f32": ("f32 f32", np.log2),
    "v_rcp_f32": ("f32 f32", lambda a: np.float32(1) / a),
    "v_rcp_iflag_f32": ("f32 f32", lambda a: np.float32(1) / a),
    "v_rsq_f32": ("f32 f32", lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(np.float32)),
    "v_sqrt_f32": ("f32 f32", np.sqrt),
    "v_rndne_f32": ("f32 f32", np.rint),
    "v_floor_f32": ("f32 f32", np.floor),
    "v_ceil_f32": ("f32 f32", np.ceil),
    "v_trunc_f32": ("f32 f32", np.trunc),
    "v_fract_f32": ("f32 f32", lambda a: a - np.floor(a)),
    "v_div_fixup_f32": ("f32 f32 f32 f32", div_fixup),
    "v_add_f16": ("f16 f16 f16", lambda a, b: a + b),
    "v_sub_f16": ("f16 f16 f16", lambda a, b: a - b),
    "v_mul_f16": ("f16 f16 f16", lambda a, b: a * b),
    "v_max_f16": ("f16 f16 f16", np.fmax),
    "v_min_f16": ("f16 f16 f16", np.fmin),
    "v_fma_f16": ("f16 f16 f16 f16", fma16),
    # From one type to another.
    "v_cvt_f32_f16": ("f32 f16", lambda a: a.astype(np.float32)),
    "v_cvt_f16_f32": ("f16 f32", lambda a: a.astype(np.float16)),
    "v_cvt_f32_i32": ("f32 i32", lambda a: a.astype(np.float32)),
    "v_cvt_f32_u32": ("f32 u32", lambda a: a.astype(np.float32)),
    "v_cvt_i32_f32": ("i32 f32", to_integer("i32")),
    "v_cvt_u32_f32": ("u32 f32", to_integer("u32")),
    "v_cvt_f64_f32": ("f64 f32", lambda a: a.astype(np.float64)),
    "v_cvt_f32_f64": ("f32 f64", lambda a: a.astype(np.float32)),
    **{f"v_cvt_f32_ubyte{n}": ("f32 u32", _byte(n)) for n in range(4)},
    "v_pack_b32_f16": ("u32 u16 u16", lambda a, b: a.astype(np.uint32) | b.astype(np.uint32) << np.uint32(16)),
    # Integers. What does not fit is cut off.
    "v_add_nc_u32": ("u32 u32 u32", lambda a, b: a + b),
    "v_sub_nc_u32": ("u32 u32 u32", lambda a, b: a - b),
    "v_subrev_nc_u32": ("u32 u32 u32", lambda a, b: b - a),
    "v_add_nc_i32": ("i32 i32 i32", lambda a, b: a + b),
    "v_sub_nc_i32": ("i32 i32 i32", lambda a, b: a - b),
    "v_mul_lo_u32": ("u32 u32 u32", lambda a, b: a * b),
    "v_mul_hi_u32": ("u32 u32 u32", lambda a, b: (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32)),
    "v_mul_hi_i32": ("i32 i32 i32", lambda a, b: (a.astype(np.int64) * b >> np.int64(32)).astype(np.int32)),
    "v_mul_u32_u24": ("u32 u32 u32", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "v_mul_i32_i24": ("i32 i32 i32", lambda a, b: (a << 8 >> 8) * (b << 8 >> 8)),
    "v_mad_u32_u24": ("u32 u32 u32 u32", lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_mad_i32_i24": ("i32 i32 i32 i32", lambda a, b, c: (a << 8 >> 8) * (b << 8 >> 8) + c),
    "v_add3_u32": ("u32 u32 u32 u32", lambda a, b, c: a + b + c),
    "v_add_lshl_u32": ("u32 u32 u32 u32", lambda a, b, c: (a + b) << (c & 31)),
    "v_lshl_add_u32": ("u32 u32 u32 u32", lambda a, b, c: (a << (b & 31)) + c),
    "v_lshl_or_b32": ("u32 u32 u32 u32", lambda a, b, c: (a << (b & 31)) | c),
    "v_and_or_b32": ("u32 u32 u32 u32", lambda a, b, c: (a & b) | c),
    "v_or3_b32": ("u32 u32 u32 u32", lambda a, b, c: a | b | c),
    "v_xor3_b32": ("u32 u32 u32 u32", lambda a, b, c: a ^ b ^ c),
    "v_xad_u32": ("u32 u32 u32 u32", lambda a, b, c: (a ^ b) + c),
    "v_and_b32": ("u32 u32 u32", lambda a, b: a & b),
    "v_or_b32": ("u32 u32 u32", lambda a, b: a | b),
    "v_xor_b32": ("u32 u32 u32", lambda a, b: a ^ b),
    "v_xnor_b32": ("u32 u32 u32", lambda a, b: ~(a ^ b)),
    "v_not_b32": ("u32 u32", lambda a: ~a),
    "v_bfrev_b32": ("u32 u32", reversed_bits),
    "v_bfe_u32": ("u32 u32 u32 u32", _field),
    "v_bfe_i32": ("u32 u32 u32 u32", _signed_field),
    "v_bfi_b32": ("u32 u32 u32 u32", _inserted),
    "v_alignbit_b32": ("u32 u32 u32 u32", _aligned),
    "v_perm_b32": ("u32 u32 u32 u32", _permuted_bytes),
    "v_clz_i32_u32": ("i32 u32", leading_zeros),
    "v_bcnt_u32_b32": ("u32 u32 u32", lambda a, b: np.bitwise_count(a) + b),
    "v_mbcnt_lo_u32_b32": ("u32 u32 u32", lambda a, b: np.bitwise_count(a & ((np.uint32(1) << LANE) - 1)) + b),
    "v_mbcnt_hi_u32_b32": ("u32 u32 u32", lambda a, b: b + np.uint32(0)),  # the upper 32 of 64 lanes
    "v_lshlrev_b32": ("u32 u32 u32", _shift(np.left_shift, 32)),
    "v_lshrrev_b32": ("u32 u32 u32", _shift(np.right_shift, 32)),
    "v_ashrrev_i32": ("i32 u32 i32", _shift(np.right_shift, 32)),
    "v_lshlrev_b64": ("u64 u32 u64", _shift(np.left_shift, 64)),
    "v_lshrrev_b64": ("u64 u32 u64", _shift(np.right_shift, 64)),
    "v_ashrrev_i64": ("i64 u32 i64", _shift(np.right_shift, 64)),
    "v_lshlrev_b16": ("u16 u16 u16", _shift(np.left_shift, 16)),
    "v_lshrrev_b16": ("u16 u16 u16", _shift(np.right_shift, 16)),
    "v_ashrrev_i16": ("i16 u16 i16", _shift(np.right_shift, 16)),
    "v_add_nc_u16": ("u16 u16 u16", lambda a, b: a + b),
    "v_sub_nc_u16": ("u16 u16 u16", lambda a, b: a - b),
    "v_mul_lo_u16": ("u16 u16 u16", lambda a, b: a * b),
    **{f"v_{name}_{kind}": (f"{kind} {kind} {kind}", function)
       for name, function in (("max", np.maximum), ("min", np.minimum))
       for kind in ("i32", "u32", "i16", "u16")},
    **{f"v_{name}3_{kind}": (f"{kind} {kind} {kind} {kind}", lambda a, b, c, f=function: f(f(a, b), c))
       for name, function in (("max", np.maximum), ("min", np.minimum)) for kind in ("i32", "u32")},
    **{f"v_maxmin_{kind}": (f"{kind} {kind} {kind} {kind}", lambda a, b, c: np.minimum(np.maximum(a, b), c))
       for kind in ("i32", "u32")},
    **{f"v_minmax_{kind}": (f"{kind} {kind} {kind} {kind}", lambda a, b, c: np.maximum(np.minimum(a, b), c))
       for kind in ("i32", "u32")},
    **{f"v_med3_{kind}": (f"{kind} {kind} {kind} {kind}", _median) for kind in ("i32", "u32")},
}  # fmt: skip
"""The types of the result and of the operands, and the function, of each instruction."""

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lg": lambda a, b: (a < b) | (a > b), "neq": lambda a, b: ~(a == b), "nlg": lambda a, b: ~((a < b) | (a > b)),
    "nlt": lambda a, b: ~(a < b), "nle": lambda a, b: ~(a <= b),
    "ngt": lambda a, b: ~(a > b), "nge": lambda a, b: ~(a >= b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "u": lambda a, b: np.isnan(a) | np.isnan(b),
}  # fmt: skip
"""The relations of `v_cmp_lt_f32` and its kin; those that begin with n hold for NaN too."""

ACCUMULATING: Table = {
    "v_fmac_f32": ("f32 f32 f32 f32", fma),
    "v_fmac_f16": ("f16 f16 f16 f16", fma16),
    "v_dot2acc_f32_f16": ("f32 u32 u32 f32", dot2),
}
"""Instructions whose result is also their last operand."""


# --- Instructions -----------------------------------------------------------------------------------------------


def step(instruction: Instruction) -> Step | None:
    """Return a function that executes a vector instruction; None for another kind."""
    if not instruction.name.startswith("v_"):
        return None
    if instruction.second is not None:
        halves = [_computed(_single(half)) for half in (instruction._replace(second=None), instruction.second)]
        return None if None in halves else partial(_both, halves)
    computed = _computed(instruction)
    if computed is not None:
        return partial(_alone, *computed)
    return _compare(instruction) or _special(instruction)


Computed = tuple[Callable[[Group], Any], Callable[[Group, Any], None]]
"""The functions that compute an instruction's result and write it."""


def _single(half: Instruction) -> Instruction:
    """Return `v_dual_add_f32` as `v_add_f32`; `v_dual_cndmask_b32` reads vcc without naming it."""
    name = half.name.replace("v_dual_", "v_")
    return half._replace(name=name, operands=(*half.operands, *(["vcc_lo"] if "cndmask" in name else [])))


def _both(halves: list[Computed], group: Group) -> None:
    values = [compute(group) for compute, _ in halves]
    for (_, write), value in zip(halves, values, strict=True):
        write(group, value)


def _alone(compute: Callable[[Group], Any], write: Callable[[Group, Any], None], group: Group) -> None:
    write(group, compute(group))


def base_of(name: str) -> str:
    """Return the name without the suffixes of its encoding."""
    return re.sub(r"(_e32|_e64)?(_dpp)?$", "", name)


def _computed(instruction: Instruction) -> Computed | None:
    """Return the functions of an instruction that is in the tables; None for another."""
    name, operands, modifiers = base_of(instruction.name), instruction.operands, instruction.modifiers
    if name == "v_cndmask_b32":
        return _chosen(instruction), writer(operands[0], "u32")
    if name in ARITHMETIC:
        types, function = ARITHMETIC[name]
    elif name in ACCUMULATING:
        types, function = ACCUMULATING[name]
        operands = *operands, operands[0]
    elif name.startswith("v_fma_mix"):
        return _mixed(name, instruction)
    else:
        return None
    into, *kinds = types.split()
    halves = [int(bit) for bit in modifiers.get("op_sel", "[0,0,0,0]").strip("[]").split(",")]
    read = [reader(text, kind, half) for text, kind, half in zip(operands[1:], kinds, halves, strict=False)]
    if len(read) != len(kinds):
        raise Unknown(f"{instruction.text}: {len(operands)} operands")
    write = writer(operands[0], into, halves[len(kinds)] if len(halves) > len(kinds) else 0)
    if instruction.name.endswith("_dpp"):
        read[0], write = permuted(instruction, read[0], write)

    def compute(group: Group) -> Any:
        return function(*(each(group) for each in read))

    return _clamped(compute, modifiers, into), write


def _clamped(compute: Callable[[Group], Any], modifiers: dict[str, str], kind: str) -> Callable[[Group], Any]:
    """Apply the output's modifiers: times 2, 4 or 1/2, then clamped between 0 and 1."""
    factor = {"mul:2": 2, "mul:4": 4, "div:2": 0.5}.get(
        next((f"{name}:{value}" for name, value in modifiers.items() if name in ("mul", "div")), ""), 1
    )
    if factor == 1 and "clamp" not in modifiers:
        return compute
    if kind[0] != "f":
        raise Unknown(f"clamp of {kind}")

    def changed(group: Group) -> Any:
        value = compute(group) * dtype_of(kind).type(factor)
        return np.fmin(np.fmax(value, 0), 1) if "clamp" in modifiers else value

    return changed


def _chosen(instruction: Instruction) -> Callable[[Group], Any]:
    """Return the function of `v_cndmask_b32`: the second operand where the lane's bit is set, else the first."""
    signed = any(modified(text)[1:] != (False, False) for text in instruction.operands[1:3])
    no, yes = (reader(text, "f32" if signed else "u32") for text in instruction.operands[1:3])
    number = span(instruction.operands[3])[1]
    if instruction.name.endswith("_dpp"):
        raise Unknown(instruction.name)

    def compute(group: Group) -> Any:
        value = np.where(lanes_of(group.scalar[number][group.waves]), yes(group), no(group))
        return value.view(np.uint32) if signed else value

    return compute


def _mixed(name: str, instruction: Instruction) -> Computed:
    """Return the functions of `v_fma_mix`, a · b + c, rounded once.

    Each operand is float32 or, with its bit of op_sel_hi, one half of a register.
    """
    modifiers, operands = instruction.modifiers, instruction.operands
    narrow, high, negative, absolute = (
        [bit == "1" for bit in modifiers.get(key, "[0,0,0]").strip("[]").split(",")]
        for key in ("op_sel_hi", "op_sel", "neg_lo", "neg_hi")
    )
    if any(negative) or any(absolute):
        raise Unknown(instruction.text)
    read = [
        reader(text, "f16" if is_half else "f32", int(upper))
        for text, is_half, upper in zip(operands[1:], narrow, high, strict=True)
    ]

    def compute(group: Group) -> Any:
        values = [np.asarray(each(group), np.float32) for each in read]
        if name == "v_fma_mix_f32":
            return fma(*values)
        return fma(*values).astype(np.float16)  # in float32 first, as the manual says

    kind = "f32" if name == "v_fma_mix_f32" else "f16"
    return compute, writer(operands[0], kind, int(name == "v_fma_mixhi_f16"))


def _compare(instruction: Instruction) -> Step | None:
    """Return a function that executes `v_cmp`, which writes a bit for each lane, or `v_cmpx`, which sets exec."""
    found = re.fullmatch(r"v_(cmpx?)_([a-z]+)_([fiu]\d+)", base_of(instruction.name))
    if found is None or found[2] not in COMPARISONS:
        return _class(instruction)
    into_exec, compare, kind = found[1] == "cmpx", COMPARISONS[found[2]], found[3]
    operands = instruction.operands[-2:]
    number = span("exec_lo" if into_exec else instruction.operands[0])[1]
    a, b = (reader(text, kind) for text in operands)

    def execute(group: Group) -> None:
        group.write_mask(number, compare(a(group), b(group)))

    return execute


def _class(instruction: Instruction) -> Step | None:
    """Return a function that executes `v_cmp_class_f32`: is a number of a chosen class (NaN, infinite, normal, …)?"""
    if base_of(instruction.name) != "v_cmp_class_f32":
        return None
    number, (x, classes) = span(instruction.operands[0])[1], instruction.operands[1:]
    read, wanted = reader(x, "f32"), reader(classes, "u32")

    def execute(group: Group) -> None:
        value = np.broadcast_to(read(group), (group.count, LANES))
        negative, size = np.signbit(value), np.abs(value)
        kinds = [
            np.zeros_like(negative), np.isnan(value), negative & np.isinf(value),
            negative & np.isfinite(value) & (size >= TINY), negative & (size < TINY) & (size > 0),
            negative & (size == 0), ~negative & (size == 0), ~negative & (size < TINY) & (size > 0),
            ~negative & np.isfinite(value) & (size >= TINY), ~negative & np.isinf(value),
        ]  # fmt: skip
        chosen = wanted(group)
        group.write_mask(number, sum((kind & (chosen >> bit & 1 == 1)) for bit, kind in enumerate(kinds)) > 0)

    return execute


TINY = np.finfo(np.float32).tiny


def _special(instruction: Instruction) -> Step | None:
    """Return a function that executes an instruction that also writes or reads a carry or a flag; None for others."""
    name, operands = base_of(instruction.name), instruction.operands
    if name in ("v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32"):
        return _carrying(operands, name, None)
    if name in ("v_add_co_ci_u32", "v_sub_co_ci_u32", "v_subrev_co_ci_u32"):
        return _carrying(operands[:4], name.replace("_ci", ""), operands[4])
    if name in ("v_mad_u64_u32", "v_mad_i64_i32"):
        return _wide_product(operands, "u" if name == "v_mad_u64_u32" else "i")
    if name == "v_div_scale_f32":
        return _scaled(operands)
    if name == "v_div_fmas_f32":
        read, write = [reader(text, "f32") for text in operands[1:]], writer(operands[0], "f32")
        return lambda group: write(
            group, div_fmas(*(each(group) for each in read), lanes_of(group.scalar[VCC][group.waves]))
        )
    return None


def _carrying(operands: tuple[str, ...], name: str, carry_in: str | None) -> Step:
    write, carried = writer(operands[0], "u32"), span(operands[1])[1]
    a, b = (reader(text, "u32") for text in operands[2:4])
    signs = {"v_add_co_u32": (1, 1), "v_sub_co_u32": (1, -1), "v_subrev_co_u32": (-1, 1)}[name]
    carry = span(carry_in)[1] if carry_in else None

    def execute(group: Group) -> None:
        total = np.int64(signs[0]) * a(group) + np.int64(signs[1]) * b(group)
        if carry is not None:
            extra = lanes_of(group.scalar[carry][group.waves])
            total = total + (extra if -1 not in signs else -extra.astype(np.int64))
        write(group, total.astype(np.uint32))
        group.write_mask(carried, (total < 0) | (total >> 32 != 0))

    return execute


def _wide_product(operands: tuple[str, ...], sign: str) -> Step:
    """Multiply 32 bits by 32 and add 64. Raises `Unknown` for an instruction that reads the carry."""
    if operands[1] != "null":
        raise Unknown(f"the carry of a product in {operands[1]}")
    write = writer(operands[0], "u64")
    a, b = (reader(text, sign + "32") for text in operands[2:4])
    c = reader(operands[4], sign + "64")
    wide = np.uint64 if sign == "u" else np.int64

    def execute(group: Group) -> None:
        write(group, (a(group).astype(wide) * b(group).astype(wide) + c(group)).view(np.uint64))

    return execute


def _scaled(operands: tuple[str, ...]) -> Step:
    write, flag = writer(operands[0], "f32"), span(operands[1])[1]
    read = [reader(text, "f32") for text in operands[2:]]

    def execute(group: Group) -> None:
        value, was_scaled = div_scale(*(each(group) for each in read))
        write(group, value)
        group.write_mask(flag, was_scaled)

    return execute
