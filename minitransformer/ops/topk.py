"""The largest elements of each row."""

import math

import numpy as np

from .arguments import Array, arguments, check_integer


@arguments("x ...", k=check_integer)
def topk(x: Array, k: int) -> tuple[Array, Array]:
    """The `k` largest elements of the last axis and their indices, both `(..., k)`, the largest first.

    Of equal elements the one with the smaller index comes first; NaN is the largest of all. For decoding only.
    Raises `ValueError` unless 1 ≤ k ≤ the length of the last axis.
    """
    n = x.shape[-1] if x.ndim else 0
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}, expected 1 to {n}, the length of the last axis")
    if k == 1:
        return x.max(axis=-1, keepdims=True), x.argmax(axis=-1, keepdims=True)  # the first of equals
    indices = _repeated_argmax(x, k) if k <= 16 else None
    if indices is None:
        indices = np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, indices, axis=-1), indices


def _repeated_argmax(x: Array, k: int) -> Array | None:
    """The indices of `topk` by k calls of argmax, for small k faster than sorting; `None` if one of them is −inf."""
    remaining = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).copy()
    rows = np.arange(len(remaining))
    indices = np.empty((len(remaining), k), dtype=np.int64)
    for rank in range(k):
        best = indices[:, rank] = remaining.argmax(axis=-1)
        if np.isneginf(remaining[rows, best]).any():
            return None  # elements taken before are −inf now too: argmax can't tell them from the rest
        remaining[rows, best] = -np.inf
    return indices.reshape(*x.shape[:-1], k)
