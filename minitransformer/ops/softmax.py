"""Softmax over the last axis."""

import math

import numpy as np

from .arguments import Array, arguments, gradient_of, unchecked


@arguments("x ... n", products=True)
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
"""For other ops, which have checked their arguments already."""


def softmax_in_place(x: Array) -> Array:
    """Write the softmax of x over it and return it: attention's scores are large, and nothing needs them later."""
    with np.errstate(over="ignore"):  # the lowest number minus the largest is −inf, as exp needs it
        x -= row_maximum(x)
    np.exp(x, out=x)
    x /= total(x)
    return x


LOWEST = {np.dtype(dtype): np.finfo(dtype).min for dtype in (np.float32, np.float64)}
MANY_ROWS, SHORT_FOR_MAXIMA, SHORT_FOR_SUMS = 64, 20, 100
"""NumPy reduces rows one by one, and starting each takes longer than a short one itself. Of many short rows, such as
attention's weights in decoding, maxima are taken along the columns of a transposed copy, and sums are a product with
ones: two to seven times as fast. Longer rows are summed by NumPy, in pairs, which is more exact."""


def row_maximum(x: Array) -> Array:
    """Return the maxima of rows, `(..., 1)`; the lowest finite number instead of −inf, since −inf − (−inf) is NaN."""
    num_rows, width = math.prod(x.shape[:-1]), x.shape[-1]
    if width > SHORT_FOR_MAXIMA or num_rows < MANY_ROWS:
        return np.maximum.reduce(x, axis=-1, keepdims=True, initial=LOWEST[x.dtype])
    columns = x.reshape(num_rows, width).T.copy()
    return np.maximum.reduce(columns, axis=0, initial=LOWEST[x.dtype]).reshape(*x.shape[:-1], 1)


def total(exponentials: Array) -> Array:
    """Return the sum of each row, `(..., 1)`, which is at least 1, the maximum's; 1 for a row of all −inf too."""
    num_rows, width = math.prod(exponentials.shape[:-1]), exponentials.shape[-1]
    if width > SHORT_FOR_SUMS or num_rows < MANY_ROWS:
        return np.maximum(np.add.reduce(exponentials, axis=-1, keepdims=True), 1)
    sums = exponentials.reshape(num_rows, width) @ np.ones(width, exponentials.dtype)
    return np.maximum(sums, 1).reshape(*exponentials.shape[:-1], 1)
