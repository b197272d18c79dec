"""CLIP's contrastive loss: a picture's vector shall be nearest to that of its own text. Source: Radford et al. 2021.

A batch has B pairs. Each vector is divided by its length, so that a product is a cosine; the similarities are then the
logits of two classifications, which of the B texts belongs to a picture and which of the B pictures to a text.
"""

from typing import Any

import numpy as np

from ..ops import cross_entropy_backward, cross_entropy_forward

Array = np.ndarray

FIRST_LOG_SCALE = float(np.log(1 / 0.07))
"""The logarithm of the scale at the start: a temperature of 0.07 (§2.5)."""


def contrastive_loss_forward(a: Array, b: Array, log_scale: Array) -> tuple[Any, tuple]:
    """`(CE(s U Vᵀ) + CE(s V Uᵀ)) / 2` with the rows `u = a / |a|`, `v = b / |b|`, `s = exp(log_scale)`: figure 3.

    a, b `(B, C)`: row i of one belongs to row i of the other, and to no other row. log_scale `()`, learned too, is the
    logarithm of 1 / temperature. CE is the cross-entropy whose targets are 0, …, B − 1. Raises ValueError unless both
    have the same shape, of two axes.
    """
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError(f"a and b have shapes {a.shape} and {b.shape}, expected the same, (B, C)")
    (u, lengths_a), (v, lengths_b) = _unit(a), _unit(b)
    logits = np.exp(log_scale) * (u @ v.T)  # (B, B)
    own = np.arange(len(a))
    by_row, row_cache = cross_entropy_forward(logits, own)
    by_column, column_cache = cross_entropy_forward(np.ascontiguousarray(logits.T), own)
    return (by_row + by_column) / 2, (u, lengths_a, v, lengths_b, logits, log_scale, row_cache, column_cache)


def contrastive_loss_backward(dloss: float, cache: tuple) -> tuple[Array, Array, Array]:
    """Return da and db `(B, C)`, and dlog_scale `()`."""
    u, lengths_a, v, lengths_b, logits, log_scale, row_cache, column_cache = cache
    # loss = (by_row + by_column) / 2
    dlogits = (cross_entropy_backward(dloss, row_cache) + cross_entropy_backward(dloss, column_cache).T) / 2
    # logits = exp(log_scale) · u vᵀ
    dlog_scale, dproducts = (dlogits * logits).sum(), np.exp(log_scale) * dlogits
    return _unit_backward(dproducts @ v, u, lengths_a), _unit_backward(dproducts.T @ u, v, lengths_b), dlog_scale


def _unit(x: Array) -> tuple[Array, Array]:
    """Return the rows divided by their lengths, and the lengths `(B, 1)`; a row of zeros stays."""
    lengths = np.sqrt((x * x).sum(-1, keepdims=True))
    lengths = np.where(lengths == 0, 1, lengths).astype(x.dtype)
    return x / lengths, lengths


def _unit_backward(du: Array, u: Array, lengths: Array) -> Array:
    """u = x / |x|: what of du lies along u would change the length alone, and is lost."""
    return (du - (du * u).sum(-1, keepdims=True) * u) / lengths
