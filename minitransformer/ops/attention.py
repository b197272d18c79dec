"""Scaled dot-product attention."""

import math

import numpy as np

from .arguments import Array, arguments, check_flag, check_number, check_positive, gradient_of, has_products
from .dropout import Dropout, check_dropout, drop, drop_backward
from .pattern import Pattern, Window, allowed_keys, check_pattern, check_window, pattern_of
from .softmax import softmax_gradient, softmax_in_place


@arguments(
    "query B H Tq D≥1, key B Hk|H Tk D, value B Hk Tk Dv≥1, bias?:broadcast B H Tq Tk, key_mask?:bool B Tk",
    causal=check_flag,
    window=check_window,
    pattern=check_pattern,
    scale=check_number,
    softcap=check_positive,
    dropout=check_dropout,
)
@has_products
def attention_forward(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    window: Window = None,
    pattern: Pattern | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout: Dropout | None = None,
) -> tuple[Array, tuple]:
    """`softmax(scale · query keyᵀ + bias) value`, `(B, H, Tq, Dv)`, with `scale = 1/√D` unless it is given.

    `causal`, `key_mask` and `window` say which keys a query may attend to (see `attention_mask`); a `Pattern` says it
    in one value. A query with none gets zeros and sends no gradient. On long sequences a sparse pattern costs what it
    keeps. With `Hk < H` query head h uses key/value head `h // (H/Hk)`: grouped heads, or with `Hk = 1` multi-query
    attention. `softcap = c` bends scores into (−c, c), `c·tanh(score/c)`, before the bias is added. `dropout` acts on
    the weights.
    Sources: Vaswani 2017, §3.2.1, eq. 1, and Table 1's restricted self-attention; Ainslie et al. 2023 (grouped heads);
    Gemma Team 2024 (softcap).
    """
    factor = query.dtype.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if window is not None or pattern is not None:
        whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
        pieces = whole.pieces(query.shape[2], key.shape[2])
        if pieces is not None:
            from .sparse_attention import forward_in_pieces  # here, because that file is made of this one's functions

            return forward_in_pieces(query, key, value, bias, pieces, factor, softcap, dropout)
        mask = allowed_keys(query.shape[2], key.shape[2], False, None, None, pattern=whole)
    else:
        mask = None if key_mask is None else key_mask[:, None, None, :]  # (B, 1, 1, Tk)
        if causal and query.shape[2] > 1:  # one query alone is the last, which sees every key
            past = np.tri(query.shape[2], key.shape[2], key.shape[2] - query.shape[2], dtype=bool)  # (Tq, Tk)
            mask = past if mask is None else mask & past
    scores, capped = scores_forward(query, key, bias, mask, factor, softcap)
    weights = softmax_in_place(scores)
    dropped, dropout_cache = (weights, None) if dropout is None else drop(weights, dropout)
    out = (fold(dropped, key) @ value).reshape(*query.shape[:3], value.shape[3])  # (B, H, Tq, Dv)
    bias_shape = None if bias is None else bias.shape
    return out, (query, key, value, factor, weights, dropped, dropout_cache, capped, bias_shape)


@gradient_of(lambda query, key, value, *_: ((*query.shape[:3], value.shape[3]), query.dtype))
@has_products
def attention_backward(dout: Array, cache: tuple) -> tuple[Array, ...]:
    """Gradients `(dquery, dkey, dvalue)`; with a bias, `dbias` too, summed over the axes that were broadcast."""
    if isinstance(cache[3], list):
        from .sparse_attention import backward_in_pieces

        return backward_in_pieces(dout, cache)
    query, key, value, factor, weights, dropped, dropout_cache, capped, bias_shape = cache
    dout = fold(dout, key)
    dvalue = fold(dropped, key).swapaxes(-1, -2) @ dout  # out = dropped @ value
    ddropped = (dout @ value.swapaxes(-1, -2)).reshape(weights.shape)  # (B, H, Tq, Tk)
    dweights = drop_backward(ddropped, dropout_cache)
    dscores = softmax_gradient(dweights, weights)  # 0 where the weight is 0: behind the mask
    dquery, dkey = scores_backward(dscores, query, key, factor, capped)
    if bias_shape is None:
        return dquery, dkey, dvalue
    return dquery, dkey, dvalue, sum_to(bias_shape, dscores)


# --- Its steps ------------------------------------------------------------------------------------------------


def scores_forward(
    query: Array, key: Array, bias: Array | None, mask: Array | None, factor: Array, softcap: float | None
) -> tuple[Array, Array | None]:
    """The scores `(B, H, Tq, Tk)`, −inf where `mask` is false; and the tanh of the softcap, for the backward."""
    rows, capped = fold(query * factor, key), None  # (B, Hk, H/Hk·Tq, D)
    if 1 < rows.shape[2] <= 16 and key.shape[2] >= 256:  # then BLAS is up to twice as fast with the keys first
        scores = np.ascontiguousarray((key @ rows.swapaxes(-1, -2)).swapaxes(-1, -2))
    else:
        scores = rows @ key.swapaxes(-1, -2)
    scores = scores.reshape(*query.shape[:3], key.shape[2])
    if softcap is not None:
        capped = np.tanh(scores / float(softcap))  # a number of NumPy's would make float64 of float32
        scores = capped * float(softcap)
    if bias is not None:
        scores += bias
    if mask is not None:
        scores = np.where(mask, scores, scores.dtype.type(-np.inf))
    return scores, capped


def scores_backward(
    dscores: Array, query: Array, key: Array, factor: Array, capped: Array | None
) -> tuple[Array, Array]:
    """Gradients `(dquery, dkey)`."""
    if capped is not None:
        dscores = dscores * (1 - capped * capped)  # capped = tanh(scores / softcap)
    dscores = fold(dscores, key)
    dquery = (dscores @ key).reshape(query.shape)  # scores = (query * factor) @ keyᵀ
    dquery *= factor
    dkey = dscores.swapaxes(-1, -2) @ fold(query * factor, key)
    return dquery, dkey


def fold(x: Array, key: Array) -> Array:
    """`(B, H, T, W)` → `(B, Hk, H/Hk·T, W)`: the heads that share a key head become more rows of one.

    So keys and values are not copied, and the sum of these heads' gradients is part of the product.
    """
    batch, heads, time, width = x.shape
    kv_heads = key.shape[1]
    return x if heads == kv_heads else x.reshape(batch, kv_heads, heads // kv_heads * time, width)


def sum_to(shape: tuple[int, ...], gradient: Array) -> Array:
    """The gradient of an array of this shape that was broadcast: the sum over the axes that it lacks or has one of."""
    lead = gradient.ndim - len(shape)
    axes = (*range(lead), *(lead + axis for axis, size in enumerate(shape) if size == 1))
    return gradient.sum(axis=axes).reshape(shape)
