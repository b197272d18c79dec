"""The little array plumbing that layers and models need, so that they import neither NumPy nor PyTorch."""

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .arguments import (
    Array,
    check_array,
    check_axis,
    check_dtype,
    check_floats,
    check_integer,
    check_no_subclass,
    check_numbers,
)

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""


def asarray(data: Any, dtype: Any = None) -> Array:
    """`data` (array, list or number) as an array of `dtype`; shares memory where it can."""
    check_no_subclass("data", data)
    return np.asarray(data, dtype=None if dtype is None else check_dtype("dtype", dtype))


def to_numpy(array: Array) -> np.ndarray:
    """The array in host memory; here the array itself."""
    check_no_subclass("array", array)
    return np.asarray(array)


def zeros(shape: int | Sequence[int], dtype: Any = "float32") -> Array:
    """Zeros whose first element lies on a 64-byte boundary (NumPy's own arrays start on multiples of 16)."""
    dtype = check_dtype("dtype", dtype)
    sizes = shape if isinstance(shape, Sequence) and not isinstance(shape, str | bytes | bytearray) else (shape,)
    for size in sizes:
        check_integer("each size of shape", size)
    shape = tuple(map(int, sizes))
    if any(size < 0 for size in shape):
        raise ValueError(f"shape is {shape}, expected no size below 0")
    count = math.prod(shape)
    if max(count, *shape, 0) * dtype.itemsize > sys.maxsize - ALIGNMENT:
        raise ValueError(f"shape is {shape}, expected one that fits into memory")
    base = np.zeros(count * dtype.itemsize + ALIGNMENT, dtype=np.uint8)
    start = -base.ctypes.data % ALIGNMENT
    return base[start : start + count * dtype.itemsize].view(dtype).reshape(shape)


quiet_products = np.errstate(invalid="ignore")
"""Decorates ops with matrix products. Some of OpenBLAS's kernels load whole vectors, reach past the end of a buffer and
drop the surplus; where a signalling NaN happens to lie there, NumPy would warn of an invalid value that is nowhere."""


@lru_cache(maxsize=64)
def ones(count: int, dtype: np.dtype) -> np.ndarray:
    """A read-only vector of ones: `ones @ x` sums columns faster than `x.sum`."""
    vector = np.ones(count, dtype)
    vector.flags.writeable = False
    return vector


def row_sums(x: Array) -> Array:
    """The sum over the last axis, kept, `(..., 1)`; for short rows faster than `x.sum`."""
    return np.vecdot(x, ones(x.shape[-1], x.dtype))[..., None]


def activations(data: Array) -> Array:
    """Parameters in the dtype in which the backend computes: itself here, a copy where that is narrower than theirs."""
    return data


def concatenate(arrays: Sequence[Array], axis: int = -1) -> Array:
    """The arrays joined along an existing axis."""
    if not isinstance(arrays, Sequence):
        raise TypeError(f"arrays must be a sequence of NumPy arrays, got {type(arrays).__name__}")
    if not arrays:
        raise ValueError("arrays has no element, expected at least one")
    for array in arrays:
        check_numbers("arrays", array)
    check_axis("axis", axis, arrays[0].ndim)
    try:
        return np.concatenate(arrays, axis=axis)
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(f"arrays have shapes {shapes}, expected the same but for axis {axis}") from None


def cast(array: Array, dtype: Any) -> Array:
    """The array as `dtype`; itself where it already is."""
    check_numbers("array", array)
    return array.astype(check_dtype("dtype", dtype), copy=False)


def sin(x: Array) -> Array:
    """Element-wise sine."""
    check_floats("x", x)
    return np.sin(x)


def cos(x: Array) -> Array:
    """Element-wise cosine."""
    check_floats("x", x)
    return np.cos(x)


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    """`x`'s slices at `indices` along `axis`, copied: what a beam search does to its cache."""
    check_numbers("x", x)
    if type(indices) is not np.ndarray:
        check_array("indices", indices)
    if indices.dtype.kind not in "iu":
        raise TypeError(f"indices must be an integer NumPy array, got {indices.dtype}")
    check_axis("axis", axis, x.ndim)
    try:
        return np.take(x, indices, axis=axis)
    except IndexError:
        raise ValueError(f"indices hold one that x of shape {x.shape} does not have along axis {axis}") from None
