"""Lesson 25: distillation, the compute-optimal size, the gradient of a fit and its steps."""

from typing import Any

import numpy as np

from minitransformer.gradcheck import numerical_gradient

from ..checks import (
    in_case,
    require,
    require_array,
    require_arrays,
    require_close,
    require_none_of,
    require_precision,
    type_name,
    unpack,
)
from ..exercise import Attempt, exercise
from . import solutions

# --- Distillation -----------------------------------------------------------------------------------------------


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(_log_softmax(x))


def _distillation(logits: Any, teacher: Any, targets: Any, temperature: float, share: float) -> float:
    """The loss, as the lesson's forward computes it."""
    hard = -_log_softmax(logits)[np.arange(len(logits)), targets]
    q = _softmax(teacher / temperature)
    soft = -(q * _log_softmax(logits / temperature)).sum(axis=-1)
    return float(((1 - share) * hard + share * temperature**2 * soft).mean())


@exercise(answer=solutions.distillation_backward)
def distillation_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    N, V = 4, 6
    logits, teacher, targets = rng.standard_normal((N, V)), 2 * rng.standard_normal((N, V)), np.array([5, 0, 0, 3])

    def found(temperature: float, share: float, dloss: float = 1.0, z: Any = logits, v: Any = teacher) -> np.ndarray:
        result = attempt(dloss, z, v, targets, temperature, share)
        require(
            isinstance(result, np.ndarray),
            f"it must return one array, the gradient of logits, not {type_name(result)}: nothing goes back to the "
            "teacher",
        )
        return require_array(result, "dlogits")

    def right(temperature: float, share: float, z: Any = logits, v: Any = teacher) -> np.ndarray:
        return solutions.distillation_backward(1.0, z, v, targets, temperature, share)

    first = found(1.0, 0.0)
    require(
        first.shape == (N, V), f"dlogits has shape {first.shape}, and a gradient has its array's shape, {logits.shape}"
    )
    factors = {"N: the loss is the mean over the rows": float(N), "1/V: the mean is over the rows alone": 1 / V}
    p, q, truth = _softmax(logits), _softmax(teacher), np.eye(V)[targets]
    case = "with share 0, which is the loss of lesson 01, dlogits"
    columns = np.exp(logits - logits.max(axis=-1, keepdims=True))
    mistakes = {
        "is the teacher's part: that has the weight share, and the right token's has 1 − share": (p - q) / N,
        "has the teacher's part too, which has the weight share": (p - truth + p - q) / N,
        "is the softmax alone: 1 is subtracted at the right token": p / N,
        "has 1 added at the right token, and it is subtracted": (p + truth) / N,
        "has 1 subtracted at the token before the right one: ids are columns as they are": (
            (p - np.roll(truth, -1, axis=1)) / N
        ),
        "has a softmax over the rows: it is over the tokens of each, axis=-1": (columns / columns.sum(0) - truth) / N,
    }
    require_none_of(case, first, right(1.0, 0.0), mistakes)
    require_close(case, first, right(1.0, 0.0), factors=factors)
    require(
        np.allclose(found(5.0, 0.0), first),
        "with share 0 the temperature changes dlogits: the right token's part is computed at temperature 1",
    )
    soft = found(1.0, 1.0)
    require(
        not np.allclose(soft, (2 * (p - truth) + p - q) / N),
        "with share 1 the right token still counts, twice: its weight is 1 − share, not 1 + share",
    )
    require(
        not np.allclose(soft, (p - np.eye(V)[teacher.argmax(axis=-1)]) / N),
        "with share 1 the target is the teacher's best token alone: it is all of the teacher's probabilities",
    )
    require(
        not np.allclose(soft, (logits - teacher) / N),
        "with share 1 dlogits is the difference of the logits, and must be that of the probabilities",
    )
    require_close("with share 1 and temperature 1, which is p − q over N, dlogits", soft, (p - q) / N, factors=factors)
    T = 4.0
    hot = found(T, 1.0)
    p_hot, q_hot = (_softmax(x / T) for x in (logits, teacher))
    for wrong, hint in (
        ((p - q_hot) * T / N, "only the teacher's logits are divided by the temperature, and both are"),
        ((p_hot - q) * T / N, "only the student's logits are divided by the temperature, and both are"),
        ((p - q) * T / N, "the probabilities are those of temperature 1"),
        (
            (_softmax(logits * T) - _softmax(teacher * T)) * T / N,
            "logits are divided by the temperature, not multiplied",
        ),
        ((p - q) / N, "it is still that of temperature 1"),
        ((p_hot - _softmax(teacher / T**2)) * T / N, "the teacher's logits are divided by the temperature twice"),
        ((_softmax(logits / T**2) - q_hot) * T / N, "the student's logits are divided by the temperature twice"),
    ):
        require(not np.allclose(hot, wrong), f"with share 1 and temperature {T:g} dlogits is wrong: {hint}")
    powers = {
        "T: the logits are divided by T, and the chain rule divides their gradient by T too": T,
        "1/T²: the loss has T² before it, and so has its gradient": 1 / T**2,
        "1/T: T² from the loss, 1/T from the chain rule, which makes T": 1 / T,
        "T²: the probabilities have a factor of T in all, T² · 1/T": T**2,
    }
    require_close(f"with share 1 and temperature {T:g}, dlogits", hot, right(T, 1.0), factors=powers)
    mixed = found(T, 0.3)
    require(
        not np.allclose(mixed, right(T, 0.7)),
        "the teacher's part has weight 1 − share, and the right token's has share: it is the other way round",
    )
    require(
        not np.allclose(mixed, right(T, 0.0) + 0.3 * right(T, 1.0)),
        "with share 0.3 the right token still has all of its weight, which is 1 − share",
    )
    hard, warm = right(T, 0.0), right(T, 1.0)
    mistakes = {
        "has the teacher's part times share², and it is share": 0.7 * hard + 0.09 * warm,
        "has all of the teacher's part, and its weight is share": 0.7 * hard + warm,
        "has the right token's part times (1 − share)², and it is 1 − share": 0.49 * hard + 0.3 * warm,
    }
    require_none_of(f"with share 0.3 and temperature {T:g}, dlogits", mixed, right(T, 0.3), mistakes)
    require_close(f"with share 0.3 and temperature {T:g}, dlogits", mixed, right(T, 0.3))
    require(
        np.allclose(found(T, 0.3, dloss=-2.5), -2.5 * mixed),
        "with dloss = −2.5 dlogits must be −2.5 times that with dloss = 1: all of it, both parts",
    )
    shifted = found(T, 0.3, z=logits + 4000, v=teacher - 4000)
    require(
        np.isfinite(shifted).all() and np.allclose(shifted, mixed),
        "with 4000 on all of the student's logits and −4000 on all of the teacher's it changes, or is NaN: take the "
        "maximum of each row off before exp",
    )
    apart = np.array([[0.0], [4000], [0], [-4000]])
    moved = found(T, 0.3, z=logits + apart, v=teacher - apart)
    require(
        np.isfinite(moved).all() and np.allclose(moved, mixed),
        "with 4000 on the logits of one row alone it changes, or is NaN: subtract each row's own maximum before exp",
    )
    one = logits.copy()
    one[1] += rng.standard_normal(V)
    require(
        np.allclose(np.delete(found(T, 0.3, z=one), 1, axis=0), np.delete(mixed, 1, axis=0)),
        "dlogits of other rows change with the logits of row 1: each row has its own softmax",
    )
    for N, V, T, share in ((3, 2, 0.5, 0.5), (5, 9, 2.0, 0.9), (1, 4, 1.0, 0.4)):
        z, v, y = rng.standard_normal((N, V)), rng.standard_normal((N, V)), rng.integers(0, V, N)
        expected = numerical_gradient(lambda x, v=v, y=y, T=T, s=share: _distillation(x, v, y, T, s), z)
        require_close(
            f"against central differences, for {N} rows of {V} with T = {T:g} and share {share:g}, dlogits",
            require_array(attempt(1.0, z, v, y, T, share), "dlogits"),
            expected,
            tolerance=1e-7,
        )


