"""Lesson 07: the feed-forward network, layer normalisation, dropout, and all of it around a sub-layer."""

import numpy as np

from minitransformer import ops

from ..checks import (
    in_case,
    require,
    require_array,
    require_arrays,
    require_close,
    require_gradients,
    require_none_of,
    type_name,
    unpack,
)
from ..exercise import Attempt, exercise
from . import solutions


@exercise(answer=solutions.feed_forward_forward)
def feed_forward_forward(attempt: Attempt) -> None:
    for T, C, F in ((4, 3, 5), (2, 6, 4), (3, 3, 3), (1, 5, 2)):
        rng = np.random.default_rng(T)
        x = rng.standard_normal((T, C))
        weights = [rng.standard_normal(shape) for shape in ((C, F), (F,), (F, C), (C,))]
        with in_case(f"for T = {T}, C = {C}, F = {F},"):
            _judge_feed_forward(attempt, x, *weights)


def _judge_feed_forward(attempt: Attempt, x, weight1, bias1, weight2, bias2) -> None:
    given = x, weight1, bias1, weight2, bias2
    cache = _y_and_cache(attempt(*given), "x, active, weight1, weight2")
    y, _ = attempt(*given)
    hidden = x @ weight1 + bias1
    active = np.maximum(0, hidden)
    require(
        y.shape == x.shape,
        f"y has shape {y.shape} and must have x's, {x.shape}: two products lead from C to F channels and back",
    )
    for likely, hint in (
        (hidden @ weight2 + bias2, "without the relu between the two products"),
        (np.maximum(0, active @ weight2 + bias2), "with a second relu at its end: there is one, between the products"),
        (np.maximum(0, x @ weight1) @ weight2 + bias2, "without bias1"),
        ((np.maximum(0, x @ weight1) + bias1) @ weight2 + bias2, "with bias1 added after the relu, and not before"),
        (active @ weight2, "without bias2"),
        (np.abs(hidden) @ weight2 + bias2, "with the absolute value where max(0, …) belongs"),
        (x + active @ weight2 + bias2, "with x added: the residual connection comes later, around this function"),
        (np.maximum(0, np.maximum(0, x) @ weight1 + bias1) @ weight2 + bias2, "with a relu of x too: there is one"),
        (np.maximum(0, x) @ weight1 @ weight2 + bias2, "with the relu before both products: it stands between them"),
        (np.minimum(0, hidden) @ weight2 + bias2, "with min(0, …) where max(0, …) belongs"),
        (active @ weight2 + 2 * bias2, "with bias2 twice"),
        (np.maximum(0, x @ weight1 - bias1) @ weight2 + bias2, "with bias1 subtracted"),
    ):
        require(len(x) == 1 or not np.allclose(y, likely), f"y is what equation 2 gives {hint}")
    if len(x) == x.shape[1] == len(bias1):
        for likely, hint in (
            (np.maximum(0, x @ weight1.T + bias1) @ weight2 + bias2, "weight1 transposed"),
            (active @ weight2.T + bias2, "weight2 transposed"),
        ):
            require(not np.allclose(y, likely), f"y is what equation 2 gives with {hint}")
    for shift, let_through, rule in (
        (100.0, hidden + 100, "h itself where h is above"),
        (-100.0, 0 * hidden, "0 below"),
    ):
        require(
            np.allclose(attempt(x, weight1, bias1 + shift, weight2, bias2)[0], let_through @ weight2 + bias2),
            f"with {shift:+g} on all of bias1 y is wrong: max(0, h) is {rule} 0, and it is an element of its own that "
            "decides",
        )
    near = "y, which is right where all of x @ weight1 + bias1 is far from 0 (max(0, …) has a corner there, no curve),"
    require_close(near, y, active @ weight2 + bias2)
    kept, hidden_kept, *both = cache
    for name, mine, right in (("x", kept, x), ("weight1", both[0], weight1), ("weight2", both[1], weight2)):
        require(
            isinstance(mine, np.ndarray) and np.array_equal(mine, right),
            f"where cache should have {name} it has something else: the order is x, active, weight1, weight2",
        )
    require(
        (hidden > 0).all() or not np.allclose(hidden_kept, hidden),
        "the cache has what stands before the relu: `active` is what the relu lets through, with 0 where it is shut",
    )
    require(
        not np.array_equal(hidden_kept, hidden > 0),
        "the cache has where the relu is open: `active` is what it lets through, the numbers themselves",
    )
    require_close("active, in the cache,", require_array(hidden_kept, "active"), active)


