"""The squashing function of recurrent networks and of additive attention."""

import numpy as np

from .arguments import Array, arguments, gradient_of


@arguments("x ...")
def tanh_forward(x: Array) -> tuple[Array, Array]:
    """`y = tanh(x)`, element by element. Source: LeCun et al. 1998, §4.4."""
    y = np.tanh(x)
    return y, y


@gradient_of(lambda y: y)
def tanh_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · (1 − y²)`."""
    y = cache
    return dy * (1 - y * y)
