"""Softmax over the last axis, and its logarithm."""

import numpy as np

from .arguments import FLOAT_DTYPES, check_floats, check_gradient, check_rows
from .arrays import Array, row_sums

LOWEST = {dtype: np.finfo(dtype).min for dtype in FLOAT_DTYPES}


def softmax_forward(x: Array) -> tuple[Array, Array]:
    """`y_i = exp(x_i) / Σ_j exp(x_j)` over the last axis of x `(..., n)`.

    The row's maximum is subtracted first, so nothing overflows. A row of all −inf (a query with nothing to attend to)
    gives zeros, never NaN. Source: Vaswani 2017, §3.2.1.
    """
    check_floats("x", x)
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
    x /= _total(x)
    return x


def log_softmax(x: Array) -> Array:
    """`log softmax(x) = x − m − log Σ exp(x − m)` over the last axis, m the row's maximum. For decoding only."""
    check_floats("x", x)
    check_rows("x", x)
    if not x.size:
        return x.copy()
    shifted = below_max(x)
    shifted -= np.log(_total(np.exp(shifted)))  # a row of all −inf stays −inf
    return shifted


def _total(exponentials: Array) -> Array:
    """Each row's sum, `(..., 1)`: at least 1, which is the maximum's own; but 0 for a row of all −inf, here 1."""
    return np.maximum(row_sums(exponentials), 1)


def below_max(x: Array, out: Array | None = None) -> Array:
    """`x − m`, m the row's maximum: exponents that are at most 0."""
    with np.errstate(over="ignore"):  # the largest number below 0 minus the largest above it is −inf, as exp needs it
        return np.subtract(x, finite_max(x), out=out)


def finite_max(x: Array) -> Array:
    """The maximum of each row, `(..., 1)`; the lowest number where it is −inf, since −inf − (−inf) is NaN."""
    return np.maximum.reduce(x, axis=-1, keepdims=True, initial=LOWEST[x.dtype])
