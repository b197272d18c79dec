"""Intervals of differences between training runs of several seeds each: the effects of seeds and of the test rows."""

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from .bootstrap import CONFIDENCE, MEAN, Interval, interval


@cache
def student_t(freedom: float) -> float:
    """The t within which a Student-distributed number lies with the confidence of all intervals, `CONFIDENCE`.

    With ν = `freedom` its density is `c · (1 + t²/ν)^(−(ν + 1)/2)`. With `t = √ν · tan φ` the probability of |t| < T is
    `∫ cos^(ν−1) φ dφ` from 0 to `atan(T/√ν)`, divided by the integral up to π/2. Source: Student 1908.
    """
    angles = np.linspace(0, math.pi / 2, 20_001)
    middles = (angles[1:] + angles[:-1]) / 2
    mass = np.cumsum(np.cos(middles) ** (freedom - 1))
    reached = np.interp(CONFIDENCE / 100, np.concatenate([[0], mass / mass[-1]]), angles)
    return math.sqrt(freedom) * math.tan(reached)


def mean_of_seeds(values: Sequence[float]) -> Interval:
    """The mean of a number over seeds, at least two, and its interval. Source: Student 1908."""
    value = float(np.mean(values))
    half = student_t(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(value, value - half, value + half)


def percentage_over_seeds(values: Sequence[float]) -> Interval:
    """The mean of percentages over seeds, at least two, and its interval, cut off at 0 and 100."""
    return mean_of_seeds(values).of_percentage


def welch(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """The difference of two means over seeds, at least two each, and its interval; their variances may differ.

    Source: Welch 1947, "The generalization of 'Student's' problem when several different population variances are
    involved".
    """
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (ours, theirs)]
    value = float(np.mean(ours) - np.mean(theirs))
    if not sum(parts):
        return Interval(value, value, value)
    shares = [part**2 / (len(values) - 1) for part, values in zip(parts, (ours, theirs), strict=True)]
    half = student_t(sum(parts) ** 2 / sum(shares)) * math.sqrt(sum(parts))
    return Interval(value, value - half, value + half)


def loss_difference(ours: Sequence[NDArray[np.float64]], theirs: Sequence[NDArray[np.float64]]) -> Interval:
    """The mean loss of our seeds minus that of theirs, in nats a token, with an interval for seeds and test rows.

    For each seed the likelihoods `(N, 2)` of the same rows. The half-widths of Welch's interval over seeds and of the
    bootstrap's over rows are added as independent ones: the root of the sum of their squares.
    """
    of_seeds = welch(*([loss_of(each) for each in seeds] for seeds in (ours, theirs)))
    gaps = np.mean([each[:, 0] for each in ours], 0) - np.mean([each[:, 0] for each in theirs], 0)
    of_rows = interval(MEAN, np.stack([gaps, ours[0][:, 1]], axis=1))
    half = math.hypot((of_seeds.high - of_seeds.low) / 2, (of_rows.high - of_rows.low) / 2)
    return Interval(of_seeds.value, of_seeds.value - half, of_seeds.value + half)


def loss_rise(before: Sequence[NDArray[np.float64]], after: Sequence[NDArray[np.float64]]) -> Interval:
    """Return the rise of the mean loss from some rows to others, over the same seeds, with its interval.

    The half-widths of Student's interval over the seeds' rises, and of the bootstrap over the rows of either side, are
    added as independent ones.
    """
    of_seeds = mean_of_seeds([loss_of(b) - loss_of(a) for a, b in zip(before, after, strict=True)])
    value, halves = of_seeds.value, [of_seeds.high - of_seeds.value]
    for side in (before, after):
        of_rows = interval(MEAN, np.stack([np.mean([each[:, 0] for each in side], 0), side[0][:, 1]], axis=1))
        halves.append((of_rows.high - of_rows.low) / 2)
    half = math.hypot(*halves)
    return Interval(value, value - half, value + half)


def percentage_drop(before: Sequence[float], after: Sequence[float], rows: int) -> Interval:
    """Return how far percentages fall from some rows to as many others, over the same seeds, with the interval.

    The half-widths of Student's interval over the seeds' falls, and of a share of `rows` on either side, are added as
    independent ones. The latter is that of a single model, z·√(p(1 − p)/N): of a mean over seeds it is at most as wide.
    """
    of_seeds = mean_of_seeds([a - b for a, b in zip(before, after, strict=True)])
    parts = [float(np.mean(side)) / 100 for side in (before, after)]
    z = NormalDist().inv_cdf((1 + CONFIDENCE / 100) / 2)
    halves = [100 * z * math.sqrt(part * (1 - part) / rows) for part in parts]
    half = math.hypot(of_seeds.high - of_seeds.value, *halves)
    return Interval(of_seeds.value, of_seeds.value - half, of_seeds.value + half)


def loss_of(likelihood: NDArray[np.float64]) -> float:
    """The mean loss of a token, in nats, from likelihoods `(N, 2)`."""
    total, count = likelihood.sum(0)
    return float(total / count)
