"""Bits as numbers and back: the types of operands, and arithmetic that NumPy rounds differently from the machine.

Registers hold 32 bits. `read` and `written` give them a type: `f32`, `u32`, `i32`; `f16`, `u16`, `i16` (the lower half
of a register); `u64`, `i64`, `f64` (two registers).
"""

from typing import Any

import numpy as np

Bits = Any
"""An array of `uint32`."""

WIDE = ("u64", "i64", "f64")
NARROW = ("f16", "u16", "i16")
KINDS = {"f": "float", "u": "uint", "i": "int"}


def dtype_of(kind: str) -> np.dtype:
    """Return the NumPy type of `f16`, `u64` and so on."""
    return np.dtype(KINDS[kind[0]] + kind[1:])


def read(low: Bits, high: Bits | None, kind: str) -> Any:
    """Return the numbers in registers; `high` is the second register of 64 bits."""
    if kind in WIDE:
        assert high is not None
        return (low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))).view(dtype_of(kind))
    if kind in NARROW:
        return low.astype(np.uint16).view(dtype_of(kind))
    return low.view(dtype_of(kind))


def written(value: Any, kind: str) -> tuple[Bits, ...]:
    """Return the bits of numbers: one array for 32 bits, two for 64; a narrow number fills only the lower half."""
    number = np.asarray(value).astype(dtype_of(kind), copy=False)
    if kind in WIDE:
        wide = number.view(np.uint64)
        return wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)
    if kind in NARROW:
        return (number.view(np.uint16).astype(np.uint32),)
    return (number.view(np.uint32),)


def widened(half: Bits) -> Any:
    """Return bfloat16 in the lower 16 bits as float32."""
    return (half << np.uint32(16)).view(np.float32)


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return `a · b + c` of float32, rounded once.

    The product is exact in float64 and the sum is rounded to 53 bits. Rounding again to 24 is wrong only if the 53 bits
    lie exactly between two float32 numbers: then the part that the first rounding cut off decides.
    """
    product, c = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
    total = product + c
    bits = total.view(np.int64)
    doubtful = ((bits & 0x1FFFFFFF) == 0x10000000) | ((np.abs(total) < 2.0**-125) & (total != 0))
    if doubtful.any():
        part = total - product  # Knuth's two-sum: total + rest = product + c exactly
        rest = (product - (total - part)) + (c - part)
        odd = np.where(
            np.isfinite(total) & (rest != 0) & (bits & 1 == 0), np.where((rest > 0) == (total > 0), 1, -1), 0
        )
        total = (bits + odd).view(np.float64)
    return total.astype(np.float32)


def fma16(a: Any, b: Any, c: Any) -> Any:
    """Return `a · b + c` of float16, rounded once: float64 holds all bits that can decide the rounding."""
    return (np.multiply(a, b, dtype=np.float64) + np.asarray(c, np.float64)).astype(np.float16)


def to_integer(kind: str) -> Any:
    """Return a conversion of floats to `i32` or `u32`: towards zero, clipped to the range, NaN to 0."""
    low, high = np.iinfo(dtype_of(kind)).min, np.iinfo(dtype_of(kind)).max

    def convert(x: Any) -> Any:
        wide = np.nan_to_num(np.trunc(np.asarray(x, np.float64)), nan=0.0, posinf=high, neginf=low)
        return np.clip(wide, low, high).astype(np.int64).astype(dtype_of(kind))

    return convert


# --- Division, in the three steps of AMD's manual ---------------------------------------------------------------


def exponent(x: Any) -> Any:
    """Return the biased exponent of float32."""
    return (np.asarray(x, np.float32).view(np.uint32) >> 23 & 0xFF).astype(np.int32)


def div_scale(s0: Any, s1: Any, s2: Any) -> tuple[Any, Any]:
    """Scale s0, the denominator or numerator of s2 / s1, where the quotient would lose bits; return also the flags.

    Source: RDNA3 ISA, V_DIV_SCALE_F32.
    """
    s0, s1, s2 = np.broadcast_arrays(*(np.asarray(x, np.float32) for x in (s0, s1, s2)))
    up, down = np.ldexp(s0, 64), np.ldexp(s0, -64)
    is_denominator, is_numerator = s0 == s1, s0 == s2
    tiny = np.finfo(np.float32).tiny
    with np.errstate(all="ignore"):
        reciprocal_small = (np.abs(1.0 / s1.astype(np.float64)) < tiny) & (s1 != 0)
        quotient = s2.astype(np.float64) / s1
    quotient_small = (np.abs(quotient) < tiny) & (s2 != 0)
    zero = (s1 == 0) | (s2 == 0)
    far = exponent(s2) - exponent(s1) >= 96
    small_s1 = (np.abs(s1) < tiny) & (s1 != 0)
    cases = [
        (zero, np.full_like(s0, np.nan), False),
        (far, np.where(is_denominator, up, s0), True),
        (small_s1, up, False),
        (reciprocal_small & quotient_small, np.where(is_denominator, down, s0), True),
        (reciprocal_small, down, False),
        (quotient_small, np.where(is_numerator, up, s0), True),
        (exponent(s2) <= 23, up, False),
    ]
    masks = [case[0] for case in cases]
    value = np.select(masks, [case[1] for case in cases], s0)
    return value, np.select(masks, [np.full(s0.shape, case[2]) for case in cases], False)


def div_fixup(s0: Any, s1: Any, s2: Any) -> Any:
    """Return the quotient s0 of s2 / s1, or IEEE 754's for zeros, infinities and NaN. Source: V_DIV_FIXUP_F32."""
    s0, s1, s2 = np.broadcast_arrays(*(np.asarray(x, np.float32) for x in (s0, s1, s2)))
    with np.errstate(all="ignore"):
        ieee = s2 / s1
    negative = np.signbit(s1) != np.signbit(s2)
    special = ~np.isfinite(s1) | ~np.isfinite(s2) | (s1 == 0) | (s2 == 0)
    apart = exponent(s2) - exponent(s1)
    plain = np.where(negative, -np.abs(s0), np.abs(s0))
    plain = np.where(apart < -150, np.copysign(np.float32(0), np.where(negative, -1, 1)), plain)  # below all numbers
    return np.where(special, ieee, plain).astype(np.float32)


def div_fmas(s0: Any, s1: Any, s2: Any, scaled: Any) -> Any:
    """Return `s0 · s1 + s2`, times 2^±64 if the numerator or denominator was scaled. Source: V_DIV_FMAS_F32."""
    plain = fma(s0, s1, s2)
    return np.where(scaled, np.ldexp(plain, np.where(exponent(s2) > 127, 64, -64)), plain)
