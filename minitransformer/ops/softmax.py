"""Softmax over the last axis, and its logarithm."""

import numpy as np

from ._checks import check_floats, check_gradient, check_rows
from .arrays import Array


def softmax_forward(x: Array) -> tuple[Array, Array]:
    """`y_i = exp(x_i) / Σ_j exp(x_j)` over the last axis of x `(..., n)`.

    The row's maximum is subtracted first, so nothing overflows. A row of all −inf (a query with nothing to attend to)
    gives zeros, never NaN. Source: Vaswani 2017, §3.2.1.
    """
    check_floats(x=x)
    check_rows("x", x)
    y = softmax_in_place(x.copy())
    return y, y


def softmax_backward(dy: Array, cache: Array) -> Array:
    """`dx = y · (dy − Σ_j dy_j y_j)`: the Jacobian `diag(y) − y yᵀ` times dy."""
    y = cache
    check_gradient("dy", dy, y)
    return y * (dy - np.vecdot(dy, y)[..., None])


def softmax_in_place(x: Array) -> Array:
    """`softmax_forward`'s output, written over `x`: attention's scores are large, and its own."""
    if not x.size:
        return x
    np.exp(below_max(x, out=x), out=x)
    total = x @ np.ones(x.shape[-1], x.dtype)  # a sum as a matrix–vector product
    x /= np.where(total == 0, 1, total)[..., None]  # a row of all −inf: 0 / 1
    return x


def log_softmax(x: Array) -> Array:
    """`log softmax(x) = x − m − log Σ exp(x − m)` over the last axis, m the row's maximum. For decoding only."""
    check_floats(x=x)
    check_rows("x", x)
    if not x.size:
        return x.copy()
    shifted = below_max(x)
    total = np.exp(shifted).sum(axis=-1, keepdims=True)
    return shifted - np.log(np.where(total == 0, 1, total))  # a row of all −inf stays −inf


def below_max(x: Array, out: Array | None = None) -> Array:
    """`x − m`, m the row's maximum: exponents that are at most 0."""
    with np.errstate(over="ignore"):  # the largest number below 0 minus the largest above it is −inf, as exp needs it
        return np.subtract(x, finite_max(x), out=out)


def finite_max(x: Array) -> Array:
    """The maximum of each row, `(..., 1)`; 0 where it is −inf, since −inf − (−inf) is NaN."""
    maximum = x.max(axis=-1, keepdims=True)
    return np.where(np.isneginf(maximum), 0, maximum)