def _y_and_cache(result, names: str) -> tuple:
    """The cache that a forward returned beside y; it must be a tuple of the named parts."""
    require(
        isinstance(result, tuple | list) and len(result) == 2,
        f"it must return two things, y and cache, and returned {type_name(result)}"
        + (f" of {len(result)}" if isinstance(result, tuple | list) else ""),
    )
    y, cache = result
    require_array(y, "y")
    count = len(names.split(", "))
    require(
        isinstance(cache, tuple | list) and len(cache) == count,
        f"cache must be a tuple of {count}, ({names}), and is {type_name(cache)}"
        + (f" of {len(cache)}" if isinstance(cache, tuple | list) else ""),
    )
    return tuple(cache)


@exercise(answer=solutions.layernorm_forward)
def layernorm_forward(attempt: Attempt) -> None:
    for N, C in ((6, 4), (3, 8), (5, 5), (1, 40)):
        rng = np.random.default_rng(N)
        x = 3 + 2 * rng.standard_normal((N, C))
        x[0, 0] += C  # an outlier, which is larger the more channels there are
        gamma, beta = rng.standard_normal(C), rng.standard_normal(C)
        with in_case(f"for {N} row{'s' * (N > 1)} of {C} channels,"):
            _judge_layernorm(attempt, x, gamma, beta, 0.5)
    x = 1e6 + np.random.default_rng(0).standard_normal((3, 16))
    y = attempt(x, np.ones(16), np.zeros(16), 1e-5)[0]
    require(
        np.isfinite(y).all() and np.allclose(y.std(axis=-1), 1, atol=2e-5),
        "rows around a million lose their digits: the variance must be the mean of (x − mean)², and not the mean of x² "
        "less the square of the mean, two numbers that are nearly equal",
    )
    constant = attempt(np.full((2, 4), 3.0), np.ones(4), np.full(4, 7.0))[0]
    require(np.isfinite(constant).all(), "a row of equal numbers gives NaN or infinity: add eps under the root")
    small = 1e-3 * np.random.default_rng(1).standard_normal((2, 6))
    given = small, np.ones(6), np.zeros(6)
    require(
        np.allclose(attempt(*given)[0], solutions.layernorm_forward(*given)[0]),
        "where eps is not given it must be 1e-5",
    )


