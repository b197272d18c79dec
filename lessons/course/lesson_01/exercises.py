"""Lesson 01: softmax, cross-entropy with label smoothing."""

import numpy as np

from minitransformer import ops
from minitransformer.gradcheck import numerical_gradient

from ..checks import (
    distinct,
    peak_memory,
    require,
    require_close,
    require_float64,
    require_gradients,
    require_none_of,
    type_name,
    unpack,
)
from ..exercise import Attempt, exercise


def _softmax(x):
    return ops.softmax_forward(x)[0]


def _cross_entropy(logits, targets, label_smoothing=0.0):
    loss, cache = ops.cross_entropy_forward(logits, targets, label_smoothing=label_smoothing)
    return loss, ops.cross_entropy_backward(1.0, cache)


@exercise(answer=_softmax)
def softmax(attempt: Attempt) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3))
    y = attempt(x)
    require(isinstance(y, np.ndarray), f"it must return one array, not {type_name(y)}: the cache is not asked for")
    require(y.shape == x.shape, f"for x of shape {x.shape} it gives shape {y.shape}: each score has a probability")
    require(not np.allclose(y.sum(), 1), "all rows together sum to 1, and each row must: sum over the last axis alone")
    require(not np.allclose(y.sum(axis=0), 1), "the columns sum to 1, and the rows must: sum over the last axis")
    require_float64("softmax(x)", y)
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    mistakes = {
        "is e^x, not yet divided by the sum of its row": np.exp(x),
        "is e^(x − max), not yet divided by the sum of its row": exponentials,
        "is the logarithm of the probabilities": np.log(_softmax(x)),
        "is divided by the mean of the exponentials, and must be by their sum": 3 * _softmax(x),
        "is 1 / (1 + e^−x), of each score by itself: a row shares out 1": 1 / (1 + np.exp(-x)),
    }
    require_none_of("what it returns", y, _softmax(x), mistakes)
    worst = np.abs(y.sum(axis=-1) - 1).max()
    require(worst < 1e-9, f"a row's probabilities must sum to 1, and one row is off by {worst:.2g}")
    before, after = y[:, 0], attempt(x + np.array([1.0, 0, 0]))[:, 0]
    factor = (after / (1 - after) / (before / (1 - before)))[0]
    require(
        abs(factor - np.e) < 1e-6,
        f"one more on a score must multiply its odds by e = {distinct(np.e, factor)[0]}, and multiplies them by "
        f"{distinct(np.e, factor)[1]}: is exp taken of it, and nothing rounded?",
    )
    large = attempt(x + 1000)
    require(
        np.isfinite(large).all(),
        "with 1000 on every score it gives NaN: exp overflows unless the maximum goes first",
    )
    for shift, what in ((1000, "more"), (-1000, "less")):
        require(
            np.allclose(attempt(x + shift), y),
            f"with every score 1000 {what} the probabilities change, or are NaN, and only differences count: the row's "
            "maximum must go to 0, wherever it was",
        )
    far = attempt(np.array([[0.0, 2000.0, 0.0, 0.0]]))
    require(
        np.allclose(far, [[0, 1, 0, 0]]),
        "with one score 2000 above the others it is wrong, or NaN: what you subtract before exp must be the "
        "maximum itself, not the mean, and nothing is cut",
    )
    apart = attempt(np.stack([x[0], x[1] + 1000]))
    require(
        np.isfinite(apart).all() and np.allclose(apart[0], y[0]),
        "a row is lost when another row's scores are 1000 larger: subtract each row's own maximum",
    )
    require_close("softmax(x)", y, _softmax(x))
    cube = attempt(x.reshape(2, 2, 3))
    require(
        cube.shape == (2, 2, 3) and np.allclose(cube.sum(axis=-1), 1),
        "a matrix is right, and in an array of shape (2, 2, 3) the rows do not sum to 1: rows lie along the last axis, "
        "which is axis=-1 of any array, and axis=1 only of a matrix",
    )
    require_close("softmax of an array of shape (2, 2, 3)", cube, y.reshape(2, 2, 3))
    require_close("softmax of one row alone, an array of shape (3,),", attempt(x[0]), y[0])


