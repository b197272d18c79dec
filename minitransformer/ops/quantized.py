"""Weights in eight or four bits, and the affine map that computes with them as they are.

A model that answers reads every weight once for each token, so its speed is the speed of memory, and its size what
memory holds: float32 takes 32 bits for a weight. Here it takes 8 or 4, and is unpacked where it is used. (A kernel
unpacks in registers and gains time, too. NumPy unpacks more slowly than it reads: it gains memory alone.)

Eight bits tell 256 numbers apart, four bits 16. If all weights of a matrix shared the same levels, the largest weight
would set their distance, and most weights would round to 0. So the weights of an output are cut into groups of 32 along
C_in, and each group has levels of its own, at equal distances d, its scale:

    bits  symmetric   a weight is     q is            d is                     as GGUF's
    8     yes         d·q             −127, …, 127    max |weight| / 127       Q8_0
    4     yes         d·(q − 8)       0, …, 15        the farthest of 0 / −8   Q4_0
    4     no          d·q + m         0, …, 15        (max − min) / 15         Q4_1
    8     no          d·q + m         0, …, 255       (max − min) / 255

m is the group's minimum, so no level is wasted where the weights of a group lie on one side of 0. d and m are float16.
They add to the bits: a weight in four takes 4 + (16 + 16)/32 = 5.

The error. A weight becomes the nearest level, so it is wrong by at most half a step, d/2. Q4_0's levels end at −8d and
7d, so a weight opposite to the farthest can be wrong by a whole step. The rounding of d and m to float16's 11 binary
digits adds at most 2⁻¹¹ (q·d + |m|), and more where d is below 6e-5, float16's smallest normal number.

In the bytes of a group of 4 bits, byte j holds weight j in its lower half and weight j + group/2 in its upper half.
Sources: Dettmers et al. 2022, LLM.int8(), §2.1; Dettmers et al. 2023, QLoRA, §2; llama.cpp, whose files GGUF are.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from .arguments import (
    Array,
    Declaration,
    arguments,
    check_array,
    check_flag,
    check_ids,
    check_integer,
    checked_by,
    gradient_of,
)
from .arrays import column_sums

AT_ONCE = 1 << 18
"""Weights that are unpacked at a time: a megabyte in float32, which stays in a processor's cache."""


@dataclass(frozen=True, eq=False)
class Quantized:
    """A weight `(C_in, C_out)` in few bits: `quantize` makes it, an op unpacks a few of its columns at a time.

    packed  `(C_out, C_in/group, group·bits/8)`: the numbers q, int8 where 8 bits are symmetric, else uint8
    scales  `(C_out, C_in/group)`, float16: d of each group
    zeros   `(C_out, C_in/group)`, float16: m of each group; `None` where the levels are symmetric about 0
    bits    8 or 4
    """

    packed: Array
    scales: Array
    zeros: Array | None
    bits: int

    @property
    def group(self) -> int:
        """How many weights share a scale."""
        return self.packed.shape[2] * 8 // self.bits

    @property
    def shape(self) -> tuple[int, int]:
        """`(C_in, C_out)`, as of the weight that it stands for."""
        return self.packed.shape[1] * self.group, self.packed.shape[0]

    @property
    def nbytes(self) -> int:
        """The bytes of its numbers, scales and zeros."""
        return self.packed.nbytes + self.scales.nbytes + (0 if self.zeros is None else self.zeros.nbytes)

    def mapped(self, function: Callable[[Array], Array]) -> "Quantized":
        """Return the weight whose arrays are what the function makes of these, such as copies on a device."""
        zeros = None if self.zeros is None else function(self.zeros)
        return replace(self, packed=function(self.packed), scales=function(self.scales), zeros=zeros)


def check_bits(name: str, bits: Any) -> None:
    """Raise `TypeError` or `ValueError` unless the value is 4 or 8."""
    check_integer(name, bits)
    if bits not in (4, 8):
        raise ValueError(f"{name} is {bits}, expected 4 or 8")


