"""The little array plumbing that layers and models need, so that they import neither NumPy nor PyTorch."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

Array = Any
"""A NumPy array here, a `torch.Tensor` in the tables of `kernels`."""

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""


def asarray(data: Any, dtype: Any = None) -> Array:
    """`data` (array, list or number) as an array of `dtype`; shares memory where it can."""
    return np.asarray(data, dtype=dtype)


def to_numpy(array: Array) -> np.ndarray:
    """The array in host memory; here the array itself."""
    return np.asarray(array)


def zeros(shape: int | Sequence[int], dtype: Any = "float32") -> Array:
    """Zeros whose first element lies on a 64-byte boundary (NumPy's own arrays start on multiples of 16)."""
    dtype = np.dtype(dtype)
    shape = tuple(shape) if isinstance(shape, Sequence) else (int(shape),)
    if any(size < 0 for size in shape):
        raise ValueError(f"shape is {shape}, expected no size below 0")
    count = math.prod(shape)
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
    return np.concatenate(arrays, axis=axis)


def cast(array: Array, dtype: Any) -> Array:
    """The array as `dtype`; itself where it already is."""
    return array.astype(dtype, copy=False)


def sin(x: Array) -> Array:
    """Element-wise sine."""
    return np.sin(x)


def cos(x: Array) -> Array:
    """Element-wise cosine."""
    return np.cos(x)


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    """`x`'s slices at `indices` along `axis`, copied: what a beam search does to its cache."""
    return np.take(x, indices, axis=axis)