@exercise(answer=ops.softmax_backward)
def softmax_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    y = _softmax(x)
    dx = attempt(dy, y)
    require(isinstance(dx, np.ndarray), f"it must return one array, not {type_name(dx)}")
    require(dx.shape == x.shape, f"dx has shape {dx.shape}, and a gradient has its array's, {x.shape}")
    other_row = dy.copy()
    other_row[1] += 1
    require(
        np.allclose(attempt(other_row, y)[0], dx[0]),
        "the first row's dx changes with the second row's dy: each row has its own sum, over the last axis",
    )
    only_first = np.zeros_like(dy)
    only_first[:, 0] = 1
    slopes = attempt(only_first, y)
    true_own = numerical_gradient(lambda x: _softmax(x)[0, 0], x)[0, 0]
    own, others = slopes[0, 0], slopes[0, 1:]
    require(
        own > -1e-12, f"raising a score raises its own probability, but here its slope is {own:.3f}: a sign is turned"
    )
    if not others.any():
        require(
            abs(own - true_own) < 1e-6,
            f"the slope of a probability by its own score is {distinct(true_own, own)[0]}, here "
            f"{distinct(true_own, own)[1]}: "
            "the score is in the denominator too, its own and every other one's",
        )
        require(False, "raising a score lowers the other probabilities: off the diagonal the Jacobian is not zero")
    total = attempt(np.ones_like(dy), y)
    halves = {
        "2y: the second half of the sum is taken off, and here it is added": 2 * y,
        "y − 1: both halves hold y_j, and here the second half has lost it": y - 1,
        "y − n·y²: in the second half y_j stands before the sum, and y_i stays in it": y - 4 * y**2,
    }
    for what, found in halves.items():
        require(not np.allclose(total, found), f"with dy = 1 everywhere dx must be 0, and here it is {what}")
    require(
        np.allclose(total, 0),
        f"with dy = 1 everywhere dx must be 0, since Σ y is 1 whatever the scores; here it is up to "
        f"{np.abs(total).max():.2g}: the mean of dy is weighted by y, and is not divided by n",
    )
    require(
        np.allclose(dx.sum(axis=-1), 0),
        "each row of dx must sum to 0, since the same on all of its scores changes nothing, and one sums to "
        f"{np.abs(dx.sum(axis=-1)).max():.2g}: is the mean that comes off dy weighted by y, and is all of it times y?",
    )
    require_gradients(lambda x: (_softmax(x), _softmax(x)), lambda dy, y: attempt(dy, y), {"x": x})
    require(
        np.allclose(attempt(1000 * dy, y), 1000 * dx),
        "1000 times the dy must give 1000 times the dx, and does not: is something cut, or added?",
    )
    x, dy = rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 3, 5))
    cube = attempt(dy, _softmax(x))
    require(
        cube.shape == x.shape and np.allclose(cube.sum(axis=-1), 0),
        "a matrix is right, and in an array of shape (2, 3, 5) the rows of dx do not sum to 0: the sum goes over the "
        "last axis, which is axis=-1 of any array, and axis=1 only of a matrix",
    )
    require_close("dx for an array of shape (2, 3, 5)", cube, ops.softmax_backward(dy, _softmax(x)))
    n = 500
    dy, y = rng.standard_normal((1, n)), _softmax(rng.standard_normal((1, n)))
    most = peak_memory(lambda: attempt(dy, y))
    require(
        most < 4 * n**2,
        f"it is right, and for one row of {n} scores it needs {most / 1e6:.1f} MB at a time, as much as {n} × {n} "
        "numbers: that is the Jacobian, and the last line of the derivation does without it",
    )


