"""Lesson 00: the chain rule on arrays, and gradient checking."""

import math

import numpy as np

from minitransformer import gradcheck, ops

from ..checks import distinct, largest_error, require, require_close, require_gradients, require_vectorized, unpack
from ..exercise import Attempt, exercise


def _linear_backward(dy, x, weight):
    cache = ops.linear_forward(x, weight, np.zeros(weight.shape[1]))[1]
    return ops.linear_backward(dy, cache)


def _numerical_gradient(f, x, eps=1e-5):
    return gradcheck.numerical_gradient(f, x, eps=eps)


@exercise(answer=_linear_backward)
def linear_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((5, 3)), rng.standard_normal((3, 4))
    dy = rng.standard_normal((5, 4))
    dx, dweight, dbias = unpack(attempt(dy, x, weight), "dx", "dweight", "dbias")
    shapes = {"dx": x.shape, "dweight": weight.shape, "dbias": (4,)}
    for (name, shape), gradient in zip(shapes.items(), (dx, dweight, dbias), strict=True):
        likely = "what is summed over is the index that the array does not have"
        if gradient.shape in shapes.values():
            likely = "that is another's shape; they are returned in the order dx, dweight, dbias"
        require(
            gradient.shape == shape,
            f"{name} has shape {gradient.shape}, and a gradient has its array's, {shape}: {likely}",
        )
    require(
        not np.allclose(dx, dy @ weight.reshape(4, 3)) and not np.allclose(dweight, x.reshape(3, 5) @ dy),
        "an array is reshaped where it must be transposed: `.T` turns it round, `reshape` only cuts the same sequence "
        "of numbers into other rows",
    )
    twice = unpack(attempt(2 * dy, x, weight), "dx", "dweight", "dbias")
    for name, once, two in zip(shapes, (dx, dweight, dbias), twice, strict=True):
        require(
            np.allclose(two, 2 * once), f"twice the dy does not give twice the {name}: every term of a gradient has dy"
        )
    doubled = unpack(attempt(np.concatenate([dy, dy]), np.concatenate([x, x]), weight), "dx", "dweight", "dbias")
    for name, once, twice in (("dweight", dweight, doubled[1]), ("dbias", dbias, doubled[2])):
        require(
            np.allclose(twice, 2 * once),
            f"with each row given twice, {name} must double: rows add up, they are not averaged",
        )
    other_row = dy.copy()
    other_row[-1] += 1
    require(
        np.allclose(np.asarray(attempt(other_row, x, weight)[0])[:-1], dx[:-1]),
        "another dy in the last row changes dx in the other rows: each row of x has made the same row of y",
    )
    slopes = {"dx": "weight", "dweight": "x"}
    for what, given in (("x", (dy, 2 * x, weight)), ("weight", (dy, x, 2 * weight))):
        for name, once, more in zip(shapes, (dx, dweight, dbias), attempt(*given), strict=True):
            times = 2 if slopes.get(name) == what else 1
            require(
                np.allclose(more, times * once),
                f"with {what} twice as large {name} must {'double' if times == 2 else 'stay what it is'}: in y = x @ "
                "weight + bias the slope by x is weight, by weight it is x, and by bias 1",
            )
    require_gradients(
        lambda x, weight, bias: (x @ weight + bias, (x, weight)),
        lambda dy, cache: attempt(dy, *cache),
        {"x": x, "weight": weight, "bias": np.zeros(4)},
    )
    for N, C_in, C_out in ((5, 3, 1), (5, 1, 4), (1, 3, 4)):
        x1, weight1, dy1 = (rng.standard_normal(shape) for shape in ((N, C_in), (C_in, C_out), (N, C_out)))
        found = unpack(attempt(dy1, x1, weight1), "dx", "dweight", "dbias")
        right = unpack(_linear_backward(dy1, x1, weight1), *shapes)
        for name, a, e in zip(shapes, found, right, strict=True):
            require(
                a.shape == e.shape and np.allclose(a, e),
                f"for x of shape {x1.shape} and weight of shape {weight1.shape} {name}, of shape {a.shape}, is wrong; "
                f"its shape must be {e.shape}: an axis of length 1 stays (np.squeeze takes them all away)",
            )
    require_vectorized(
        lambda: attempt(dy, x, weight),
        lambda: attempt(np.tile(dy, (50, 1)), np.tile(x, (50, 1)), weight),
        "it is right, and loops over the rows in Python: each of the three sums is one NumPy expression",
    )