def _judge_layernorm(attempt: Attempt, x, gamma, beta, eps: float) -> None:
    N = len(x)
    y = attempt(x, gamma, beta, eps)
    normed, rstd, kept = _y_and_cache(y, "normed, rstd, gamma")
    y = y[0]
    require(y.shape == x.shape, f"y has shape {y.shape} and must have x's, {x.shape}")
    right, (n, r, _) = solutions.layernorm_forward(x, gamma, beta, eps)
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    over_rows = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + eps)
    for likely, hint in (
        (over_rows * gamma + beta, "channels are normed over the rows: each row has a mean and a variance of its own"),
        (centred / np.sqrt(x.var(axis=-1, ddof=1, keepdims=True) + eps) * gamma + beta,
         "the variance is divided by C − 1 (ddof=1): layer norm divides by C"),
        (centred / (np.sqrt(variance) + eps) * gamma + beta, "eps is added to the root: it stands under it"),
        (centred / (variance + eps) * gamma + beta, "it divides by the variance: the root is missing"),
        (centred * np.sqrt(variance + eps) * gamma + beta, "it multiplies by the standard deviation: divide by it"),
        (centred / np.sqrt(variance) * gamma + beta, "eps is not used"),
        (x / np.sqrt(variance + eps) * gamma + beta, "the mean is not subtracted"),
        (centred / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gamma + beta,
         "the variance is the mean of (x − mean)², and not of x²"),
        ((x - x.mean()) / np.sqrt(x.var() + eps) * gamma + beta,
         "mean and variance are of all numbers: each row has a mean and a variance of its own"),
        (centred / np.sqrt((centred**2).mean() + eps) * gamma + beta,
         "the variance is of all rows: each row has a variance of its own"),
        (centred / np.sqrt((centred**2).sum(axis=-1, keepdims=True) + eps) * gamma + beta,
         "the variance is a sum: it is the mean of (x − mean)² over the C channels"),
        (n * beta + gamma, "gamma and beta are exchanged: y = gamma · normed + beta"),
        (n, "gamma and beta are not used"),
        (n * gamma, "beta is not added"),
        ((n + beta) * gamma, "beta is scaled by gamma: y = gamma · normed + beta"),
        (n + beta, "gamma is not used"),
        (n * gamma - beta, "beta is subtracted: y = gamma · normed + beta"),
        (n * (1 + gamma) + beta, "1 is added to gamma: y = gamma · normed + beta"),
        (x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gamma + beta,
         "the mean is not subtracted, neither in the variance nor above it"),
        (centred / np.sqrt(np.abs(centred).mean(-1, keepdims=True) + eps) * gamma + beta,
         "the variance is the mean of (x − mean)², and not of |x − mean|"),
        (centred / np.sqrt(variance + eps**2) * gamma + beta, "eps is squared: it is added to the variance as it is"),
        ((x - np.median(x, axis=-1, keepdims=True))
         / np.sqrt(((x - np.median(x, axis=-1, keepdims=True)) ** 2).mean(-1, keepdims=True) + eps) * gamma + beta,
         "the median is subtracted, and must be the mean"),
        (centred / np.sqrt(x.var() + eps) * gamma + beta,
         "the variance is that of all numbers: each row has a variance of its own"),
    ):  # fmt: skip
        require(N == 1 or not np.allclose(y, likely), f"y is wrong: {hint}")
    require_close("y", y, right)
    require(
        np.shape(rstd) == (N, 1),
        f"rstd, in the cache, has shape {np.shape(rstd)} and must have {(N, 1)}: the backward multiplies rows by it, "
        "so the axis stays (keepdims=True)",
    )
    require(
        not np.allclose(rstd, 1 / r),
        "rstd, in the cache, is the standard deviation: it must be 1 divided by that",
    )
    require(not np.allclose(rstd, r**2), "rstd, in the cache, is 1 / (variance + eps), without the root")
    require(np.shape(normed) == x.shape, f"normed, in the cache, has shape {np.shape(normed)} and must have {x.shape}")
    require(not np.allclose(normed, right), "the cache has y where normed should be: before gamma and beta, please")
    require(not np.allclose(normed, centred), "the cache has x − mean where normed should be: multiply it by rstd")
    require_close("normed, in the cache,", require_array(normed, "normed"), n)
    require_close("rstd, in the cache,", require_array(rstd, "rstd"), r)
    require(
        isinstance(kept, np.ndarray) and np.array_equal(kept, gamma),
        "the third part of the cache must be gamma, as it was given",
    )


def _layernorm_backward(dy, normed, rstd, gamma):
    return ops.layernorm_backward(dy, (normed, rstd, gamma))