@exercise(answer=_cross_entropy)
def cross_entropy(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((4, 5)), np.array([0, 2, 2, 4])
    loss, dlogits = unpack(attempt(logits, targets), "loss", "dlogits")
    require(loss.shape == (), f"the loss is one number, the mean over the rows, and not an array of shape {loss.shape}")
    require(dlogits.shape == logits.shape, f"dlogits has shape {dlogits.shape}, and logits {logits.shape}")
    require_float64("dlogits", dlogits)
    factors = {
        "N: the loss is the mean over the rows, not the sum": 4.0,
        "1/V: the mean is over the rows alone, and over the tokens it is a sum": 0.2,
        "−1: log y is negative": -1.0,
        "1/log 2: the logarithm is natural": 1 / np.log(2),
    }
    other_row = logits.copy()
    other_row[1, :2] += 1
    require(
        np.allclose(unpack(attempt(other_row, targets), "loss", "dlogits")[1][0], dlogits[0]),
        "the first row's dlogits change with the second row's scores: each row has its own softmax, over the last axis",
    )
    right = _cross_entropy(logits, targets)[0]
    log_y, rows = np.log(_softmax(logits)), np.arange(4)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    below = np.log(np.exp(shifted).sum(axis=-1))
    mistakes = {
        "has ε/V and 1 − ε exchanged: at ε = 0 the target has all of q": -log_y.mean(),
        "is made of y, and must be of log y": -np.exp(log_y[rows, targets]).mean(),
        "is that of the tokens before the targets: ids are columns as they are": -log_y[rows, targets - 1].mean(),
        "counts every target in every row: `[np.arange(N), targets]` pairs each row with its own": (
            -log_y[:, np.unique(targets)].sum() / 4
        ),
        "takes the maximum off on one side alone: log y = (x − max) − log Σ e^(x − max)": (
            below - logits[rows, targets]
        ).mean(),
    }
    require_none_of("the loss without smoothing", loss, right, mistakes)
    require_close("the loss without smoothing", loss, right, factors=factors)
    shifted = unpack(attempt(logits + 1000, targets), "loss", "dlogits")[0]
    extreme = unpack(attempt(np.array([[0.0, 2000.0]]), np.array([0])), "loss", "dlogits")[0]
    require(
        np.isfinite(shifted) and np.isfinite(extreme),
        f"with large scores the loss is {shifted:.4g} and {extreme:.4g}: take the maximum off before exp, and never "
        "the log of a probability that may be 0",
    )
    require(
        abs(extreme - 2000) < 1e-6,
        "with scores 0 and 2000 and the first one right the loss is "
        f"{distinct(float(extreme), 2000)[0]} and must be 2000: is something added before the log, or cut?",
    )
    apart = unpack(attempt(logits + np.array([[0.0], [2000], [0], [0]]), targets), "loss", "dlogits")[0]
    require(
        np.allclose(apart, loss),
        "with one row's scores all 2000 higher the loss changes, or is not finite: take off each row's own maximum",
    )
    whole, some, more = (float(unpack(attempt(logits, targets, e), "loss", "dlogits")[0]) for e in (0.0, 0.3, 0.6))
    require(abs(some - whole) > 1e-9, "the loss is the same with a label_smoothing of 0 and of 0.3: is it used?")
    require(
        abs(more - whole - 2 * (some - whole)) < 1e-9,
        "the loss must change twice as much with ε = 0.6 as with 0.3, since q is linear in ε, and does not: is the ε "
        "used that was given, and q mixed, not the probabilities?",
    )
    smoothed = float(unpack(attempt(np.zeros((4, 5)), targets, 0.3), "loss", "dlogits")[0])
    told = distinct(np.log(5), smoothed)
    require(
        abs(smoothed - np.log(5)) < 1e-9,
        f"where all V scores are equal the loss is log V = {told[0]} whatever the smoothing, and here with ε = 0.3 it "
        f"is {told[1]}: q must sum to 1",
    )
    anything = [float(unpack(attempt(logits[:1], np.array([t]), 1.0), "loss", "dlogits")[0]) for t in (0, 1)]
    require(
        abs(anything[0] - anything[1]) < 1e-9,
        "with ε = 1 every token has the same share and the target cannot matter, but here it does: ε is shared among "
        "all V tokens, the target included",
    )
    for smoothing in (0.0, 0.3):
        loss, dlogits = unpack(attempt(logits, targets, smoothing), "loss", "dlogits")
        total = np.abs(dlogits.sum(axis=-1)).max()
        require(
            total < 1e-9,
            f"each row of dlogits must sum to 0, since a shift of all scores changes nothing; with ε = {smoothing} one "
            f"sums to {total:.3g}",
        )
        twice = unpack(attempt(np.tile(logits, (2, 1)), np.tile(targets, 2), smoothing), "loss", "dlogits")[1]
        require(
            np.allclose(2 * twice[:4], dlogits),
            "with every row given twice, each row counts half as much in the mean, and its dlogits must halve",
        )
        expected = numerical_gradient(lambda z, s=smoothing: _cross_entropy(z, targets, s)[0], logits)
        require_close("the loss", loss, _cross_entropy(logits, targets, smoothing)[0])
        require_close(
            f"dlogits with ε = {smoothing}, against central differences,",
            dlogits,
            expected,
            tolerance=1e-7,
            factors={
                "1/V: the mean is over the rows alone": 0.2,
                "2: that is the slope of a square, and here it is (y − q) / N": 2.0,
            },
        )
    sure = unpack(attempt(np.array([[0.0, 20.0, 0.0, 0.0, 0.0]]), np.array([0])), "loss", "dlogits")[1]
    require(
        np.allclose(sure, [[-1, 1, 0, 0, 0]]),
        "for a single row with the scores 0, 20, 0, 0, 0 and the first one right, dlogits begins with "
        f"{distinct(sure[0, 0], -1)[0]} and {distinct(sure[0, 1], 1)[0]}, and must begin with −1 and 1: is it cut? It "
        "is (y − q) / N as it comes",
    )
    for N, V in ((3, 7), (2, 3)):
        logits, targets = rng.standard_normal((N, V)), rng.integers(0, V, N)
        found, right = unpack(attempt(logits, targets, 0.3), "loss", "dlogits"), _cross_entropy(logits, targets, 0.3)
        for name, a, e in zip(("the loss", "dlogits"), found, right, strict=True):
            require(
                np.allclose(a, e),
                f"with N = 4 rows and V = 5 it is right, with N = {N} and V = {V} {name} is wrong where ε = 0.3: "
                "is a number written where one of them belongs?",
            )
