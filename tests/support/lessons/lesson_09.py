"""Answers to lesson 09: right ones written in another way, and plausible wrong ones (see `answers`)."""

import copy
import pickle

import numpy as np


def _adam(update, square=lambda g: g**2, mean=lambda b, m, g: b * m + (1 - b) * g):
    """A wrong adam_step: `update(m, v, b1, b2, t, eps)` is the step in learning rates."""

    def adam_step(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
        m, v = mean(beta1, m, grad), mean(beta2, v, square(grad))
        return theta - lr * update(m, v, beta1, beta2, step, eps), m, v

    return adam_step


def _clipped(theta, grad, *rest, **options):
    return _set()(theta, grad * min(1, 100 / np.linalg.norm(grad)), *rest, **options)


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


def _set(**fixed):
    """Adam with some of its settings fixed, whatever is given."""

    def adam_step(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
        given = {"step": step, "lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
        return _adam(_right)(theta, grad, m, v, **given | fixed)

    return adam_step


class _Counting:
    """Adam that counts its steps itself."""

    def __init__(self):
        self.step = 0

    def __call__(self, theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
        self.step += 1
        return _adam(_right)(theta, grad, m, v, self.step, lr, beta1, beta2, eps)


def _decayed(theta, *rest, **options):
    below, m, v = _adam(_right)(theta, *rest, **options)
    return below - 0.01 * theta, m, v


def _of_999(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.999, eps=1e-8):
    return _adam(_right)(theta, grad, m, v, step, lr, beta1, beta2, eps)


def _named_otherwise(theta, grad, m, v, step, rate, beta1=0.9, beta2=0.98, eps=1e-9):
    return _adam(_right)(theta, grad, m, v, step, rate, beta1, beta2, eps)


def _no_rate(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    below, m, v = _adam(_right)(theta, grad, m, v, step, 1.0, beta1, beta2, eps)
    return below, m, v


def _no_memory(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    _, m, v = _adam(_right)(theta, grad, m, v, step, lr, beta1, beta2, eps)
    return theta - lr * grad / (np.sqrt(v / (1 - beta2**step)) + eps), m, v


def _accumulate(combine):
    """A wrong accumulate: `combine(losses, grads, counts)`."""
    return lambda parts, gradient: combine(*map(np.array, zip(*map(gradient, parts), strict=True)))


def _by_length(parts, gradient):
    losses, grads, _ = map(np.array, zip(*map(gradient, parts), strict=True))
    shares = np.array([len(part) for part in parts]) / sum(map(len, parts))
    return shares @ losses, shares @ grads


def _in_two_passes(parts, gradient):
    total = sum(gradient(part)[2] for part in parts)
    results = [gradient(part) for part in parts]
    return sum(n / total * loss for loss, _, n in results), sum(n / total * grad for _, grad, n in results)


def _popped(parts, gradient):
    results = [gradient(parts.pop()) for _ in range(len(parts))]
    return _accumulate(lambda losses, grads, counts: (counts @ losses, counts @ grads))(results, lambda result: result)


def _sorted(parts, gradient):
    parts.sort(key=len, reverse=True)
    return _shares(lambda loss, grad: (loss, grad))(parts, gradient)


class _Adding:
    """An accumulate whose sums are never cleared."""

    def __init__(self):
        self.results = []

    def __call__(self, parts, gradient):
        self.results += [gradient(part) for part in parts]
        total = sum(n for _, _, n in self.results)
        return sum(n / total * loss for loss, _, n in self.results), sum(n / total * g for _, g, n in self.results)


def _shares(combine):
    """A wrong accumulate whose numbers are right: `combine(loss, grad)`."""
    return _accumulate(lambda losses, grads, counts: combine(*(counts @ a / counts.sum() for a in (losses, grads))))


def _save(*names, copies=True):
    """A save that forgets, or does not copy."""
    return lambda run: {name: (copy.deepcopy if copies else lambda x: x)(getattr(run, name)) for name in names}


def _everything(run):
    return copy.deepcopy(vars(run))


def _detached(run):
    run.theta = run.theta.copy()
    return _save(*ALL)(run)


def _drawn(run):
    saved = _save(*ALL)(run)
    run.rng.random()
    return saved


def _one_level(run):
    return {name: copy.copy(getattr(run, name)) for name in ALL}


class _One:
    """A save into the same dict each time."""

    def __init__(self):
        self.saved = {}

    def __call__(self, run):
        self.saved.update(_save(*ALL)(run))
        return self.saved


def _shallow(run):
    return {name: copy.copy(getattr(run, name)) for name in ("theta", "m", "v", "step")} | {"rng": run.rng}


ALL = ("theta", "m", "v", "step", "rng")


def _in_the_gradients_array(parts, gradient):
    total, loss, grad = 0, 0.0, 0.0
    for part in parts:
        mean, g, n = gradient(part)
        g *= n
        loss, grad, total = loss + n * mean, grad + g, total + n
    return loss / total, grad / total


def _one_rate_for_both_corrections(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    m, v = m + (1 - beta1) * (grad - m), v + (1 - beta2) * (grad * grad - v)
    root = np.sqrt(1 - beta2**step)
    return [theta - lr * root / (1 - beta1**step) * m / (np.sqrt(v) + eps * root), m, v]


def _running_mean(parts, gradient):
    loss, grad, seen = 0.0, 0.0, 0
    for part in parts:
        part_loss, part_grad, count = gradient(part)
        seen += count
        loss += (part_loss - loss) * count / seen
        grad = grad + (part_grad - grad) * count / seen
    return loss, grad


def _weighted_average(parts, gradient):
    losses, grads, counts = zip(*map(gradient, parts), strict=True)
    return np.average(losses, weights=counts), np.average(grads, axis=0, weights=counts)


def _state_of_the_generator(run):
    rng = np.random.default_rng()
    rng.bit_generator.state = run.rng.bit_generator.state
    return {"theta": run.theta.copy(), "m": run.m.copy(), "v": run.v.copy(), "step": run.step, "rng": rng}


def _pickled(run):
    return pickle.loads(pickle.dumps({name: getattr(run, name) for name in ("theta", "m", "v", "step", "rng")}))


RIGHT = {
    "adam_step": [_one_rate_for_both_corrections],
    "accumulate": [_running_mean, _weighted_average],
    "save": [_state_of_the_generator, _pickled],
}


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
        "one step ahead": (_adam(_one_step_ahead), "the first step is 0.74"),
        "no learning rate": (_no_rate, "with twice the learning rate"),
        "the gradient for m": (_no_memory, "it must go on with m"),
        "corrected as in step 1": (_adam(_always_the_first), "step 1 and step 2 are the same"),
        "its own β's": (_set(beta1=0.9, beta2=0.98), "beta2 = 0.8, m is not what it should be"),
        "corrected by its own β's": (
            _adam(lambda m, v, b1, b2, t, eps: _right(m, v, 0.9, 0.98, t, eps)),
            "beta2 = 0.8, theta is not what it should be",
        ),
        "its own ε": (_set(eps=1e-9), "the first step is 1.000 long and must be 1/(1 + ε)"),
        "its own step": (_Counting(), "keep none of its own"),
        "β divided by the step": (
            _adam(lambda m, v, b1, b2, t, eps: m / (1 - b1 / t) / (np.sqrt(v / (1 - b2 / t)) + eps)),
            "1 − β to the power of the step",
        ),
        "a gradient clipped": (_clipped, "is it clipped?"),
        "weights that decay": (_decayed, "from theta = 10 it goes another way"),
        "β₂ of others": (_of_999, "which is 1 − 0.999"),
        "m first": (lambda *args, **options: _set()(*args, **options)[::-1], "what is returned first is"),
        "in float32": (
            lambda *args, **options: tuple(a.astype(np.float32) for a in _set()(*args, **options)),
            "float32, which rounds",
        ),
        "named otherwise": (_named_otherwise, "'lr'"),
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
        "weighted by len": (_by_length, "it changes with len(part)"),
        "in two passes": (_in_two_passes, "gradient was called 2 times for 1 part"),
        "sums never cleared": (_Adding(), "a sum must begin at 0 in every call"),
        "whole shares": (
            _accumulate(lambda losses, grads, counts: tuple(counts // counts.sum() @ a for a in (losses, grads))),
            "// makes every share a whole number",
        ),
        "a list": (_shares(lambda loss, grad: (loss, list(grad))), "grad must be an array, not list"),
        "parts popped": (_popped, "it writes into its argument parts"),
        "parts sorted": (_sorted, "it changes the order of the parts"),
        "a loss in an array": (_shares(lambda loss, grad: (np.array([loss]), grad)), "the loss must be one number"),
        "in float32": (_shares(lambda loss, grad: (loss, grad.astype(np.float32))), "float32, which rounds"),
        "in the model's own array": (_in_the_gradients_array, "it writes into an array that `gradient` returned"),
    },
    "save": {
        "no moments": (_save("theta", "step", "rng"), "mean of the gradients begins again"),
        "no squares": (_save("theta", "m", "step", "rng"), "mean of the squares begins again"),
        "no step": (_save("theta", "m", "v", "rng"), "the schedule and Adam's corrections"),
        "no generator": (_save("theta", "m", "v", "step"), "batches and dropout masks"),
        "everything": (_everything, "it saves 'model'"),
        "m not copied": (lambda run: _save(*ALL)(run) | {"m": run.m}, "what was saved of m has changed"),
        "the run's own weights replaced": (_detached, "the run's own theta is not what it was"),
        "a number drawn": (_drawn, "the run's own rng is not what it was"),
        "one dict for all": (_One(), "a second call changes what the first one returned"),
        "copies of one level": (_one_level, "shares what moves"),
        "no copies": (_save(*ALL, copies=False), "what was saved of theta has changed"),
        "the generator itself": (_shallow, "a generator moves on with every draw"),
        "another generator": (
            lambda run: _save(*ALL)(run) | {"rng": np.random.default_rng(0)},
            "what is saved of rng is not what the run had",
        ),
        "the generator's state": (
            lambda run: _save(*ALL)(run) | {"rng": run.rng.bit_generator.state},
            "rng is saved as one dict",
        ),
        "a list": (lambda run: [run.theta, run.m, run.v], "must return a dict"),
        "a new name": (lambda run: _save(*ALL)(run) | {"weights": run.theta.copy()}, "it saves 'weights'"),
    },
}
