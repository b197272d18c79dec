"""Functions of attention's kernels for a score between the product and the softmax: softcap, bias, ALiBi's slopes.

The functions contain log2(e) as a number: `kernels.hashing` says why.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Bias(NamedTuple):
    """A `(B, H, Tq, Tk)` bias or its gradient as a kernel takes it; the stride of an axis that it lacks is 0."""

    ptr: Any
    stride_b: int
    stride_h: int
    stride_q: int
    stride_k: int


class Slopes(NamedTuple):
    """ALiBi's slope of every head as a kernel takes it; the stride is 0 if all sentences share them."""

    ptr: Any
    stride_b: int


@triton.jit
def tanh(x):
    """Return tanh(x) in float32, near 0 by its series, because 1 − 2/(e^(2x) + 1) has no correct digits there."""
    square = x * x
    series = x + x * square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
    return tl.where(square < 0.09, series, 1 - 2 / (tl.exp2(x * (2 * 1.4426950408889634)) + 1))


@triton.jit
def load_bias(bias, b, h, queries, keys, present):
    """Load the bias in base 2 of queries and keys that broadcast against each other; 0 where they are not present."""
    ptrs = bias.ptr + b * bias.stride_b + h * bias.stride_h
    ptrs += queries.to(tl.int64) * bias.stride_q + keys.to(tl.int64) * bias.stride_k
    return tl.load(ptrs, present, other=0.0).to(tl.float32) * 1.4426950408889634


@triton.jit
def load_slope(slopes, b, h):
    """Load a head's slope in base 2."""
    return tl.load(slopes.ptr + b * slopes.stride_b + h) * 1.4426950408889634


@triton.jit
def distance(positions, keys):
    """Return the distance of keys from queries at `positions`, which broadcast against each other: exact up to 2²⁴."""
    return tl.abs(positions.to(tl.float32) - keys.to(tl.float32))