@exercise(answer=_layernorm_backward)
def layernorm_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x, gamma, dy = 3 * rng.standard_normal((4, 5)), rng.standard_normal(5), rng.standard_normal((4, 5))
    ones = np.ones(5)
    _, (normed, rstd, _) = ops.layernorm_forward(x, ones, 0 * ones, 0.0)

    dx, dgamma, dbeta = require_arrays(attempt(dy, normed, rstd, ones), "dx", "dgamma", "dbeta")
    for name, gradient, of in (("dx", dx, x), ("dgamma", dgamma, gamma), ("dbeta", dbeta, gamma)):
        likely = (
            "dx comes first, then dgamma, then dbeta"
            if name == "dx"
            else "gamma and beta serve every row, so their gradients sum over the rows"
        )
        require(
            gradient.shape == of.shape,
            f"{name} has shape {gradient.shape} and must have {of.shape}: {likely}",
        )
    require(
        not (np.allclose(dgamma, dy.sum(axis=0)) and np.allclose(dbeta, (dy * normed).sum(axis=0))),
        "dgamma and dbeta are exchanged: dx, dgamma, dbeta is the order",
    )
    twice = [np.concatenate([array, array]) for array in (dy, normed, rstd)]
    doubled = require_arrays(attempt(*twice, ones), "dx", "dgamma", "dbeta")
    for name, once, both in (("dgamma", dgamma, doubled[1]), ("dbeta", dbeta, doubled[2])):
        require(np.allclose(both, 2 * once), f"with each row given twice, {name} must double: rows add up")
    require(
        np.allclose(attempt(dy, 2 * normed, rstd, ones)[1], 2 * dgamma) and dgamma.any(),
        "with normed twice as large dgamma must double: y = gamma · normed + beta",
    )
    for number, name, slope in ((1, "dgamma", "dy · normed"), (2, "dbeta", "dy")):
        require(
            np.allclose(attempt(dy, normed, rstd, 2 * ones)[number], (dgamma, dbeta)[number - 1]),
            f"{name} depends on gamma, but y = gamma · normed + beta is linear in gamma and beta: the slope is "
            f"{slope}, summed",
        )
    require(
        np.allclose(attempt(dy, normed, 2 * rstd, ones)[1], dgamma),
        "dgamma changes with rstd, which normed holds already: the slope by gamma is normed",
    )
    moved = dy.copy()
    moved[-1] += rng.standard_normal(5)
    require(
        np.allclose(attempt(moved, normed, rstd, ones)[0][:-1], dx[:-1]),
        "another dy in the last row changes dx in the other rows: the means are over the channels of each row "
        "(axis=-1, keepdims=True)",
    )
    centred, along = dy - dy.mean(axis=-1, keepdims=True), normed * (dy * normed).mean(axis=-1, keepdims=True)
    mistakes = {
        "lacks the factor rstd: normed = a · rstd, so all of da has it": centred - along,
        "has dn where rstd · dn belongs: normed = a · rstd": centred - rstd * along,
        "comes from a = normed · rstd: normed = a · rstd, so a is normed / rstd": rstd * centred - rstd**5 * along,
        "comes from a = normed · rstd, and has dn where rstd · dn belongs: normed = a · rstd, so a is normed / rstd": (
            centred - rstd**5 * along
        ),
    }
    require_none_of("dx", dx, rstd * (centred - along), mistakes)
    require(
        np.allclose(attempt(dy, normed, 2 * rstd, ones)[0], 2 * dx),
        "dx is not proportional to rstd: a row of numbers ten times as large must get a gradient ten times smaller",
    )
    require(
        np.allclose(dx.sum(-1), 0),
        "a row of dx does not sum to 0, but adding the same number to all of x leaves y as it is: is mean(dn) "
        "subtracted, with the mean and not the sum?",
    )
    require(
        np.allclose((dx * normed).sum(-1), 0),
        "dx · normed is not 0 in each row, but moving x along normed leaves y as it is: is normed · mean(dn · normed) "
        "subtracted, with the mean and not the sum?",
    )
    require(
        np.allclose(attempt(2 * dy, normed, rstd, ones)[0], attempt(dy, normed, rstd, 2 * ones)[0]),
        "with gamma twice as large dx must double: y = gamma · normed + beta, so dn = dy · gamma",
    )
    tilted = attempt(dy, normed, rstd, gamma)[0]
    require(
        np.allclose(tilted.sum(-1), 0) and np.allclose((tilted * normed).sum(-1), 0),
        "it is right where all of gamma is the same, and not elsewhere: both means are of dn = dy · gamma, not of dy",
    )
    require_gradients(
        lambda x, gamma, beta: ops.layernorm_forward(x, gamma, beta, 0.0),
        lambda dy, cache: attempt(dy, *cache),
        {"x": x, "gamma": gamma, "beta": rng.standard_normal(5)},
    )
    _, cache = ops.layernorm_forward(x, gamma, 0 * gamma, 2.0)
    require(
        np.allclose(attempt(dy, *cache)[0], ops.layernorm_backward(dy, cache)[0]),
        "dx is right for ε = 0, and not where ε counts and the variance of normed is below 1: the mean of dn · normed "
        "is over C, and not over the sum of normed²",
    )
    for N, C in ((3, 8), (6, 3)):
        dy, x, gamma = rng.standard_normal((N, C)), rng.standard_normal((N, C)), rng.standard_normal(C)
        _, cache = ops.layernorm_forward(x, gamma, 0 * gamma, 0.0)
        found = require_arrays(attempt(dy, *cache), "dx", "dgamma", "dbeta")
        for name, a, e in zip(("dx", "dgamma", "dbeta"), found, ops.layernorm_backward(dy, cache), strict=True):
            require(
                e is not None and a.shape == e.shape and np.allclose(a, e),
                f"with rows of 5 channels it is right, with {N} rows of {C} {name} is wrong: is a number written where "
                "C belongs?",
            )


