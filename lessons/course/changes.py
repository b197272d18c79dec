"""Detect in-place changes of a value: an array, a tensor, or a list, tuple or dict of them, however deep."""

import copy
import numbers
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


class Change(NamedTuple):
    """The place of a change, and its size if that is only rounding.

    `path` is like `[0]['key']`, and empty for the value itself. `rounding` is the largest difference if it is so small
    that a number was moved there and back, and 0 for any other change.
    """

    path: str = ""
    rounding: float = 0.0


def snapshot(value: Any) -> Any:
    """Return a deep copy to compare with later, or the value itself, which then never differs, if it has no copy."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def first_change(before: Any, after: Any) -> Change | None:
    """Return the first difference of a value from its snapshot, or None; other kinds of objects are not compared."""
    if before is after:
        return None
    if type(before) is not type(after):
        return Change()
    if isinstance(before, list | tuple):
        return _first(range(len(before)), before, after)
    if isinstance(before, dict):
        return _first(list(before), before, after) if list(before) == list(after) else Change()
    if hasattr(before, "detach"):
        before, after = (tensor.detach().cpu().double().numpy() for tensor in (before, after))
    if isinstance(before, np.ndarray):
        return _of_arrays(before, after)
    if isinstance(before, numbers.Number | str | bytes | bytearray | set):
        return None if before == after or before != before else Change()  # NaN is not itself
    return None


def _first(keys: Iterable[Any], before: Any, after: Any) -> Change | None:
    if len(before) != len(after):
        return Change()
    for key in keys:
        if found := first_change(before[key], after[key]):
            return found._replace(path=f"[{key!r}]{found.path}")
    return None


def _of_arrays(before: np.ndarray, after: np.ndarray) -> Change | None:
    if before.shape != after.shape or before.dtype != after.dtype:
        return Change()
    floating = before.dtype.kind in "fc"
    if np.array_equal(before, after, equal_nan=floating):
        return None
    if not floating:
        return Change()
    with np.errstate(invalid="ignore"):
        moved = float(np.abs(after - before).max())
    rounding = moved <= 64 * np.finfo(before.dtype).eps * max(1.0, float(np.abs(before).max()))
    return Change(rounding=moved if rounding else 0.0)
