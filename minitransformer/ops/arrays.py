"""Making, moving and joining arrays for layers and models, so that they import neither NumPy nor PyTorch.

Only other ops use `row_means` and `column_sums`.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .arguments import Array, arguments, as_float, check_array, check_integer, checked_by

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""


def asarray(data: Any, dtype: Any = None) -> Array:
    """Return `data` (array, list or number) as an array of `dtype`; it shares memory where it can."""
    if isinstance(data, np.ndarray):
        check_array("data", data)
    return np.asarray(data, dtype=None if dtype is None else _number_type(dtype))


def to_numpy(array: Array) -> np.ndarray:
    """Return the array in host memory: here the array itself."""
    if isinstance(array, np.ndarray):
        check_array("array", array)
    return np.asarray(array)


def zeros(shape: int | Sequence[int], dtype: Any = "float32") -> Array:
    """Return zeros whose first element lies on a 64-byte boundary (NumPy's own arrays start on multiples of 16)."""
    dtype = _number_type(dtype)
    sizes = shape if isinstance(shape, Sequence) and not isinstance(shape, str | bytes | bytearray) else (shape,)
    for size in sizes:
        check_integer("each size of shape", size)
    shape = tuple(map(int, sizes))
    if min(shape, default=0) < 0:
        raise ValueError(f"shape is {shape}, expected no size below 0")
    count = math.prod(shape)
    if max(count, *shape, 0) * dtype.itemsize > sys.maxsize - ALIGNMENT:
        raise ValueError(f"shape is {shape}, expected one that fits into memory")
    base = np.zeros(count * dtype.itemsize + ALIGNMENT, dtype=np.uint8)
    start = -base.ctypes.data % ALIGNMENT
    return base[start : start + count * dtype.itemsize].view(dtype).reshape(shape)


def row_means(x: Array) -> Array:
    """Return the means over the last axis, `(..., 1)`: for short rows a product with ones is faster than `x.mean`."""
    # Divided by C, not multiplied by 1/C, which is rounded: the mean of equal numbers is that number.
    return np.vecdot(x, np.ones(x.shape[-1], x.dtype))[..., None] / x.shape[-1]


def column_sums(x: Array) -> Array:
    """Return the sum `(C,)` of the rows of x `(..., C)`: in float32 a product with ones is more exact than `x.sum`."""
    rows = x.reshape(-1, x.shape[-1])
    return np.ones(len(rows), x.dtype) @ rows


def activations(data: Array) -> Array:
    """Return parameters in the dtype of activations: here `data` itself, a copy where a backend's are narrower."""
    return data


def _check_concatenation(given: Mapping[str, Any]) -> None:
    if "arrays" not in given:
        return
    arrays, axis = given["arrays"], given.get("axis", -1)
    if not isinstance(arrays, Sequence):
        raise TypeError(f"arrays must be a sequence of NumPy arrays, got {type(arrays).__name__}")
    if not arrays:
        raise ValueError("arrays has no element, expected at least one")
    for array in arrays:
        _check_numbers("arrays", array)
    _check_axis(axis, arrays[0].ndim)


@partial(checked_by, _check_concatenation)
def concatenate(arrays: Sequence[Array], axis: int = -1) -> Array:
    """Join arrays along an existing axis."""
    try:
        return np.concatenate(arrays, axis=axis)
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(f"arrays have shapes {shapes}, expected the same but for axis {axis}") from None


def cast(array: Array, dtype: Any) -> Array:
    """Return the array as `dtype`: the array itself where it already is."""
    _check_numbers("array", array)
    return array.astype(_number_type(dtype), copy=False)


@arguments("x ...")
def sin(x: Array) -> Array:
    """Element-wise sine."""
    return np.sin(x)


@arguments("x ...")
def cos(x: Array) -> Array:
    """Element-wise cosine."""
    return np.cos(x)


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    """Copy the slices of `x` at `indices` along `axis`. A beam search reorders its cache with it."""
    _check_numbers("x", x)
    check_array("indices", indices)
    if indices.dtype.kind not in "iu":
        raise TypeError(f"indices must be an integer NumPy array, got {indices.dtype}")
    _check_axis(axis, x.ndim)
    try:
        return np.take(x, indices, axis=axis)
    except IndexError:
        raise ValueError(f"indices hold one that x of shape {x.shape} does not have along axis {axis}") from None


def _check_numbers(name: str, array: Any) -> None:
    """Raise `TypeError` unless it is a NumPy array of booleans, integers or floating numbers."""
    check_array(name, array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be an array of numbers, got {array.dtype}")


def _check_axis(axis: Any, ndim: int) -> None:
    """Raise unless `axis` is one of `ndim` axes, counted from the first or, below 0, from the last."""
    check_integer("axis", axis)
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis is {as_float('axis', axis):.15g}, expected one of {ndim} axes")


def _number_type(dtype: Any) -> np.dtype:
    """Return NumPy's type of number. Raises `TypeError` for other types and for `None`, NumPy's name for float64."""
    try:
        found = None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError):
        found = None
    if found is None or found.kind not in "biuf":
        shown = repr(dtype) if isinstance(dtype, str | np.dtype | type) else type(dtype).__name__
        raise TypeError(f"dtype must be a type of number such as float32, got {shown}")
    return found
