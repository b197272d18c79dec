"""The fit of a scaling law: `L(N, D) = E + A/N^α + B/D^β`, to losses of trainings of several sizes and lengths.

N are parameters, D tokens. As in Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models", eq. 3 and
appendix D.2: with `a = log A`, `b = log B`, `e = log E` the prediction of log L is a log-sum-exp,

    log L = log(exp(a − α log N) + exp(b − β log D) + exp(e))

and the Huber loss of its residuals is minimised, with δ = 10⁻³, from many starts.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DELTA = 1e-3
"""The residual at which the Huber loss turns from a square into a line, in log L; outliers then count less."""

STEPS, PATIENCE = 300, 1e-12
"""The most steps of the minimisation, and the relative improvement below which it ends."""

BOOTSTRAPS, RESTARTS = 200, 12
"""Samples of the trainings for intervals, and the starts of each beside the best fit."""


def starts() -> Floats:
    """The grid of Hoffmann et al. 2022, appendix D.2, as rows of (a, α, b, β, e): `(4500, 5)`."""
    exponents, constants, floors = (0.0, 0.5, 1.0, 1.5, 2.0), (0.0, 5.0, 10.0, 15.0, 20.0, 25.0), (-1, -0.5, 0, 0.5, 1)
    return np.array(list(product(constants, exponents, constants, exponents, floors)), dtype=np.float64)


def log_losses(theta: Floats, log_n: Floats, log_d: Floats) -> tuple[Floats, Floats]:
    """The predictions `(S, n)` of S laws theta `(S, 5)` for n trainings, and the three terms' shares `(S, n, 3)`."""
    a, alpha, b, beta, e = (theta[:, i, None] for i in range(5))
    terms = np.stack(np.broadcast_arrays(a - alpha * log_n, b - beta * log_d, e + 0 * log_n), axis=-1)  # (S, n, 3)
    highest = terms.max(-1, keepdims=True)
    exponentials = np.exp(terms - highest)
    total = exponentials.sum(-1, keepdims=True)
    return (highest + np.log(total))[..., 0], exponentials / total


def huber(residuals: Floats) -> Floats:
    """`r²/2` for small residuals, `δ (|r| − δ/2)` beyond δ."""
    size = np.abs(residuals)
    return np.where(size <= DELTA, size**2 / 2, DELTA * (size - DELTA / 2))


def minimise(theta: Floats, log_n: Floats, log_d: Floats, log_loss: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The laws `(S, 5)` that descents from S starts end at, and their Huber losses `(S,)`.

    weights `(S, n)` say how often each training counts. Paper: Hoffmann et al. use L-BFGS; this is the method of
    Levenberg and Marquardt, all starts at once, with the Huber loss as a square whose weights follow the residuals.
    """
    theta, damping = theta.copy(), np.full(len(theta), 1e-2)
    predicted, shares = log_losses(theta, log_n, log_d)
    losses = (weights * huber(predicted - log_loss)).sum(1)
    for _ in range(STEPS):
        residuals = predicted - log_loss  # (S, n)
        near, far, floor = np.moveaxis(shares, -1, 0)
        slopes = np.stack([near, -near * log_n, far, -far * log_d, floor], axis=-1)  # (S, n, 5)
        counts = weights * np.minimum(1, DELTA / np.maximum(np.abs(residuals), 1e-300))
        gradient = np.einsum("sn,snp->sp", counts * residuals, slopes)
        curvature = np.einsum("sn,snp,snq->spq", counts, slopes, slopes)
        diagonal = np.einsum("spp->sp", curvature)
        damped = curvature + (damping[:, None] * diagonal + 1e-12)[:, :, None] * np.eye(5)
        trial = theta - np.linalg.solve(damped, gradient[..., None])[..., 0]
        trial_predicted, trial_shares = log_losses(trial, log_n, log_d)
        trial_losses = (weights * huber(trial_predicted - log_loss)).sum(1)
        better = trial_losses < losses
        gained = np.where(better, 1 - trial_losses / np.maximum(losses, 1e-300), 0)
        theta = np.where(better[:, None], trial, theta)
        predicted = np.where(better[:, None], trial_predicted, predicted)
        shares = np.where(better[:, None, None], trial_shares, shares)
        losses = np.where(better, trial_losses, losses)
        damping = np.where(better, damping / 3, np.minimum(damping * 4, 1e12))
        if not (gained > PATIENCE).any() and (damping > 1e6).all():
            break
    return theta, losses


@dataclass(frozen=True)
class Law:
    """`L(N, D) = E + A/N^α + B/D^β`, by the logarithms of its constants."""

    a: float
    alpha: float
    b: float
    beta: float
    e: float

    def loss(self, n: float, d: float) -> float:
        """The loss of a model of n parameters after d tokens, in nats a token."""
        theta = np.array([[self.a, self.alpha, self.b, self.beta, self.e]])
        return float(np.exp(log_losses(theta, np.array([np.log(n)]), np.array([np.log(d)]))[0][0, 0]))

    @property
    def optimum(self) -> float:
        """The exponent with which the best size grows with compute, `N ∝ C^(β/(α+β))`, where C = 6 N D."""
        return self.beta / (self.alpha + self.beta)

    @property
    def constants(self) -> dict[str, float]:
        """E, A, α, B, β and the exponent of the optimum, by name."""
        return {
            "E": float(np.exp(self.e)),
            "A": float(np.exp(self.a)),
            "α": self.alpha,
            "B": float(np.exp(self.b)),
            "β": self.beta,
            "optimum": self.optimum,
        }


@dataclass(frozen=True)
class Fit:
    """The law that fits trainings of n parameters and d tokens best, and the laws of bootstrap samples of them."""

    n: Floats
    d: Floats
    losses: Floats

    @cached_property
    def law(self) -> Law:
        """The law with the least Huber loss of all starts."""
        theta, losses = self._minimise(starts(), np.ones((1, len(self.n))))
        return Law(*theta[losses.argmin()].tolist())

    @cached_property
    def samples(self) -> list[Law]:
        """The laws of bootstrap samples, the same trainings in each call: each from the best law and some starts."""
        rng, best, grid = np.random.default_rng(0), self.law, starts()
        count = len(self.n)
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=BOOTSTRAPS).astype(float)  # (S, n)
        first = np.array([best.a, best.alpha, best.b, best.beta, best.e])
        some = grid[rng.choice(len(grid), RESTARTS, replace=False)]
        begins = np.tile(np.concatenate([first[None], some]), (BOOTSTRAPS, 1))
        theta, losses = self._minimise(begins, np.repeat(drawn, 1 + RESTARTS, axis=0))
        ends, losses = theta.reshape(BOOTSTRAPS, -1, 5), losses.reshape(BOOTSTRAPS, -1)
        return [Law(*each[row.argmin()].tolist()) for each, row in zip(ends, losses, strict=True)]

    def _minimise(self, theta: Floats, weights: Floats) -> tuple[Floats, Floats]:
        weights = np.broadcast_to(weights, (len(theta), len(self.n)))
        return minimise(theta, np.log(self.n), np.log(self.d), np.log(self.losses), weights)
