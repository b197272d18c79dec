"""Lesson 09: Adam, accumulation, and what a checkpoint must hold."""

import copy

import numpy as np

from minitransformer import ops

from ..exercise import Attempt, exercise
from ..judging import agree, require, several

STATE = ("theta", "m", "v", "step", "rng")


def _adam_step(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    theta, m, v = theta.copy(), m.copy(), v.copy()
    ops.adam_step(theta, grad, m, v, step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps)
    return theta, m, v


def _accumulate(parts, gradient):
    results = [gradient(part) for part in parts]
    total = sum(n for _, _, n in results)
    return sum(n / total * loss for loss, _, n in results), sum(n / total * grad for _, grad, n in results)


def _save(run):
    return {name: copy.deepcopy(getattr(run, name)) for name in STATE}


@exercise(answer=_adam_step)
def adam_step(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    grad = np.array([3.0, -0.5, 0.02, -40.0])
    zero = np.zeros(4)
    theta, m, v = several(attempt(zero, grad, zero, zero, 1, 0.1), "theta", "m", "v")
    agree(
        "after one step from m = 0, m",
        m,
        0.1 * grad,
        factors={"β₁ where 1 − β₁ should be": 9, "1 / (1 − β₁): its correction is for the step alone": 10},
    )
    require(
        np.allclose(attempt(zero, 2 * grad, zero, zero, 1, 0.1)[2], 4 * v),
        "a gradient twice as large must make v four times as large: v is the mean of the squares",
    )
    agree(
        "after one step from v = 0, v",
        v,
        0.02 * grad**2,
        factors={
            "β₂ where 1 − β₂ should be": 49,
            "1 / (1 − β₂)": 50,
            "1 − β₁ where 1 − β₂ should be": 5,
            "(1 − β₁)²: v is the mean of grad², not of m²": 0.01,
        },
    )
    require(
        np.isfinite(theta).all(),
        "theta holds NaN or infinity after step 1: `step` counts from 1, where 1 − β^step is not 0",
    )
    require(
        np.allclose(attempt(zero, grad, zero, zero, 1, 0.2)[0], 2 * theta),
        "with twice the learning rate the step must be twice as long",
    )
    moved = -theta / (0.1 * np.sign(grad))
    require(
        (moved > 0).all(),
        "it steps up the gradient, or not at all, at some elements: where grad is positive theta must fall",
    )
    require(
        np.ptp(moved) < 1e-3 * moved.max(),
        "in the first step gradients of different size make steps of different length; m̂ / √v̂ is ±1 there",
    )
    known = {
        0.1 / np.sqrt(0.02): "neither m nor v is corrected for beginning at 0",
        0.1: "v is corrected for beginning at 0, and m is not",
        1 / np.sqrt(0.02): "m is corrected for beginning at 0, and v is not",
    }
    for length, why in known.items():
        require(
            abs(moved[0] / length - 1) > 1e-4,
            f"the first step is {length:.3g} learning rates long and must be 1: {why}",
        )
    require(
        abs(moved[0] - 1) < 1e-4,
        f"the first step is {moved[0]:.3g} learning rates long and must be 1: m / (1 − β₁^step) is grad there, and the "
        "root of v / (1 − β₂^step) is |grad|, with step = 1",
    )
    later = attempt(zero, grad, m, v, 2, 0.1)[0]
    require(
        not np.allclose(later, attempt(zero, grad, m, v, 1, 0.1)[0]),
        "from the same m and v, step 1 and step 2 are the same: the corrections 1 − β^step follow the step",
    )
    require(
        attempt(zero, zero, m, v, 2, 0.1)[0].all(),
        "where the new gradient is 0 a weight stays where it is: it must go on with m, the mean of those before",
    )
    coarse = attempt(zero, np.ones(4), zero, zero, 1, 1.0, 0.9, 0.98, 0.5)[0]
    require(
        np.allclose(coarse, -1 / 1.5),
        f"with ε = 0.5 and a gradient of 1 the first step is {-float(np.mean(coarse)):.3f} long and must be 1/(1 + ε): "
        "ε is added to √v̂, outside the root, after the correction",
    )
    theta, m, v = rng.standard_normal(50), zero_50(), zero_50()
    expected = theta.copy(), zero_50(), zero_50()
    for step in range(1, 11):
        grad = rng.standard_normal(50)
        theta, m, v = several(attempt(theta, grad, m, v, step, 0.01), "theta", "m", "v")
        expected = _adam_step(expected[0], grad, expected[1], expected[2], step, 0.01)
        for name, mine, theirs in zip(("theta", "m", "v"), (theta, m, v), expected, strict=True):
            agree(f"after step {step} of ten, {name}", mine, theirs, tolerance=1e-12)


def zero_50() -> np.ndarray:
    """Where m and v begin."""
    return np.zeros(50)


@exercise(answer=_accumulate)
def accumulate(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    calls = []

    def gradient(part):
        calls.append(len(part))
        return float(part[:, 0].mean()), part[:, 1:].mean(axis=0), len(part)

    def of(sizes):
        parts = [rng.standard_normal((size, 4)) for size in sizes]
        calls.clear()
        loss, grad = several(attempt(parts, gradient), "loss", "grad")
        require(len(calls) == len(parts), f"gradient was called {len(calls)} times for {len(parts)} parts")
        whole = np.concatenate(parts)
        return (loss, grad), (whole[:, 0].mean(), whole[:, 1:].mean(axis=0))

    (_, alone), (_, expected) = of([5])
    agree("of a single part, the gradient", alone, expected, factors={"the number of its targets": 5, "1 / 5": 0.2})
    shown = np.ones((2, 4)), 2 * np.ones((2, 4)), 4 * np.ones((2, 4))
    for number in range(3):
        parts = [0 * part if n == number else part for n, part in enumerate(shown)]
        require(
            not np.allclose(attempt(parts, gradient)[1], attempt(list(shown), gradient)[1]),
            f"of three parts, number {number + 1} does not count: are gradients added, or overwritten?",
        )
    (_, grad), (_, expected) = of([4, 4, 4])
    agree(
        "of three equal parts, the gradient",
        grad,
        expected,
        factors={"the number of parts: a sum is not a mean": 3, "1 / 3: divided by the parts once too often": 1 / 3},
    )
    (loss, grad), (expected_loss, expected) = of([1, 7])
    require(
        np.allclose(grad, expected),
        "it is right for parts of equal size, and not for one target beside seven: each part counts by its share of "
        "the targets, num_targets / all of them",
    )
    require(
        np.allclose(loss, expected_loss),
        "the gradient is right, and the loss is not: its parts count by their shares of the targets too",
    )
    (loss, grad), (expected_loss, expected) = of([2, 3, 11, 5])
    agree("of parts of 2, 3, 11 and 5 targets, the gradient", grad, expected)
    agree("of parts of 2, 3, 11 and 5 targets, the loss", float(loss), float(expected_loss))


class _Run:
    """A training of a parabola, with the attributes of the lesson's."""

    def __init__(self, seed: int) -> None:
        self.theta = np.full(6, 1.0 + seed)
        self.m, self.v, self.step = np.zeros(6), np.zeros(6), 0
        self.rng = np.random.default_rng(seed)

    def train(self, steps: int) -> None:
        """Like the lesson's: the weights in place."""
        for _ in range(steps):
            self.step += 1
            grad = self.theta + self.rng.standard_normal(6)
            self.theta[:], self.m, self.v = _adam_step(self.theta, grad, self.m, self.v, self.step, 0.1 / self.step)


def _same(a, b) -> bool:
    """Whether two values of a run are equal; of generators, whether they will draw the same."""
    if isinstance(a, np.random.Generator):
        return a.bit_generator.state == b.bit_generator.state
    return np.array_equal(a, b)


@exercise(answer=_save)
def save(attempt: Attempt) -> None:
    run = _Run(0)
    run.train(5)
    at_stop = copy.deepcopy(vars(run))
    saved = attempt(run)
    require(isinstance(saved, dict), f"it must return a dict, not {type(saved).__name__}")
    unknown = [name for name in saved if name not in STATE]
    require(not unknown, f"the run has no attribute {', '.join(map(repr, unknown))} that restore could set")
    for name, value in saved.items():
        require(
            isinstance(value, type(at_stop[name])),
            f"{name} is saved as a {type(value).__name__} and must be what the run has, a "
            f"{type(at_stop[name]).__name__}: restore puts it in as it is",
        )
        require(
            _same(value, at_stop[name]),
            f"what is saved of {name} is not what the run had when it was saved: a copy, please, and nothing new",
        )
    shared = saved.get("rng") is run.rng
    run.train(5)

    resumed = _Run(1)
    for name, value in saved.items():
        if isinstance(value, np.ndarray):
            getattr(resumed, name)[:] = value
        else:
            setattr(resumed, name, copy.deepcopy(value))
    why = {
        "theta": "the weights are another model's",
        "m": "Adam's mean of the gradients begins again at 0",
        "v": "Adam's mean of the squares begins again at 0, and the next steps are much too long",
        "step": "the schedule and Adam's corrections begin again",
        "rng": "the batches and dropout masks that come next are others",
    }
    for name in STATE:
        same = _same(getattr(resumed, name), at_stop[name])
        if name not in saved:
            require(same, f"after restore {name} is not what it was when the run was saved: {why[name]}")
        require(
            same,
            f"what was saved of {name} has changed since: the run went on and wrote into it"
            + (" (a generator moves on with every draw)" if name == "rng" and shared else "")
            + ", so save a copy",
        )
    resumed.train(5)
    require(np.array_equal(resumed.theta, run.theta), "the resumed run does not end where the other one did")