@arguments("weight C_in C_out", bits=check_bits, group=partial(check_integer, at_least=1), symmetric=check_flag)
def quantize(weight: Array, bits: int = 8, group: int = 32, symmetric: bool | None = None) -> Quantized:
    """Round a weight `(C_in, C_out)` to `bits` bits, in groups along C_in. The module's docstring has the formulas.

    bits       8 or 4
    group      weights that share a scale: it divides C_in, and is even for 4 bits
    symmetric  whether the levels lie about 0, without a minimum; `None`: in 8 bits they do, in 4 they do not
    Raises `ValueError` for a group that does not divide C_in, and for numbers whose scale is beyond float16.
    """
    width_in, width_out = weight.shape
    if group % (8 // bits):
        raise ValueError(f"group is {group}, expected an even number: two weights of 4 bits share a byte")
    if width_in % group:
        raise ValueError(f"weight has shape {weight.shape}, expected a multiple of group, {group}, as C_in")
    symmetric, count = bits == 8 if symmetric is None else symmetric, max(1, AT_ONCE // max(1, width_in))
    starts = range(0, max(1, width_out), count)  # rounding takes several times the memory of what is rounded
    return side_by_side([_rounded(weight[:, start : start + count], bits, group, symmetric) for start in starts])


def side_by_side(weights: list[Quantized]) -> Quantized:
    """Return weights of the same form, whose columns stand side by side, as one."""
    first, *_ = weights
    packed, scales = (np.concatenate([getattr(each, name) for each in weights]) for name in ("packed", "scales"))
    zeros = None if first.zeros is None else np.concatenate([cast(Array, each.zeros) for each in weights])
    return Quantized(packed, scales, zeros, first.bits)


def _rounded(weight: Array, bits: int, group: int, symmetric: bool) -> Quantized:
    width_in, width_out = weight.shape
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        groups = weight.T.astype(np.float32, order="C").reshape(width_out, width_in // group, group)
        low = None if symmetric else groups.min(axis=-1, keepdims=True)
        if low is not None:
            steps = (groups.max(axis=-1, keepdims=True) - low) / np.float32(2**bits - 1)
        else:
            farthest = np.take_along_axis(groups, abs(groups).argmax(axis=-1, keepdims=True), axis=-1)
            steps = abs(farthest) / np.float32(127) if bits == 8 else farthest / np.float32(-8)
        scales, zeros = steps[..., 0].astype(np.float16), None if low is None else low[..., 0].astype(np.float16)
        if not np.isfinite(scales if zeros is None else (scales, zeros)).all():
            most = abs(weight).max()
            raise ValueError(f"weight holds numbers up to {most:g}, expected finite ones with scales within float16")
        inverse = np.where(scales[..., None] == 0, 0, 1 / steps)  # all weights alike, or too small for float16
    if symmetric and bits == 8:
        numbers = groups * inverse
        numbers += np.copysign(np.float32(0.5), numbers)  # and cut off: halves go away from 0, as C's roundf rounds
        return Quantized(numbers.astype(np.int8), scales, zeros, bits)
    numbers = (groups if low is None else groups - low) * inverse + np.float32(8.5 if symmetric else 0.5)
    levels = np.minimum(numbers.astype(np.int32), 2**bits - 1).astype(np.uint8)
    return Quantized(_packed(levels) if bits == 4 else levels, scales, zeros, bits)


def _packed(levels: Array) -> Array:
    """Put two numbers below 16 into a byte: `(…, group)` → `(…, group/2)`; `fields` takes them out."""
    half = levels.shape[-1] // 2
    return levels[..., :half] | levels[..., half:] << 4


def fields(packed: Array, bits: int) -> Array:
    """Cut bytes into numbers of so many bits: the lowest bits of all bytes come first.

    packed: `(…, k)`, uint8. Returns `(…, k · 8/bits)`. With bits=4, byte 0x2B is the numbers 11 (B) and, k places
    later, 2.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    numbers = (packed[..., None, :] >> shifts) & np.uint8((1 << bits) - 1)  # (…, 8/bits, k)
    return numbers.reshape(*packed.shape[:-1], packed.shape[-1] * (8 // bits))  # not −1: k may be 0


def unpacked(packed: Array, bits: int, scales: Array, zeros: Array | None = None) -> Array:
    """Return the weights of groups in float32, `(…, group)`: `d·q + m`, without m `d·q` or, in four bits, `d·(q − 8)`.

    packed: `(…, group·bits/8)`; scales d and zeros m: `(…, 1)`. The arithmetic is that of llama.cpp, to the last bit.
    """
    q = (packed if bits == 8 else fields(packed, bits)).astype(np.float32)
    d = scales.astype(np.float32)
    if zeros is None:
        return d * (q - 8 if bits == 4 else q)
    return d * q + zeros.astype(np.float32)


def columns(weight: Quantized) -> Iterator[tuple[slice, Array]]:
    """Yield a few columns after the other: which they are, and they themselves as rows, `(columns, C_in)`, float32."""
    width_in, width_out = weight.shape
    count = max(1, AT_ONCE // max(1, width_in))
    for start in range(0, width_out, count):
        part = slice(start, min(start + count, width_out))
        yield part, _rows(weight, part)


def _rows(weight: Quantized, which: Any) -> Array:
    """Return the columns that an index chooses, each as a row `(..., C_in)`, in float32."""
    zeros = None if weight.zeros is None else weight.zeros[which][..., None]
    groups = unpacked(weight.packed[which], weight.bits, weight.scales[which][..., None], zeros)
    return groups.reshape(*groups.shape[:-2], weight.shape[0])


def quantized_rows(weight: Quantized, ids: Array) -> Array:
    """Return rows of the table `(V, C)` that is held as a weight `(C, V)`: ids `(...)` → `(..., C)`, in float32."""
    check_quantized("weight", weight)
    check_ids("ids", check_array("ids", ids), weight.shape[1])
    return _rows(weight, ids)


def dequantize(quantized: Quantized) -> Array:
    """Return the weight `(C_in, C_out)` that a `Quantized` stands for, in float32."""
    check_quantized("quantized", quantized)
    weight = np.empty(quantized.shape, np.float32)
    for part, rows in columns(quantized):
        weight[:, part] = rows.T
    return weight


def check_quantized(name: str, value: Any, check: Callable[[str, Any], Any] = check_array) -> None:
    """Raise `TypeError` unless the value is a `Quantized`, of NumPy's arrays or what else passes `check`."""
    if not isinstance(value, Quantized):
        raise TypeError(f"{name} must be a Quantized, which quantize makes, got {type(value).__name__}")
    check(f"{name}'s packed", value.packed)


LINEAR = Declaration.read("x ... C_in, weight C_in C_out, bias? C_out", {})


def _check(given: Mapping[str, Any]) -> None:
    """Check a call as `linear_forward`'s: an array of the weight's shape, without memory, stands for it."""
    if given.keys() >= {"x", "weight"}:
        check_quantized("weight", given["weight"])
        dtype = check_array("x", given["x"]).dtype
        LINEAR.check({**given, "weight": np.broadcast_to(np.empty((), dtype), given["weight"].shape)})


@partial(checked_by, _check, products=True)
def quantized_linear_forward(x: Array, weight: Quantized, bias: Array | None) -> tuple[Array, tuple]:
    """`y = x @ dequantize(weight) + bias`, without the whole matrix: a few columns are unpacked at a time.

    x `(..., C_in)`, weight a `Quantized` of shape `(C_in, C_out)`, bias `(C_out,)` or `None`; y `(..., C_out)` has x's
    type. The cache holds no x, for the weight has no gradient: it is frozen. Trained factors beside it, as LoRA's,
    make QLoRA. Source: Dettmers et al. 2023, eq. 5.
    """
    width_in, width_out = weight.shape
    rows = x.reshape(math.prod(x.shape[:-1]), width_in)  # (N, C_in)
    y = np.empty((len(rows), width_out), x.dtype)
    for part, block in columns(weight):  # (columns, C_in)
        y[:, part] = rows @ block.astype(x.dtype, copy=False).T
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], width_out), (weight, bias is not None, x.shape, x.dtype)


@gradient_of(
    lambda weight, has_bias, shape, dtype: ((*shape[:-1], weight.shape[1]), dtype),
    products=True,
)
def quantized_linear_backward(dy: Array, cache: tuple) -> tuple[Array, Array | None]:
    """Gradients `(dx, dbias)`: `dx = dy @ dequantize(weight)ᵀ`, `dbias = Σ dy`, `None` without a bias.

    The weight has none: its numbers q are integers.
    """
    weight, has_bias, shape, dtype = cache
    dy = dy.reshape(math.prod(shape[:-1]), weight.shape[1])  # (N, C_out)
    dbias = column_sums(dy) if has_bias else None  # y += bias
    dx = np.zeros((len(dy), weight.shape[0]), dtype)
    for part, block in columns(weight):
        dx += dy[:, part] @ block.astype(dtype, copy=False)  # y[:, part] = rows @ block.T
    return dx.reshape(shape), dbias
