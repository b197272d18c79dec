"""The gate: how much passes, between nothing and everything."""

import numpy as np

from .arguments import check_floats, check_gradient
from .arrays import Array


def sigmoid_forward(x: Array) -> tuple[Array, Array]:
    """`y = 1 / (1 + exp(−x))`, element-wise, for any shape. Source: Hochreiter & Schmidhuber 1997, appendix A.1."""
    check_floats("x", x)
    with np.errstate(over="ignore"):  # exp(−x) = inf far below 0, and 1 / inf is the 0 that is meant
        y = np.exp(-x)
    y += 1
    y = np.divide(1, y)
    return y, y


def sigmoid_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · y · (1 − y)`."""
    y = cache
    check_gradient("dy", dy, y)
    slope = 1 - y
    slope *= y
    return dy * slope
