"""Plausible wrong answers to lesson 09, each with words of the hint it must get."""

import copy

import numpy as np


def _adam(update, square=lambda g: g**2, mean=lambda b, m, g: b * m + (1 - b) * g):
    """A wrong adam_step: `update(m, v, b1, b2, t, eps)` is the step in learning rates."""

    def adam_step(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
        m, v = mean(beta1, m, grad), mean(beta2, v, square(grad))
        return theta - lr * update(m, v, beta1, beta2, step, eps), m, v

    return adam_step


def _right(m, v, b1, b2, t, eps):
    return m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)


def _eps_inside(m, v, b1, b2, t, eps):
    return m / (1 - b1**t) / np.sqrt(v / (1 - b2**t) + eps)


def _corrected_in_place(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
    m, v = m / (1 - beta1**step), v / (1 - beta2**step)
    return theta - lr * m / (np.sqrt(v) + eps), m, v


def _always_the_first(m, v, b1, b2, t, eps):
    return _right(m, v, b1, b2, 1, eps)


def _from_zero(m, v, b1, b2, t, eps):
    return _right(m, v, b1, b2, t - 1, eps)


def _one_step_ahead(m, v, b1, b2, t, eps):
    return _right(m, v, b1, b2, t + 1, eps)


def _no_rate(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    below, m, v = _adam(_right)(theta, grad, m, v, step, 1.0, beta1, beta2, eps)
    return below, m, v


def _no_memory(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    _, m, v = _adam(_right)(theta, grad, m, v, step, lr, beta1, beta2, eps)
    return theta - lr * grad / (np.sqrt(v / (1 - beta2**step)) + eps), m, v


def _accumulate(combine):
    """A wrong accumulate: `combine(losses, grads, counts)`."""
    return lambda parts, gradient: combine(*map(np.array, zip(*map(gradient, parts), strict=True)))


def _save(*names, copies=True):
    """A save that forgets, or does not copy."""
    return lambda run: {name: (copy.deepcopy if copies else lambda x: x)(getattr(run, name)) for name in names}


def _shallow(run):
    return {name: copy.copy(getattr(run, name)) for name in ("theta", "m", "v", "step")} | {"rng": run.rng}


ALL = ("theta", "m", "v", "step", "rng")
WRONG = {
    "adam_step": {
        "no correction": (_adam(lambda m, v, b1, b2, t, eps: m / (np.sqrt(v) + eps)), "neither m nor v"),
        "only m corrected": (
            _adam(lambda m, v, b1, b2, t, eps: m / (1 - b1**t) / (np.sqrt(v) + eps)),
            "m is corrected for beginning at 0, and v is not",
        ),
        "only v corrected": (
            _adam(lambda m, v, b1, b2, t, eps: m / (np.sqrt(v / (1 - b2**t)) + eps)),
            "v is corrected for beginning at 0, and m is not",
        ),
        "up the hill": (_adam(lambda *args: -_right(*args)), "where grad is positive theta must fall"),
        "no root": (
            _adam(lambda m, v, b1, b2, t, eps: m / (1 - b1**t) / (v / (1 - b2**t) + eps)),
            "steps of different length",
        ),
        "weights swapped": (
            _adam(_right, mean=lambda b, m, g: (1 - b) * m + b * g),
            "m is 9 times what it should be everywhere, which is β₁",
        ),
        "no square": (_adam(_right, square=np.abs), "v is the mean of the squares"),
        "ε inside the root": (_adam(_eps_inside), "outside the root"),
        "corrected means kept": (_corrected_in_place, "its correction is for the step alone"),
        "steps from 0": (_adam(_from_zero), "`step` counts from 1"),
        "one step ahead": (_adam(_one_step_ahead), "the first step is 0.741 learning"),
        "no learning rate": (_no_rate, "with twice the learning rate"),
        "the gradient for m": (_no_memory, "it must go on with m"),
        "corrected as in step 1": (_adam(_always_the_first), "step 1 and step 2 are the same"),
    },
    "accumulate": {
        "mean of means": (
            _accumulate(lambda losses, grads, counts: (losses.mean(), grads.mean(axis=0))),
            "each part counts by its share",
        ),
        "sum": (
            _accumulate(lambda losses, grads, counts: (losses.sum(), grads.sum(axis=0))),
            "a sum is not a mean",
        ),
        "sum over targets": (
            _accumulate(lambda losses, grads, counts: (counts @ losses, counts @ grads)),
            "the number of its targets",
        ),
        "the loss not weighted": (
            _accumulate(lambda losses, grads, counts: (losses.mean(), counts @ grads / counts.sum())),
            "the gradient is right, and the loss is not",
        ),
        "the last part": (
            _accumulate(lambda losses, grads, counts: (losses[-1], grads[-1])),
            "number 1 does not count",
        ),
    },
    "save": {
        "no moments": (_save("theta", "step", "rng"), "mean of the gradients begins again"),
        "no squares": (_save("theta", "m", "step", "rng"), "mean of the squares begins again"),
        "no step": (_save("theta", "m", "v", "rng"), "the schedule and Adam's corrections"),
        "no generator": (_save("theta", "m", "v", "step"), "batches and dropout masks"),
        "no copies": (_save(*ALL, copies=False), "what was saved of theta has changed"),
        "the generator itself": (_shallow, "a generator moves on with every draw"),
        "another generator": (
            lambda run: _save(*ALL)(run) | {"rng": np.random.default_rng(0)},
            "what is saved of rng is not what the run had",
        ),
        "the generator's state": (
            lambda run: _save(*ALL)(run) | {"rng": run.rng.bit_generator.state},
            "rng is saved as a dict",
        ),
        "a list": (lambda run: [run.theta, run.m, run.v], "must return a dict"),
        "a new name": (lambda run: _save(*ALL)(run) | {"weights": run.theta.copy()}, "no attribute 'weights'"),
    },
}