# --- The compute-optimal size -----------------------------------------------------------------------------------


@exercise(answer=solutions.compute_optimal)
def compute_optimal(attempt: Attempt) -> None:
    for number, constants in enumerate(((60.0, 0.45, 900.0, 0.5, 1.7), (406.4, 0.34, 410.7, 0.28, 1.69))):
        A, alpha, B, beta, E = constants
        theta = np.array([np.log(A), alpha, np.log(B), beta, np.log(E)])
        with in_case(f"for A = {A:g}, α = {alpha:g}, B = {B:g}, β = {beta:g}"):
            _judge_optimum(attempt, theta, A, B, first=not number)


def _judge_optimum(attempt: Attempt, theta: np.ndarray, A: float, B: float, first: bool) -> None:
    _, alpha, _, beta, _ = theta
    operations = np.array([1e14, 1e16])
    n, d = (
        require_array(each, name) for each, name in zip(unpack(attempt(theta, operations), "N", "D"), "ND", strict=True)
    )
    for name, each in (("N", n), ("D", d)):
        require(each.shape == (2,), f"for two budgets {name} has shape {each.shape}: it is one number for each, (2,)")
        require(np.isfinite(each).all() and (each > 0).all(), f"{name} is {each[0]:.4g}: both are positive numbers")
    spent = n * d / operations
    require(not np.allclose(spent, 1), "N · D is C: the budget is C = 6 N D")
    require(not np.allclose(spent, 6), "N · D is 6 C: the budget is C = 6 N D, so N · D is C / 6")
    require(np.allclose(spent, 1 / 6), f"N and D cost {6 * spent[0]:.3g} times the budget C = 6 N D")
    right_n, right_d = solutions.compute_optimal(theta, operations)
    growth = np.log(n[1] / n[0]) / np.log(100)
    exponent = beta / (alpha + beta)
    if not np.allclose(n, right_n):
        require(
            not np.allclose(n, right_d),
            "N and D are exchanged: N is the one that grows with the power β / (α + β)",
        )
        require(
            not np.isclose(growth, alpha / (alpha + beta), atol=1e-3),
            f"N grows with the power α / (α + β) = {alpha / (alpha + beta):.3f} of C: the faster the model's term "
            "falls, the less the model has to grow, so it is β above",
        )
        require(
            not np.isclose(growth, (1 + beta) / (2 + alpha + beta), atol=1e-3),
            "N and D come from α A / N^(α+1) = β B / D^(β+1), the derivatives by N and by D: where N grows by a "
            "percent, D shrinks by a percent, so it is the derivatives by log N and by log D that are equal",
        )
        require(
            np.isclose(growth, exponent, atol=1e-3),
            f"N grows with the power {growth:.3f} of C, and the condition α A / N^α = β B / D^β gives "
            f"β / (α + β) = {exponent:.3f}",
        )
        factor = n[0] / right_n[0]
        a, b = np.log(A), np.log(B)
        candidates = {
            (alpha / beta) ** (-1 / (alpha + beta)): "are α and β, the factors from the derivative, left out?",
            (alpha * A / (beta * B)) ** (-2 / (alpha + beta)): "is the fraction α A / (β B) upside down?",
            (alpha / beta) ** (-2 / (alpha + beta)): "α and β before the two losses are exchanged: it is α A / (β B)",
            (A / B) ** (-2 / (alpha + beta)): "A and B are exchanged: it is α A / (β B)",
            6**exponent: "in the formula N · D is C, and it is C / 6",
            6 ** (exponent - 1): "C is taken to the power, and divided by 6 after: it is C / 6 to the power",
            (alpha * a / (beta * b) * beta * B / (alpha * A)) ** (1 / (alpha + beta)): (
                "theta holds the logarithms a = log A and b = log B, not A and B"
            ),
            (alpha * A / (beta * B)) ** (1 - 1 / (alpha + beta)): "the root 1 / (α + β) of α A / (β B) is not taken",
            (alpha * A / (beta * B)) ** (-1 / (alpha + beta)): "N has the right power, and A, B, α and β are not in it",
        }
        for value, hint in candidates.items():
            require(not np.isclose(factor, value), f"N is {factor:.4g} times the best one: {hint}")
    require(
        not np.array_equal(n, np.round(right_n)), "N is rounded to whole parameters: the contract asks for it as it is"
    )
    require_close("N", n, right_n)
    require_close("D", d, right_d)
    other = theta + np.array([0, 0, 0, 0, 1.0])
    require(
        np.allclose(attempt(other, operations)[0], n),
        "another E changes N: a constant does not move where a minimum is",
    )
    if first:
        alone = unpack(attempt(theta, 1e16), "N", "D")
        require(
            all(np.shape(each) == () for each in alone) and np.allclose(alone, [n[1], d[1]]),
            "for a budget that is a number, and not an array, N and D must be numbers too",
        )


