"""The rectifier between the feed-forward network's two linear maps."""

import numpy as np

from .arguments import check_floats, check_gradient
from .arrays import Array


def relu_forward(x: Array) -> tuple[Array, Array]:
    """`y = max(0, x)`, element-wise, for any shape. Source: Vaswani 2017, §3.3, eq. 2."""
    check_floats("x", x)
    y = np.maximum(x, 0)
    return y, y


def relu_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · [x > 0]`; the subgradient at 0 is 0."""
    y = cache
    check_gradient("dy", dy, y)
    return dy * (y > 0)