@exercise(answer=solutions.dropout_forward)
def dropout_forward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    for rate, shape in ((0.2, (40, 25)), (0.0, (40, 25)), (0.35, (300,)), (0.35, (5, 4, 30))):
        x, uniform = rng.uniform(1, 2, shape), rng.random(shape)
        uniform.flat[7] = rate  # a number equal to the rate is not below it: the element is kept
        x.flat[::7], x.flat[1::5] = 0.0, -x.flat[1::5]  # zeros and negative numbers are kept or dropped as others are
        with in_case(f"for x of shape {shape} and rate {rate},"):
            _judge_dropout(attempt, x, rate, uniform)


def _judge_dropout(attempt: Attempt, x: np.ndarray, rate: float, uniform: np.ndarray) -> None:
    result = attempt(x, rate, uniform)
    y, kept = unpack(result, "y", "kept")
    require(y.dtype != bool or kept.dtype == bool, "the two are returned in the other order: y, then kept")
    for name, part in (("y", y), ("kept", kept)):
        require(part.shape == x.shape, f"{name} has shape {part.shape} and must have x's, {x.shape}")
    require(kept.dtype == bool, f"kept holds {kept.dtype} and must be True or False")
    require_array(result[0], "y")
    require(
        kept.all() or not np.array_equal(kept[x != 0], y[x != 0] == 0),
        "kept is True where y is 0: it must say what is kept, not what is dropped",
    )
    require(
        rate == 0 or abs(kept.mean() - rate) > 0.1,
        f"it keeps {kept.mean():.0%} of the elements: the rate is the share that is dropped",
    )
    for numbers, some in (("0", x != 0), ("0 or below", x > 0)):
        require(
            not np.array_equal(kept, (uniform >= rate) & some),
            f"kept is False where x is {numbers}: it is `uniform` that says what is kept, whatever x and y are",
        )
    differ = kept != (uniform >= rate)
    require(
        not (differ.any() and np.array_equal(differ, uniform == rate)),
        "an element is dropped whose number is exactly the rate: only those below it are",
    )
    require(not differ.any(), "kept must be True exactly where `uniform` is not below the rate")
    require(not y[~kept].any(), "an element that is not kept must be 0")
    require(
        rate == 0 or not np.array_equal(y, x * kept),
        f"the mean of y is {y.mean() / x.mean():.2f} times that of x: what is kept must make up for what is dropped",
    )
    factors = {
        "(1 − rate) / rate: divide by 1 − rate": rate and (1 - rate) / rate,
        "(1 − rate)²: divide by 1 − rate": (1 - rate) ** 2,
        "1 − rate²: multiply by 1 / (1 − rate), not by 1 + rate": 1 - rate**2,
        "(1 − rate) / (1 + rate): divide by 1 − rate, the share that is kept": (1 - rate) / (1 + rate),
        "1 − rate over the share that happened to be kept: divide by 1 − rate itself": (1 - rate) / kept.mean(),
    }
    require_close("y", y, x * kept / (1 - rate), factors={name: factor for name, factor in factors.items() if factor})


@exercise(answer=solutions.add_norm_backward)
def add_norm_backward(attempt: Attempt) -> None:
    for rate in (0.4, 0.25):
        with in_case(f"at rate {rate},"):
            _judge_add_norm(attempt, rate)


