"""Scaled dot-product attention."""

import math
from typing import NamedTuple

import numpy as np

from .arguments import Array, arguments, check_flag, check_number, check_positive, gradient_of
from .dropout import GOLDEN, RESOLUTION, Dropout, check_dropout, drop, drop_backward, mix, row_hashes
from .pattern import Pattern, Piece, Places, Window, check_pattern, check_window, mask_of, pattern_of
from .softmax import LOWEST, row_maximum, softmax_gradient, softmax_in_place


@arguments(
    "query B H Tq D≥1, key B Hk|H Tk D, value B Hk Tk Dv≥1, bias?:broadcast B H Tq Tk, key_mask?:bool B Tk",
    causal=check_flag,
    window=check_window,
    pattern=check_pattern,
    scale=check_number,
    softcap=check_positive,
    dropout=check_dropout,
    products=True,
)
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
    attention. `softcap = c` bends scores into (−c, c), `c·tanh(score/c)`, before the bias; `dropout` acts on weights.
    Sources: Vaswani 2017, §3.2.1, eq. 1, Table 1 (restricted); Ainslie et al. 2023 (groups); Gemma Team 2024 (softcap).
    """
    factor = query.dtype.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if window is None and pattern is None:
        mask = None if key_mask is None else key_mask[:, None, None, :]  # (B, 1, 1, Tk)
        if causal and query.shape[2] > 1:  # one query alone is the last, which sees every key
            past = np.tri(query.shape[2], key.shape[2], key.shape[2] - query.shape[2], dtype=bool)  # (Tq, Tk)
            mask = past if mask is None else mask & past
    else:
        whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
        pieces = whole.pieces(query.shape[2], key.shape[2])
        if pieces is not None:
            return forward_in_pieces(query, key, value, bias, pieces, factor, softcap, dropout)
        mask = mask_of(whole, query.shape[2], key.shape[2])
    scores, capped = scores_forward(query, key, bias, mask, factor, softcap)
    weights = softmax_in_place(scores)
    dropped, dropout_cache = (weights, None) if dropout is None else drop(weights, dropout)
    out = (fold(dropped, key) @ value).reshape(*query.shape[:3], value.shape[3])  # (B, H, Tq, Dv)
    bias_shape = None if bias is None else bias.shape
    return out, (query, key, value, factor, weights, dropped, dropout_cache, capped, bias_shape)


@gradient_of(lambda query, key, value, *_: ((*query.shape[:3], value.shape[3]), query.dtype), products=True)
def attention_backward(dout: Array, cache: tuple) -> tuple[Array, ...]:
    """Gradients `(dquery, dkey, dvalue)`; with a bias, `dbias` too, summed over the axes that were broadcast."""
    if isinstance(cache, InPieces):
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


@arguments(
    "query B H Tq D≥1, key B Hk|H Tk D, bias?:broadcast B H Tq Tk, key_mask?:bool B Tk",
    causal=check_flag,
    window=check_window,
    pattern=check_pattern,
    scale=check_number,
    softcap=check_positive,
    products=True,
)
def attention_weights(
    query: Array,
    key: Array,
    bias: Array | None = None,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    window: Window = None,
    pattern: Pattern | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Array:
    """Return the softmax matrix `(B, H, Tq, Tk)` of `attention_forward`, for pictures and for teaching."""
    factor = query.dtype.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
    mask = mask_of(whole, query.shape[2], key.shape[2])
    return softmax_in_place(scores_forward(query, key, bias, mask, factor, softcap)[0])


# --- Its steps ------------------------------------------------------------------------------------------------


def scores_forward(
    query: Array, key: Array, bias: Array | None, mask: Array | None, factor: Array, softcap: float | None
) -> tuple[Array, Array | None]:
    """Return the scores `(B, H, Tq, Tk)`, −inf where `mask` is false, and the softcap's tanh for the backward."""
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
    """`(B, H, T, ·)` → `(B, Hk, H/Hk·T, ·)`: the heads that share a key head become more rows of one.

    So keys and values are not copied, and the sum of these heads' gradients is part of the product.
    """
    batch, heads, time, width = x.shape
    kv_heads = key.shape[1]
    return x if heads == kv_heads else x.reshape(batch, kv_heads, heads // kv_heads * time, width)


def sum_to(shape: tuple[int, ...], gradient: Array) -> Array:
    """Return the gradient of a broadcast array of this shape: the sum over the axes that it lacks or has 1 in."""
    lead = gradient.ndim - len(shape)
    axes = (*range(lead), *(lead + axis for axis, size in enumerate(shape) if size == 1))
    return gradient.sum(axis=axes).reshape(shape)


# --- In pieces: a sparse pattern on a long sequence costs what it keeps, in time and in memory --------------------


class InPieces(NamedTuple):
    """The cache of attention in pieces."""

    query: Array
    key: Array
    value: Array
    parts: list[tuple]
    factor: Array
    out: Array
    bias_shape: tuple[int, ...] | None


def forward_in_pieces(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None,
    pieces: list[Piece],
    factor: Array,
    softcap: float | None,
    dropout: Dropout | None,
) -> tuple[Array, tuple]:
    """Attention over `Pattern.pieces`, each of some queries and some keys; a query's softmax runs over all its pieces.

    So their scores come first, then each query's largest score and its sum, then the weights.
    """
    dtype = query.dtype
    largest = np.full((*query.shape[:3], 1), LOWEST[dtype], dtype)
    sums, out = np.zeros_like(largest), np.zeros((*query.shape[:3], value.shape[3]), dtype)
    wide = None if bias is None else bias.reshape((1,) * (4 - bias.ndim) + bias.shape)
    parts = []
    for queries, keys, mask in pieces:
        part = None if wide is None else wide[_where(wide.shape, queries, keys)]
        scores, capped = scores_forward(query[:, :, queries], key[:, :, keys], part, mask, factor, softcap)
        largest[:, :, queries] = np.maximum(largest[:, :, queries], row_maximum(scores))
        parts.append((queries, keys, scores, capped))
    for queries, _, scores, _ in parts:
        with np.errstate(over="ignore"):  # as in softmax_in_place
            scores -= largest[:, :, queries]
        np.exp(scores, out=scores)
        sums[:, :, queries] += np.add.reduce(scores, axis=-1, keepdims=True)
    sums = np.maximum(sums, 1)  # 1 for a query with nothing to attend to
    kept = []
    for queries, keys, weights, capped in parts:
        weights /= sums[:, :, queries]
        numbers = np.arange(query.shape[2])[queries], np.arange(key.shape[2])[keys]
        dropped, dropout_cache = _drop_part(weights, dropout, *numbers)
        part = (fold(dropped, key) @ value[:, :, keys]).reshape(*weights.shape[:3], value.shape[3])
        out[:, :, queries] += part
        kept.append((queries, keys, weights, dropped, dropout_cache, capped))
    return out, InPieces(query, key, value, kept, factor, out, None if bias is None else bias.shape)


def backward_in_pieces(dout: Array, cache: InPieces) -> tuple[Array, ...]:
    """Gradients as of `attention_backward`: a key that several pieces reach gets the sum of theirs."""
    query, key, value, parts, factor, out, bias_shape = cache
    dquery, dkey, dvalue = (np.zeros(array.shape, array.dtype) for array in (query, key, value))
    dbias = None if bias_shape is None else np.zeros((1,) * (4 - len(bias_shape)) + bias_shape, query.dtype)
    # The softmax's sum Σ_j dweights_j weights_j over all pieces: out = Σ_j dropped_j value_j, so it is dout · out.
    sums = np.vecdot(dout, out)[..., None]  # (B, H, Tq, 1)
    for queries, keys, weights, dropped, dropout_cache, capped in parts:
        dpart = fold(dout[:, :, queries], key)
        dvalue[:, :, keys] += fold(dropped, key).swapaxes(-1, -2) @ dpart
        ddropped = (dpart @ value[:, :, keys].swapaxes(-1, -2)).reshape(weights.shape)
        dscores = drop_backward(ddropped, dropout_cache) - sums[:, :, queries]
        dscores *= weights
        dquery_part, dkey_part = scores_backward(dscores, query[:, :, queries], key[:, :, keys], factor, capped)
        dquery[:, :, queries] += dquery_part
        dkey[:, :, keys] += dkey_part
        if dbias is not None:
            place = _where(dbias.shape, queries, keys)
            dbias[place] += sum_to(dbias[place].shape, dscores)
    return (dquery, dkey, dvalue) if dbias is None else (dquery, dkey, dvalue, dbias.reshape(bias_shape))


def _where(shape: tuple[int, ...], queries: Places, keys: Places) -> tuple:
    """Return the index of these queries and keys in a bias of this shape: all along an axis that is broadcast."""
    everything = slice(None)
    return ..., everything if shape[2] == 1 else queries, everything if shape[3] == 1 else keys


def _drop_part(weights: Array, dropout: Dropout | None, queries: Array, keys: Array) -> tuple[Array, tuple | None]:
    """`drop` of some of attention's weights, `(B, H, Tq, Tk)`: those of the queries and keys with these numbers."""
    if dropout is None or dropout.threshold == 0:
        return weights, None
    rows = row_hashes(weights.shape[:3], dropout, queries)
    words = mix(rows[:, None] + keys.astype(np.uint32) // 2 * np.uint32(GOLDEN))  # as in dropout_mask, for any keys
    kept = (words >> keys.astype(np.uint32) % 2 * 16) % RESOLUTION >= dropout.threshold
    kept, scale = kept.reshape(weights.shape), weights.dtype.type(dropout.scale)
    return weights * kept * scale, (kept, scale)
