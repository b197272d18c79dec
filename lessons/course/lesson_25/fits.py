"""Lesson 25: laws that are fitted to training runs, from many starts, with bootstrap samples."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from after.experiments.scaling import ALL, BUDGETS
from after.experiments.scaling.fit import minimise, starts

Floats = NDArray[np.float64]

GRID = starts()[::50]
"""Where descents begin: one in fifty of Hoffmann's starts, all of which the study takes."""


def best_by_search(law: Callable[..., Floats], theta: Floats, operations: float) -> tuple[float, float]:
    """Return the best N and D for a budget, looked up on a fine grid."""
    sizes = np.geomspace(1e3, 1e14, 100_001)
    n = float(sizes[law(theta, sizes, operations / 6 / sizes).argmin()])
    return n, operations / 6 / n


def runs() -> tuple[Floats, Floats, Floats]:
    """Return parameters, tokens and budgets of the study's training runs, where a run costs 6 N D operations."""
    n = np.array([size.parameters[ALL] for _, sizes in BUDGETS for size in sizes], float)
    budget = np.array([operations for operations, sizes in BUDGETS for _ in sizes])
    return n, budget / 6 / n, budget


def descents(n: Floats, d: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Return the laws that descents from the grid end at, `(S, 5)`, and their Huber losses `(S,)`."""
    return minimise(GRID, np.log(n), np.log(d), np.log(losses), np.ones((len(GRID), len(n))))


def fitted(n: Floats, d: Floats, losses: Floats, drawn: Floats | None = None) -> tuple[Floats, Floats]:
    """Return the law that fits all runs best, `(5,)`, and one for each bootstrap sample, `(samples, 5)`.

    drawn `(samples, n)` says how often each sample has each run; without it a hundred samples are drawn.
    """
    if drawn is None:
        drawn = np.random.default_rng(0).multinomial(len(n), np.full(len(n), 1 / len(n)), size=100).astype(float)
    ends, objectives = descents(n, d, losses)
    best = ends[objectives.argmin()]
    begins = np.concatenate([best[None], GRID[::30]])  # (k, 5): each sample from these
    counts = np.repeat(drawn, len(begins), axis=0)
    again, values = minimise(np.tile(begins, (len(drawn), 1)), np.log(n), np.log(d), np.log(losses), counts)
    again, values = again.reshape(len(drawn), -1, 5), values.reshape(len(drawn), -1)
    return best, again[np.arange(len(drawn)), values.argmin(axis=1)]


def exponent(theta: Floats) -> Floats:
    """Return the power of C with which the best N grows."""
    return theta[..., 3] / (theta[..., 1] + theta[..., 3])


def middle(samples: Floats) -> Floats:
    """Return the middle 95 %."""
    return np.percentile(samples, [2.5, 97.5], axis=0)