def _judge_add_norm(attempt: Attempt, rate: float) -> None:
    rng = np.random.default_rng(0)
    x, gamma, beta = rng.standard_normal((4, 6)), rng.standard_normal(6), rng.standard_normal(6)
    weight, kept = rng.standard_normal((6, 6)), rng.random((4, 6)) >= rate

    def forward(x, gamma, beta):
        out = np.sin(x @ weight)
        y, norm_cache = ops.layernorm_forward(x + out * kept / (1 - rate), gamma, beta)
        return y, ((x,), kept, rate, norm_cache)

    received = []

    def sublayer_backward(dout, sublayer_cache):
        received.append((np.array(dout), sublayer_cache))
        return (dout * np.cos(x @ weight)) @ weight.T

    _, cache = forward(x, gamma, beta)
    dy = rng.standard_normal((4, 6))
    dsum, _, _ = ops.layernorm_backward(dy, cache[-1])
    require_arrays(attempt(dy, cache, sublayer_backward), "dx", "dgamma", "dbeta")
    require(len(received) == 1, f"sublayer_backward must be called once, and was {len(received)} times")
    arrived, sublayer_cache = received[0]
    require(
        isinstance(sublayer_cache, tuple) and len(sublayer_cache) == 1,
        "sublayer_backward must get the gradient and the sub-layer's own cache, the first of the four in `cache`",
    )
    require(
        not arrived[~kept].any(),
        "the sub-layer gets a gradient where its output was dropped: what dropped out had no part in the loss",
    )
    require(
        not np.allclose(arrived, dy * kept / (1 - rate)),
        "the sub-layer gets dy itself, through dropout alone: it stands inside the norm, which comes first on the way "
        "back",
    )
    require_close(
        "what arrives at the sub-layer",
        arrived,
        dsum * kept / (1 - rate),
        factors={
            "1 − rate: the backward of dropout divides as its forward does": 1 - rate,
            "(1 − rate)²: the backward of dropout divides as its forward does": (1 - rate) ** 2,
            "(1 − rate) / rate: divide by 1 − rate": (1 - rate) / rate,
            "1 − rate over the share that happened to be kept: divide by 1 − rate itself": (1 - rate) / kept.mean(),
        },
    )
    dx = require_arrays(attempt(dy, cache, sublayer_backward), "dx", "dgamma", "dbeta")[0]
    through = sublayer_backward(dsum * kept / (1 - rate), ())
    mistakes = {
        "is the gradient of the sum alone: what the sub-layer sends back to x is added to it": dsum,
        "has what the sub-layer sends back with a minus: x was used twice, and gradients add": dsum - through,
        "is the mean of both ways: x was used twice, and gradients add": (dsum + through) / 2,
        "is what the sub-layer sends back alone: x also goes round it": through,
    }
    require_none_of("dx", dx, dsum + through, mistakes)
    lane = require_arrays(attempt(dy, cache, lambda dout, _: 0 * dout), "dx", "dgamma", "dbeta")[0]
    require(lane.any(), "with a sub-layer that sends nothing back, dx is 0: the other branch, x itself, is missing")
    require(
        not np.allclose(lane, dsum * kept / (1 - rate)),
        "the other branch, x itself, goes through dropout too: only the sub-layer's output is dropped",
    )
    require(
        np.allclose(lane, dsum),
        "with a sub-layer that sends nothing back, dx must be the gradient of the sum, x + …, which the norm, and no "
        "dropout, stands behind",
    )
    require_gradients(
        forward,
        lambda dy, cache: attempt(
            dy, cache, lambda dout, sublayer_cache: (dout * np.cos(sublayer_cache[0] @ weight)) @ weight.T
        ),
        {"x": x, "gamma": gamma, "beta": beta},
    )
    _judge_add_norm_of_another_width(attempt, rate)


def _judge_add_norm_of_another_width(attempt: Attempt, rate: float) -> None:
    rng = np.random.default_rng(1)
    dy, x, gamma, kept = *rng.standard_normal((2, 3, 9)), rng.standard_normal(9), rng.random((3, 9)) >= rate
    _, norm_cache = ops.layernorm_forward(x, gamma, 0 * gamma)
    arguments = dy, ((x,), kept, rate, norm_cache), lambda dout, sublayer_cache: dout * np.cos(sublayer_cache[0])
    found = require_arrays(attempt(*arguments), "dx", "dgamma", "dbeta")
    for name, a, e in zip(("dx", "dgamma", "dbeta"), found, solutions.add_norm_backward(*arguments), strict=True):
        require(
            a.shape == e.shape and np.allclose(a, e),
            f"4 rows of 6 channels are right, 3 rows of 9 are not: {name} is wrong: is a number written where N or C "
            "belongs?",
        )