@exercise(answer=_numerical_gradient)
def numerical_gradient(attempt: Attempt) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3))
    weights = np.arange(1.0, 7.0).reshape(2, 3)
    begin, moved = x.copy(), []  # for each call of f, the number of elements of x that differ from the start
    touched = np.zeros(x.shape, dtype=bool)

    def linear(at):
        nonlocal touched
        touched |= at != begin
        moved.append(int(np.count_nonzero(at != begin)))
        return (weights * at).sum()

    slope = attempt(linear, x)
    require(
        np.shape(slope) == x.shape,
        f"for x of shape {x.shape} the gradient has shape {np.shape(slope)}: one slope for each element",
    )
    require(
        any(moved),
        "f is only ever called at x itself: after `up = x` both names are the same array, and `x.copy()` is another",
    )
    require(
        max(moved) == 1,
        f"f is called with {max(moved)} elements moved at once, and one must move at a time, whatever the shape of x: "
        "`np.ndindex(x.shape)` visits every place",
    )
    require(
        touched.all(),
        f"of the {x.size} elements of x, of shape {x.shape}, {np.count_nonzero(~touched)} are never moved: each has a "
        "slope of its own, and `np.ndindex(x.shape)` visits every place",
    )
    factors = {
        "2: is it divided by 2ε?": 2.0,
        "½: is it f(x + ε) − f(x − ε), one step up and one down?": 0.5,
        "2ε: is it divided?": 2e-5,
        "ε²: `/ 2 * eps` multiplies by ε, `/ (2 * eps)` divides by it": 1e-10,
    }
    require(
        np.abs(slope).max() < 1e3,
        f"for Σ weights·x a slope is {largest_error(np.asarray(slope), 0.0)[1]}: does the division come before the "
        "subtraction? The difference needs brackets",
    )
    require(
        not np.allclose(slope, weights * begin),
        "for Σ weights·x each slope is x times too large: the step is ε itself, and not ε times the element",
    )
    require(
        np.count_nonzero(slope) > 1,
        "all numbers of the gradient but one are 0: is the array made, or cleared, anew at each place?",
    )
    require_close("the gradient of Σ weights·x", slope, weights, tolerance=1e-8, factors=factors)
    require(
        not np.allclose(attempt(lambda at: -(weights * at).sum(), x), weights),
        "of a function that falls the gradient is positive: is the sign of the difference lost?",
    )

    x = 4 * x
    cubic = attempt(lambda x: (x**3).sum(), x, 1e-3) - 3 * x**2  # ε²: the third derivative of x³ is 6
    off = np.abs(cubic).max()
    require(
        off < 1e-5,
        f"for Σ x³ with ε = 1e-3 it is off by {off:.0e}, and not by ε² = 1e-6: "
        "is the difference taken from f(x + ε) to f(x − ε), around x?",
    )
    require(
        off > 1e-7,
        f"for Σ x³ with ε = 1e-3 it is off by {off:.0e}, less than ε² = 1e-6: is the `eps` used that was given? (More "
        "than two values of f for a slope come closer, and two are asked for.)",
    )
    worst = cubic.flat[np.argmax(np.abs(cubic - 1e-6))]
    require(
        abs(worst - 1e-6) < 1e-8,
        f"for Σ x³ with ε = 1e-3 each element must be off by ε² = 1e-6, and one is off by "
        f"{distinct(worst, 1e-6, digits=2)[0]}: is the step ε for each, however large it is?",
    )
    off = np.abs(attempt(lambda x: (x**3).sum(), x) - 3 * x**2).max()
    require(off < 3e-9, f"where no ε is given, it is off by {off:.0e} for Σ x³, and by 1e-10 with the default of 1e-5")
    for shape in ((4,), (2, 1, 3), ()):
        weights = np.arange(1.0, 1 + math.prod(shape)).reshape(shape)
        slope = attempt(lambda x, weights=weights: (weights * x).sum(), np.array(weights / 2))
        require_close(f"for x of shape {shape} the gradient of Σ weights·x", slope, weights, tolerance=1e-8)
    columns = np.asfortranarray(x)
    require_close(
        "for an x that lies in memory column by column (where `ravel` of a copy is another copy) the gradient of Σ x²",
        attempt(lambda x: (x**2).sum(), columns),
        2 * x,
        tolerance=1e-8,
    )
