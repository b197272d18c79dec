"""Numbers that follow from times: with their variation over rounds, and where two series cross."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .trials.bootstrap import Interval


def in_rounds(figure: Callable[..., float | None], *rounds: Sequence[Sequence[float]]) -> dict[str, Any]:
    """A number that follows from times: `value` from the least times over all rounds, and a number from each round.

    rounds  for each series that `figure` takes, the seconds by round and size
    """
    best = [np.min(each, axis=0).tolist() for each in rounds]
    return {"value": figure(*best), "rounds": [figure(*each) for each in zip(*rounds, strict=True)]}


def crossing(sizes: Sequence[int], values: Sequence[float], others: Sequence[float]) -> float | None:
    """The size from which `values` stay at or above `others`, interpolated between two sizes in logarithms.

    It is the first size if they are above at all sizes, and `None` if they are below at the last.
    """
    gaps = np.log(values) - np.log(others)
    below = np.flatnonzero(gaps < 0)
    if len(below) == 0:
        return float(sizes[0])
    i = below[-1]
    if i == len(sizes) - 1:
        return None
    part = gaps[i] / (gaps[i] - gaps[i + 1])
    return float(sizes[i] * (sizes[i + 1] / sizes[i]) ** part)


def over_rounds(found: dict[str, Any]) -> Interval:
    """A number with the lowest and the highest that a single round gives; none at all counts as infinite."""
    value, *rounds = (math.inf if each is None else each for each in (found["value"], *found["rounds"]))
    return Interval(value, min(value, *rounds), max(value, *rounds))


def rounds_text(found: dict[str, Any], digits: int = 2) -> str:
    """A number as text, with the lowest and the highest that a single round gives."""
    return over_rounds(found).text(digits)


def crossing_text(found: dict[str, Any], lengths: list[int]) -> str:
    """A crossing as text: from which length on; in a round without one it lies beyond the longest."""
    value, rounds = found["value"], [math.inf if each is None else each for each in found["rounds"]]
    if value is None:
        return f"at no n up to {lengths[-1]:,} (single rounds: {_span(rounds, lengths)})"
    if value <= lengths[0]:
        return f"at every n from {lengths[0]:,} (single rounds: {_span(rounds, lengths)})"
    return f"from n ≈ {value:,.0f} ({_span([value, *rounds], lengths)})"


def _span(values: list[float], lengths: list[int]) -> str:
    low, high = (f"{x:,.0f}" if x < math.inf else f"more than {lengths[-1]:,}" for x in (min(values), max(values)))
    return f"{low} to {high}"
