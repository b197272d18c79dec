"""CLIP's contrastive loss: a picture's vector shall be nearest to that of its own text. Source: Radford et al. 2021.

A batch has B pairs. Each vector is divided by its length, so that a product is a cosine; the similarities are then the
logits of two classifications, which of the B texts belongs to a picture and which of the B pictures to a text.
"""

import math
from typing import Any

from ..ops import Array, Ops, numpy_ops

FIRST_LOG_SCALE = math.log(1 / 0.07)
"""The logarithm of the scale at the start: a temperature of 0.07 (§2.5)."""

MOST_LOG_SCALE = math.log(100)
"""The logarithm of the largest scale (§2.5)."""


def contrastive_loss_forward(
    a: Array, b: Array, log_scale: Array, label_smoothing: float = 0.0, ops: Ops = numpy_ops
) -> tuple[Any, tuple]:
    """`(CE(s U Vᵀ) + CE(s V Uᵀ)) / 2` with the rows `u = a / |a|`, `v = b / |b|`, `s = exp(log_scale)`: figure 3.

    a, b `(B, C)`: row i of one belongs to row i of the other, and to no other row. log_scale `()`, learned too, is the
    logarithm of 1 / temperature. CE is the cross-entropy whose targets are 0, …, B − 1. All is computed in the type of
    log_scale, which is wide beside narrow vectors. Raises ValueError unless both have the same shape, of two axes.
    """
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError(f"a and b have shapes {tuple(a.shape)} and {tuple(b.shape)}, expected the same, (B, C)")
    (u, lengths_a), (v, lengths_b) = (unit_rows(ops.cast(each, log_scale.dtype)) for each in (a, b))
    scale, own = math.e**log_scale, ops.asarray(range(len(a)), "int64")
    logits = scale * (u @ v.T)  # (B, B)
    by_row, row_cache = ops.cross_entropy.forward(logits, own, label_smoothing)
    by_column, column_cache = ops.cross_entropy.forward(scale * (v @ u.T), own, label_smoothing)
    return (by_row + by_column) / 2, (u, lengths_a, v, lengths_b, logits, scale, row_cache, column_cache, a.dtype, ops)


def contrastive_loss_backward(dloss: float, cache: tuple) -> tuple[Array, Array, Array]:
    """Return da and db `(B, C)`, and dlog_scale `()`."""
    u, lengths_a, v, lengths_b, logits, scale, row_cache, column_cache, dtype, ops = cache
    # loss = (by_row + by_column) / 2
    dcolumns = ops.cross_entropy.backward(dloss, column_cache)
    dlogits = (ops.cross_entropy.backward(dloss, row_cache) + dcolumns.T) / 2
    # logits = exp(log_scale) · u vᵀ
    dlog_scale, dproducts = (dlogits * logits).sum(), scale * dlogits
    da, db = _unit_backward(dproducts @ v, u, lengths_a), _unit_backward(dproducts.T @ u, v, lengths_b)
    return ops.cast(da, dtype), ops.cast(db, dtype), dlog_scale


def unit_rows(x: Array) -> tuple[Array, Array]:
    """Return the rows divided by their lengths, and the lengths `(B, 1)`; a row of zeros stays."""
    lengths = (x * x).sum(-1, keepdims=True) ** 0.5
    lengths = lengths + (lengths == 0)
    return x / lengths, lengths


def _unit_backward(du: Array, u: Array, lengths: Array) -> Array:
    """u = x / |x|: what of du lies along u would change the length alone, and is lost."""
    return (du - (du * u).sum(-1, keepdims=True) * u) / lengths
