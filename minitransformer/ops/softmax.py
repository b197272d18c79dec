"""Softmax over the last axis, and its logarithm."""

import numpy as np

from .arguments import Array, arguments, gradient_of, unchecked


@arguments("x ... n")
def softmax_forward(x: Array) -> tuple[Array, Array]:
    """`y_i = exp(x_i) / Σ_j exp(x_j)` over the last axis.

    The row's maximum is subtracted first, so nothing overflows. A row of all −inf (a query with nothing to attend to)
    gives zeros, never NaN. Source: Vaswani 2017, §3.2.1.
    """
    y = softmax_in_place(x.copy())
    return y, y


@gradient_of(lambda y: y)
def softmax_backward(dy: Array, cache: Array) -> Array:
    """`dx = y · (dy − Σ_j dy_j y_j)`: the Jacobian `diag(y) − y yᵀ` times dy."""
    y = cache
    dx = dy - np.vecdot(dy, y)[..., None]
    dx *= y
    return dx


softmax_gradient = unchecked(softmax_backward)
"""For other ops, which have checked what they were given."""


def softmax_in_place(x: Array) -> Array:
    """`softmax_forward`'s output, written over `x`: the scores of attention are many, and its own."""
    with np.errstate(over="ignore"):  # the lowest number minus the largest is −inf, as exp needs it
        x -= row_maximum(x)
    np.exp(x, out=x)
    x /= total(x)
    return x


@arguments("x ... n")
def log_softmax(x: Array) -> Array:
    """`log softmax(x) = x − m − log Σ exp(x − m)` over the last axis, m the row's maximum. For decoding only."""
    with np.errstate(over="ignore"):
        shifted = x - row_maximum(x)
    shifted -= np.log(total(np.exp(shifted)))  # a row of all −inf stays −inf
    return shifted


LOWEST = {np.dtype(dtype): np.finfo(dtype).min for dtype in (np.float32, np.float64)}


def row_maximum(x: Array) -> Array:
    """The maximum of each row, `(..., 1)`; where that is −inf the lowest number, since −inf − (−inf) is NaN."""
    return np.maximum.reduce(x, axis=-1, keepdims=True, initial=LOWEST[x.dtype])


def total(exponentials: Array) -> Array:
    """Each row's sum, `(..., 1)`: at least 1, which is the maximum's own; a row of all −inf has 0, here 1."""
    return np.maximum(np.add.reduce(exponentials, axis=-1, keepdims=True), 1)
