"""The rectifier between the feed-forward network's two linear maps."""

import numpy as np

from .arguments import Array, arguments, gradient_of


@arguments("x ...")
def relu_forward(x: Array) -> tuple[Array, Array]:
    """`y = max(0, x)`, element by element. Source: Vaswani 2017, §3.3, eq. 2."""
    y = np.maximum(x, 0)
    return y, y


@gradient_of(lambda y: y)
def relu_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · [x > 0]`; the subgradient at 0 is 0."""
    y = cache  # positive where x is; the next layer keeps y too, so keeping it costs no memory
    return dy * (y > 0)
