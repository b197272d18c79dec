"""The sigmoid: a gate between 0, nothing passes, and 1, everything does."""

import numpy as np

from .arguments import Array, arguments, gradient_of


@arguments("x ...")
def sigmoid_forward(x: Array) -> tuple[Array, Array]:
    """`y = 1 / (1 + e⁻ˣ)`, element by element. Source: Hochreiter & Schmidhuber 1997, appendix A.1."""
    with np.errstate(over="ignore"):  # far below 0 e⁻ˣ is inf, and 1 / inf is 0, as it should be
        y = 1 / (1 + np.exp(-x))
    return y, y


@gradient_of(lambda y: y)
def sigmoid_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · y · (1 − y)`."""
    y = cache
    return dy * y * (1 - y)