# --- The gradient of the fit ------------------------------------------------------------------------------------

NAMES = "a", "α", "b", "β", "e"
WIDE = 10.0  # a delta larger than any residual


def _terms(theta: Any, log_n: Any, log_d: Any) -> np.ndarray:
    """The logarithms of the three terms of each training's loss, (3, n)."""
    a, alpha, b, beta, e = theta
    return np.stack([a - alpha * log_n, b - beta * log_d, e + 0 * log_n])


def _objective(theta: Any, log_n: Any, log_d: Any, log_loss: Any, delta: float) -> float:
    """The sum of the Huber losses, as the lesson's forward computes it."""
    terms = _terms(theta, log_n, log_d)
    residuals = terms.max(axis=0) + np.log(np.exp(terms - terms.max(axis=0)).sum(axis=0)) - log_loss
    size = np.abs(residuals)
    return float(np.where(size <= delta, size**2 / 2, delta * (size - delta / 2)).sum())


def _runs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A law, and training runs: log N, log D, log L, with residuals on both sides of 0 and of delta."""
    rng = np.random.default_rng(seed)
    theta = np.array([4.1, 0.45, 6.8, 0.5, 0.53])
    log_n, log_d = rng.uniform(9, 14, count), rng.uniform(13, 17, count)
    log_loss = np.log(np.exp(_terms(theta, log_n, log_d)).sum(axis=0)) + 0.02 * rng.standard_normal(count)
    return theta, log_n, log_d, log_loss


@exercise(answer=solutions.objective_backward)
def objective_backward(attempt: Attempt) -> None:
    theta, log_n, log_d, log_loss = _runs(9, 0)

    def found(delta: float, dloss: float = 1.0, at: Any = theta) -> np.ndarray:
        return require_array(attempt(dloss, at, log_n, log_d, log_loss, delta), "dtheta")

    square = found(WIDE)
    require(square.shape == (5,), f"dtheta has shape {square.shape}: it is a number for each of a, α, b, β, e, (5,)")
    right = solutions.objective_backward(1.0, theta, log_n, log_d, log_loss, WIDE)
    require_precision("dtheta", square, right)
    if not np.allclose(square, right):
        _explain(square, right, theta, log_n, log_d, log_loss)
    require_close("dtheta where all residuals are below delta", square, right)
    terms = np.exp(_terms(theta, log_n, log_d))
    shares, residuals = terms / terms.sum(axis=0), np.log(terms.sum(axis=0)) - log_loss
    for delta in (0.01, 1e-3):
        expected = solutions.objective_backward(1.0, theta, log_n, log_d, log_loss, delta)
        inside, size, sign = np.abs(residuals) <= delta, np.abs(residuals), np.sign(residuals)
        given = found(delta)
        with in_case(f"with delta = {delta:g}, where some residuals are larger,"):
            require(
                not np.allclose(given, right),
                "dtheta is that of squares: beyond delta Huber's loss is a line, and the pull of a residual stops "
                "growing",
            )
            for pulls, hint in (
                (np.where(inside, residuals, 0), "they are left out: they count less, but they count"),
                (np.where(inside, residuals, delta), "they pull with +delta, and a pull has the sign of the residual"),
                (np.minimum(residuals, delta), "negative ones must be cut off too, at −delta"),
                (np.where(inside, residuals, sign), "they pull with 1, and the line's slope is delta"),
                (np.where(inside, residuals, delta * (size - delta / 2)),
                 "they pull with their loss, and its slope is delta"),
            ):  # fmt: skip
                require(not np.allclose(given, _slopes(shares, log_n, log_d) @ pulls), f"dtheta is wrong: {hint}")
            require(
                not np.allclose(given, np.clip(right, -delta, delta)),
                "dtheta is clipped, and it is the residuals that are clipped, each before the sum",
            )
            require_close("dtheta", given, expected, factors={"1/delta: beyond delta the slope is delta": 1 / delta})
    small = found(0.01)
    require(np.allclose(found(0.01, dloss=-3.0), -3 * small), "with dloss = −3 dtheta must be −3 times that with 1")
    huge = theta + np.array([3000.0, 0, 3000, 0, 3000])
    shifted = require_array(attempt(1.0, huge, log_n, log_d, log_loss + 3000, 0.01), "dtheta")
    require(
        np.isfinite(shifted).all() and np.allclose(shifted, small),
        "with 3000 on a, b, e and on all of log L it changes, or is NaN: take the largest of the three terms off "
        "before exp",
    )
    exact = _runs(4, 2)
    for law, x, y, z in ((exact[0] + 0.1, *exact[1:]), (np.array([1.0, 0.2, 0.5, 0.1, 0.3]), *_runs(6, 3)[1:])):
        for delta in (0.03, 1.0):
            expected = numerical_gradient(lambda t, x=x, y=y, z=z, d=delta: _objective(t, x, y, z, d), law)
            given = require_array(attempt(1.0, law, x, y, z, delta), "dtheta")
            require_close(
                f"against central differences, for {len(x)} training runs, dtheta", given, expected, tolerance=1e-6
            )


def _slopes(shares: Any, log_n: Any, log_d: Any) -> np.ndarray:
    """The slopes of log L by the five constants, for shares of the three terms, (5, n)."""
    return np.stack([shares[0], -shares[0] * log_n, shares[1], -shares[1] * log_d, shares[2]])


def _explain(given: np.ndarray, right: np.ndarray, theta: Any, log_n: Any, log_d: Any, log_loss: Any) -> None:
    """Raise `Wrong` with the mistake that gives a wrong gradient of squares, if it is a known one."""
    terms = np.exp(_terms(theta, log_n, log_d))
    shares, logs = terms / terms.sum(axis=0), np.log(terms.sum(axis=0))
    r = logs - log_loss

    def slopes(shares: Any, x: Any, y: Any, pull: Any) -> np.ndarray:
        return _slopes(shares, x, y) @ pull

    signed = slopes(shares, -log_n, -log_d, r)
    for wrong, hint in (
        (right[[0, 2, 4, 1, 3]], "the order is that of theta: a, α, b, β, e"),
        (right / len(r), "it is the mean over the training runs, and the loss is their sum"),
        (-right, "it has the wrong sign: a residual is the prediction less log L"),
        (signed, "α and β stand with a minus in the terms, so their slopes have one too"),
        (slopes(terms, log_n, log_d, r), ("the terms themselves are used as slopes: of a logarithm of a sum of "
         "exponentials the slopes are their shares in the sum, a softmax")),
        (slopes(np.ones_like(terms), log_n, log_d, r), ("each term has the slope 1, as if log L were their sum: what "
         "counts is its share in the sum of the exponentials")),
        (slopes(shares, 1, 1, r), "the slopes by α and β lack log N and log D"),
        (slopes(shares, np.exp(log_n), np.exp(log_d), r), ("the slopes by α and β hold N and D, and the terms hold "
         "their logarithms")),
        (slopes(shares, log_d, log_n, r), "log N and log D are exchanged"),
        (slopes(shares, log_n, log_d, np.exp(logs) - np.exp(log_loss)), ("the residuals are those of L, and the fit's "
         "are those of log L")),
        (2 * right, "it is twice what it should be: Huber's loss is r²/2"),
        (slopes(shares, log_n, log_d, np.sign(r)), ("every residual pulls with its sign alone, and below delta it "
         "pulls with its size")),
        (slopes(shares, log_n, log_d, np.abs(r)), "the sign of the residual is lost"),
        (slopes(terms / terms.sum(axis=1, keepdims=True), log_n, log_d, r), ("the softmax is over the "
         "training runs: it is over the three terms of each")),
        (slopes(shares, log_n, log_d, logs - np.exp(log_loss)), "log_loss holds logarithms already"),
        (slopes(shares, log_n, log_d, np.exp(logs) - log_loss), "the prediction is of L, and log_loss is of log L"),
        (right / WIDE, "it is divided by delta: up to delta Huber's slope is r itself"),
        (WIDE * slopes(shares, log_n, log_d, np.sign(r)), "every residual pulls with delta, and below it with r"),
        (slopes(shares, log_n, log_d, np.maximum(r, 0)), "residuals below 0 do not pull, and all do"),
        (slopes(shares, log_n, log_d, np.minimum(r, 0)), "residuals above 0 do not pull, and all do"),
        (right[[2, 3, 0, 1, 4]], "a and b, α and β are exchanged: theta is a, α, b, β, e"),
        (slopes(shares, log_n, log_d, r**2 / 2), "each training pulls with its loss r²/2, and the slope is r"),
    ):  # fmt: skip
        require(not np.allclose(given, wrong), f"where all residuals are below delta dtheta is wrong: {hint}")
    *_, e = theta
    logarithm = np.stack([*_terms(theta, log_n, log_d)[:2], np.full(len(log_n), np.log(e))])
    mistaken = np.exp(logarithm)
    require(
        not np.allclose(given, slopes(mistaken / mistaken.sum(0), log_n, log_d, np.log(mistaken.sum(0)) - log_loss)),
        "where all residuals are below delta dtheta is wrong: e is a logarithm already, log E, so none is taken of it",
    )
    good = [name for name, mine, true in zip(NAMES, given, right, strict=True) if np.isclose(mine, true)]
    require(
        not good,
        f"where all residuals are below delta dtheta is right for {', '.join(good)} and wrong for the others",
    )


# --- A step of the fit ------------------------------------------------------------------------------------------


def _weighted(slopes: np.ndarray, residuals: np.ndarray, weights: np.ndarray, of_curvature: Any = None) -> np.ndarray:
    """The undamped step with these weights, and with others in the curvature if they are given."""
    others = weights if of_curvature is None else of_curvature
    return -np.linalg.solve(slopes.T @ (others[:, None] * slopes), slopes.T @ (weights * residuals))


@exercise(answer=solutions.damped_step)
def damped_step(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    slopes = rng.standard_normal((8, 5)) * np.array([1, 3, 1, 4, 0.5])
    goal = rng.standard_normal(5)
    exact = -slopes @ goal  # a step of `goal` takes all residuals to 0

    def found(residuals: Any, damping: float, delta: float, slopes: Any = slopes) -> np.ndarray:
        (step,) = require_arrays([attempt(residuals, slopes, damping, delta)], "the step")
        return step

    step = found(exact, 0.0, 100.0)
    require(step.shape == (5,), f"the step has shape {step.shape}: it is a number for each constant, (5,)")
    gradient = slopes.T @ exact
    require(not np.allclose(step, -goal), "the step leads away: it must lower the residuals, and has the wrong sign")
    require(
        not np.allclose(step, -gradient), "the step is minus the gradient: it still has to be divided by the curvature"
    )
    require(
        not np.allclose(step, -slopes.T @ slopes @ gradient),
        "the step is the gradient times the curvature: it is divided by it, as np.linalg.solve does",
    )
    mean = {"the number of residuals: gradient and curvature are both sums, or both means": float(len(exact))}
    mean |= {"1 / the number of residuals: gradient and curvature are both sums, or both means": 1 / len(exact)}
    halves = {"½: a step goes all of the way to where the residuals are 0": 0.5}
    case = "without damping, where one step takes all residuals to 0, the step"
    require_close(case, step, goal, tolerance=1e-8, factors=mean | halves)
    damped = found(exact, 0.5, 100.0)
    right = solutions.damped_step(exact, slopes, 0.5, 100.0)
    curvature = slopes.T @ slopes
    for matrix, hint in (
        (curvature + 0.5 * np.eye(5), ("damping times 1 is added: it is damping times the diagonal itself, so that "
         "each constant is damped by its own scale")),
        (curvature * 1.5, "all of the curvature is damped, and only its diagonal is"),
        (curvature, "the damping has no effect"),
        (np.diag(np.diag(curvature)) * 1.5, "only the diagonal of the curvature is left"),
        (curvature - 0.5 * np.diag(np.diag(curvature)), "the damping is subtracted, and must be added"),
        (curvature + 0.25 * np.diag(np.diag(curvature)), "the damping is squared"),
        (curvature + 0.5 * np.trace(curvature) * np.eye(5),
         "each constant is damped by the sum of the diagonal: it is damped by its own number there"),
        (curvature + 0.5 * np.diag(np.sqrt(np.diag(curvature))), "the roots of the diagonal are added, not it itself"),
        (0.5 * curvature + np.diag(np.diag(curvature)), "the damping stands at the wrong one of the two"),
        (curvature + 0.5 * np.diag(curvature), ("np.diag of a matrix is a vector, and added to a matrix it is added to "
         "each row: its diagonal alone is damped")),
    ):  # fmt: skip
        require(
            not np.allclose(damped, -np.linalg.solve(matrix, gradient)), f"with damping 0.5 the step is wrong: {hint}"
        )
    everywhere = 100 / np.abs(exact)
    scaled = slopes.T @ (everywhere[:, None] * slopes)
    scaled += 0.5 * np.diag(np.diag(scaled))
    require(
        not np.allclose(damped, -np.linalg.solve(scaled, slopes.T @ (everywhere * exact))),
        "with damping 0.5 the step is wrong: residuals up to delta have the weight 1, and not delta / |r|",
    )
    require_close("with damping 0.5 the step", damped, right, tolerance=1e-8)
    rough = exact.copy()
    rough[2] += 500  # the others are below delta
    robust = found(rough, 0.0, 20.0)
    weights = np.minimum(1, 20 / np.abs(rough))
    for wrong, hint in (
        (solutions.damped_step(rough, slopes, 0.0, 1e9), ("the outlier counts in full: beyond delta a residual has the "
         "weight delta / |r|")),
        (-np.linalg.solve(curvature, slopes.T @ (weights * rough)), ("the weights stand in the gradient and not in the "
         "curvature")),
        (_weighted(slopes, rough, weights**2),
         "the weights are squared: they stand once in the gradient and once in the curvature"),
        (-np.linalg.solve(slopes.T @ (weights[:, None] * slopes), gradient + 500 * slopes[2]),
         "the weights stand in the curvature and not in the gradient"),
        (_weighted(slopes, rough, weights, of_curvature=weights**2),
         "the weights are squared in the curvature: they stand there once, as in the gradient"),
        (_weighted(slopes, rough, weights**2, of_curvature=weights), ("the weights are squared in the gradient, or the "
         "residuals are clipped and weighted: a weight stands there once, as in the curvature")),
        (_weighted(slopes, rough, np.where(np.abs(rough) <= 20, 1, 1 / np.abs(rough))),
         "beyond delta the weight is 1 / |r|, and it is delta / |r|"),
        (-np.linalg.lstsq(slopes[np.abs(rough) <= 20], rough[np.abs(rough) <= 20], rcond=None)[0],
         "residuals beyond delta are left out: they count less, but they count"),
        (_weighted(slopes, rough, np.where(np.abs(rough) <= 20, 1, 20)), ("beyond delta the weight is delta, and it is "
         "delta / |r|")),
        (_weighted(slopes, rough, np.sqrt(weights)), "the roots of the weights are used: it is the weights themselves"),
        (-np.linalg.solve(slopes.T @ ((weights == 1)[:, None] * slopes), slopes.T @ (weights * rough)),
         ("residuals beyond delta are left out of the curvature: there they have their weight too")),
    ):  # fmt: skip
        require(not np.allclose(robust, wrong), f"with a residual of {rough[2]:.0f} the step is wrong: {hint}")
    require_close(
        f"with a residual of {rough[2]:.0f} and delta = 20 the step",
        robust,
        solutions.damped_step(rough, slopes, 0.0, 20.0),
        tolerance=1e-8,
    )
    below = rough.copy()
    below[2] -= 1000  # an outlier below 0
    require_close(
        "with an outlier below 0, where |residual| decides, the step",
        found(below, 0.0, 20.0),
        solutions.damped_step(below, slopes, 0.0, 20.0),
        tolerance=1e-8,
    )
    both = found(rough, 0.5, 20.0)
    matrix = slopes.T @ (weights[:, None] * slopes)
    unweighted = -np.linalg.solve(matrix + 0.5 * np.diag(np.diag(curvature)), slopes.T @ (weights * rough))
    case = f"with a residual of {rough[2]:.0f}, delta = 20 and damping 0.5 the step"
    require(
        not np.allclose(both, unweighted), f"{case} is wrong: the diagonal that is damped is that of slopesᵀ W slopes"
    )
    require_close(case, both, solutions.damped_step(rough, slopes, 0.5, 20.0), tolerance=1e-8)
    near = exact / np.abs(exact).max() * 20
    near[3] *= 30 / np.abs(near[3])  # a little beyond delta
    require_close(
        f"with a residual of {near[3]:.0f} and delta = 20 the step",
        found(near, 0.0, 20.0),
        solutions.damped_step(near, slopes, 0.0, 20.0),
        tolerance=1e-8,
    )
    zero = exact.copy()
    zero[1] = 0.0
    given = found(zero, 0.1, 0.3)
    require(np.isfinite(given).all(), "a residual of exactly 0 gives NaN: is delta divided by it?")
    require_close("where one residual is exactly 0 the step", given, solutions.damped_step(zero, slopes, 0.1, 0.3))
    for count, width in ((19, 5), (12, 3)):
        J, r = rng.standard_normal((count, width)), rng.standard_normal(count)
        require_close(
            f"for {count} training runs and {width} constants the step",
            found(r, 0.01, 0.4, J),
            solutions.damped_step(r, J, 0.01, 0.4),
            tolerance=1e-8,
        )
