"""The ops of a search for the best text: the log-probability of every token, and the largest of them. No backward."""

import math

import numpy as np

from .arguments import Array, arguments, check_integer
from .softmax import row_maximum, total


@arguments("x ... n", products=True)
def log_softmax(x: Array) -> Array:
    """`log softmax(x) = x − m − log Σ exp(x − m)` over the last axis; m is the row's maximum."""
    with np.errstate(over="ignore"):
        shifted = x - row_maximum(x)
    shifted -= np.log(total(np.exp(shifted)))  # a row of all −inf stays −inf
    return shifted


@arguments("x ...", k=check_integer)
def topk(x: Array, k: int) -> tuple[Array, Array]:
    """Return the `k` largest elements of the last axis and their indices, both `(..., k)`, the largest first.

    Of equal elements the one with the smaller index comes first; NaN is the largest of all.
    Raises `ValueError` unless 1 ≤ k ≤ the length of the last axis.
    """
    n = x.shape[-1] if x.ndim else 0
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}, expected 1 to {n}, the length of the last axis")
    if k == 1:
        return x.max(axis=-1, keepdims=True), x.argmax(axis=-1, keepdims=True)  # the first of equal elements
    indices = _repeated_argmax(x, k) if k <= 16 else None
    if indices is None:
        indices = np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, indices, axis=-1), indices


def _repeated_argmax(x: Array, k: int) -> Array | None:
    """Return the indices of `topk` by k calls of argmax, faster than sorting for small k; `None` if one is −inf."""
    remaining = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).copy()
    rows = np.arange(len(remaining))
    indices = np.empty((len(remaining), k), dtype=np.int64)
    for rank in range(k):
        best = indices[:, rank] = remaining.argmax(axis=-1)
        if np.isneginf(remaining[rows, best]).any():
            return None  # elements taken before are −inf now too: argmax can't tell them from the rest
        remaining[rows, best] = -np.inf
    return indices.reshape(*x.shape[:-1], k)
