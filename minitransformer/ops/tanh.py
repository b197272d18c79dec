"""The squashing function of recurrent networks and of additive attention."""

import numpy as np

from .arguments import check_floats, check_gradient
from .arrays import Array


def tanh_forward(x: Array) -> tuple[Array, Array]:
    """`y = tanh(x)`, element-wise, for any shape. Source: LeCun et al. 1998, §4.4."""
    check_floats("x", x)
    y = np.tanh(x)
    return y, y


def tanh_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · (1 − y²)`."""
    y = cache
    check_gradient("dy", dy, y)
    return dy * (1 - y * y)
