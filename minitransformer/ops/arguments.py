"""Argument checks shared by the ops: one clear sentence, naming the argument, what was given and what was expected."""

import math
from typing import Any

import numpy as np

Array = Any
"""A NumPy array here, a `torch.Tensor` in the tables of `kernels`."""

FLOAT_DTYPES = FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def check_array(name: str, array: Any) -> np.ndarray:
    """`array`, which must be NumPy's, and neither a matrix (its `*` is another) nor masked (its mask would be lost)."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.matrix | np.ma.MaskedArray):
        raise TypeError(f"{name} must be a NumPy array, got {type(array).__name__}")
    return array


def check_no_subclass(name: str, data: Any) -> None:
    """As `check_array`, where a list, a number or another array will do as well."""
    if type(data) is not np.ndarray and isinstance(data, np.ndarray):
        check_array(name, data)


def check_numbers(name: str, array: Any) -> None:
    """A NumPy array of booleans, integers or floating numbers."""
    if type(array) is not np.ndarray:
        check_array(name, array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be an array of numbers, got {array.dtype}")


def check_dtype(name: str, dtype: Any) -> np.dtype:
    """NumPy's type of number of this name; to NumPy itself `None` is one too."""
    if dtype is FLOAT32 or dtype is FLOAT64:
        return dtype
    try:
        found = None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError):
        found = None
    if found is None or found.kind not in "biuf":
        shown = repr(dtype) if isinstance(dtype, str | np.dtype | type) else type(dtype).__name__
        raise TypeError(f"{name} must be a type of number such as float32, got {shown}")
    return found


def check_floats(names: str, first: Array, *others: Array | None) -> np.dtype:
    """The one floating dtype of all given arrays; `names` are theirs, as in `"x weight bias?"`.

    Only an array whose name ends in `?` may be `None`. Raises `TypeError` for anything but NumPy arrays of float32 or
    float64, and where the two are mixed.
    """
    # NumPy has one object for each of its types: in a decoder's small steps the usual case must cost next to nothing.
    if type(first) is np.ndarray and ((dtype := first.dtype) is FLOAT32 or dtype is FLOAT64):
        for array in others:
            if type(array) is not np.ndarray or array.dtype is not dtype:
                break
        else:
            return dtype
    return _check_each_float(names.split(), (first, *others))


def _check_each_float(names: list[str], arrays: tuple[Array, ...]) -> np.dtype:
    """`check_floats` in full: says what is wrong, if anything is (a memory-mapped array is not)."""
    for name, array in zip(names, arrays, strict=True):
        if array is None and name.endswith("?"):
            continue
        name = name.removesuffix("?")
        array = check_array(name, array)
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
    if type(gradient) is not np.ndarray and not isinstance(gradient, np.floating):
        check_array(name, gradient)
    if gradient.dtype != dtype:
        raise TypeError(f"{name} is {gradient.dtype} and its output is {dtype}: types are never mixed silently")
    if gradient.shape != shape:
        raise ValueError(f"{name} has shape {gradient.shape}, expected its output's {shape}")


def check_ids(name: str, ids: Array, limit: int, ignore: int | None = None) -> None:
    """Ids must be integers in [0, limit); `ignore` is let through wherever it lies."""
    if type(ids) is not np.ndarray:
        check_array(name, ids)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer NumPy array, got {ids.dtype}")
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
    check_integer("ignore_index", ignore_index)
    if not -(2**31) <= ignore_index < 2**31:
        shown = f"{as_float('ignore_index', ignore_index):.15g}"
        raise ValueError(f"ignore_index is {shown}, expected an integer of 32 bits")
    return int(ignore_index)


def check_mask(name: str, mask: Array, shape: tuple[int, ...]) -> None:
    """A boolean array of exactly this shape."""
    check_array(name, mask)
    if mask.dtype != bool:
        raise TypeError(f"{name} must be a boolean array, got {mask.dtype}")
    check_shape(name, mask, shape)


def check_number(name: str, value: Any, at_least: float = -math.inf, at_most: float = math.inf) -> None:
    """`value` must be a finite number in [at_least, at_most]."""
    number = as_float(name, value)
    if not (math.isfinite(number) and at_least <= number <= at_most):
        raise ValueError(f"{name} is {number}, expected a finite number in [{at_least:g}, {at_most:g}]")


def check_scalar(name: str, value: Any) -> float:
    """`value`, a number or an array of one element, as a `float`."""
    if not isinstance(value, np.ndarray):
        return as_float(name, value)
    if check_array(name, value).size != 1:
        raise ValueError(f"{name} has shape {value.shape}, expected one number")
    if value.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be a number, got {value.dtype}")
    return float(value.item())


def as_float(name: str, value: Any) -> float:
    """A number as a `float`; an integer beyond its range is infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_integer(name: str, value: Any) -> None:
    """`value` must be an integer; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")


def check_whole(name: str, value: Any, at_least: int, at_most: int) -> None:
    """`value` must be an integer in [at_least, at_most]."""
    check_integer(name, value)
    if not at_least <= value <= at_most:
        shown = f"{as_float(name, value):.15g}"
        raise ValueError(f"{name} is {shown}, expected an integer from {at_least} to {at_most}")


def check_axis(name: str, axis: Any, ndim: int) -> None:
    """`axis` must be one of `ndim`, counted from the first or, below 0, from the last."""
    check_integer(name, axis)
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} is {as_float(name, axis):.15g}, expected one of {ndim} axes")


def check_flag(name: str, value: Any) -> None:
    """`value` must be True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {type(value).__name__}")


def check_out(name: str, out: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """`out`, an array to add a gradient into: it must have the gradient's shape and dtype."""
    check_array(name, out)
    if out.dtype != dtype:
        raise TypeError(f"{name} is {out.dtype} and the gradient is {dtype}: types are never mixed")
    check_shape(name, out, shape)
    return out


def check_writeable(name: str, array: Array) -> None:
    """`array` is going to be changed in place."""
    if not array.flags.writeable:
        raise ValueError(f"{name} is read-only, expected an array that can be changed in place")


def check_rows(name: str, array: Array) -> None:
    """`array` must have a last axis."""
    if array.ndim == 0:
        raise ValueError(f"{name} has shape (), expected at least one axis")
