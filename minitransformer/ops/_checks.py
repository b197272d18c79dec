"""Argument checks shared by the ops: one clear sentence, naming the argument, what was given and what was expected."""

import math
from numbers import Integral
from typing import Any

import numpy as np

from .arrays import Array

FLOAT_DTYPES = FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def check_floats(names: str, first: Array, *others: Array | None) -> np.dtype:
    """The one floating dtype of all given arrays (`None` is passed over); `names` are theirs, as in `"x weight"`.

    Raises `TypeError` for anything but NumPy arrays of float32 or float64, and where the two are mixed.
    """
    # NumPy has one object for each of its types: in a decoder's small steps the usual case must cost next to nothing.
    if type(first) is np.ndarray and ((dtype := first.dtype) is FLOAT32 or dtype is FLOAT64):
        for array in others:
            if array is not None and (type(array) is not np.ndarray or array.dtype is not dtype):
                break
        else:
            return dtype
    return _check_each_float(names.split(), (first, *others))


def _check_each_float(names: list[str], arrays: tuple[Array, ...]) -> np.dtype:
    """`check_floats` in full: says what is wrong, if anything is (a subclass of NumPy's array is not)."""
    for name, array in zip(names, arrays, strict=True):
        if array is None:
            continue
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} must be a NumPy array, got {type(array).__name__}")
        if array.dtype not in FLOAT_DTYPES:
            raise TypeError(f"{name} must be float32 or float64, got {array.dtype}")
        if array.dtype != arrays[0].dtype:
            raise TypeError(f"{names[0]} is {arrays[0].dtype} and {name} is {array.dtype}: types are never mixed")
    return arrays[0].dtype


def check_shape(name: str, array: Array, expected: tuple[int, ...]) -> None:
    """`ValueError` unless `array` has exactly the expected shape: nothing is broadcast silently."""
    if array.shape != expected:
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")


def check_ndim(name: str, array: Array, ndim: int, meaning: str) -> None:
    """`ValueError` unless `array` has `ndim` axes; `meaning` names them, as in `(B, H, Tq, D)`."""
    if array.ndim != ndim:
        raise ValueError(f"{name} has shape {array.shape}, expected {ndim} axes {meaning}")


def check_gradient(name: str, gradient: Array, like: Array) -> None:
    """A received gradient must have the shape and the dtype of the output that it belongs to."""
    check_gradient_of(name, gradient, like.shape, like.dtype)


def check_gradient_of(name: str, gradient: Array, shape: tuple[int, ...], dtype: Any) -> None:
    """As `check_gradient`, where only the shape and the dtype of the output were kept."""
    if not isinstance(gradient, (np.ndarray, np.floating)):
        raise TypeError(f"{name} must be a NumPy array, got {type(gradient).__name__}")
    if gradient.dtype != dtype:
        raise TypeError(f"{name} is {gradient.dtype} and its output is {dtype}: types are never mixed silently")
    if gradient.shape != shape:
        raise ValueError(f"{name} has shape {gradient.shape}, expected its output's {shape}")


def check_ids(name: str, ids: Array, limit: int, ignore: int | None = None) -> None:
    """Ids must be integers in [0, limit); `ignore` is let through wherever it lies."""
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu":
        given = ids.dtype if isinstance(ids, np.ndarray) else type(ids).__name__
        raise TypeError(f"{name} must be an integer NumPy array, got {given}")
    if not ids.size:
        return
    outside = (ids < 0) | (ids >= limit)
    if ignore is not None:
        outside &= ids != ignore
    if np.count_nonzero(outside):
        raise ValueError(f"{name} holds {ids[outside].flat[0]}, expected ids from 0 to {limit - 1}")


def check_ignore_index(ignore_index: Any) -> int | None:
    """The target that does not count, as an `int`: any of 32 bits, a token or not; `None` where all count."""
    if ignore_index is None:
        return None
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, Integral):
        raise TypeError(f"ignore_index must be an integer or None, got {type(ignore_index).__name__}")
    index = int(ignore_index)
    if not -(2**31) <= index < 2**31:
        raise ValueError(f"ignore_index is {index}, expected an integer of 32 bits")
    return index


def check_mask(name: str, mask: Array, shape: tuple[int, ...]) -> None:
    """A boolean array of exactly this shape."""
    if not isinstance(mask, np.ndarray) or mask.dtype != bool:
        raise TypeError(f"{name} must be a boolean array, got {getattr(mask, 'dtype', type(mask).__name__)}")
    check_shape(name, mask, shape)


def check_number(name: str, value: float, at_least: float = -math.inf, at_most: float = math.inf) -> None:
    """`value` must be a finite number in [at_least, at_most]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not (math.isfinite(value) and at_least <= value <= at_most):
        raise ValueError(f"{name} is {value}, expected a finite number in [{at_least:g}, {at_most:g}]")


def check_out(name: str, out: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """`out`, an array to add a gradient into: it must have the gradient's shape and dtype."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, got {type(out).__name__}")
    if out.dtype != dtype:
        raise TypeError(f"{name} is {out.dtype} and the gradient is {dtype}: types are never mixed")
    check_shape(name, out, shape)
    return out


def check_rows(name: str, array: Array) -> None:
    """`array` must have a last axis."""
    if array.ndim == 0:
        raise ValueError(f"{name} has shape (), expected at least one axis")
