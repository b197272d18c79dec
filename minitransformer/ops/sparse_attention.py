"""Attention in pieces: a sparse pattern on a long sequence costs what it keeps, in time and in memory.

`Pattern.pieces` cuts the matrix of scores into pieces, each of some queries and some keys. The formula is that of
`attention.py`; new is only that a query's softmax runs over all pieces that it is in.
"""

import numpy as np

from .arguments import Array
from .attention import fold, scores_backward, scores_forward, sum_to
from .dropout import GOLDEN, RESOLUTION, Dropout, drop_backward, mix, row_hashes
from .pattern import Piece, Places
from .softmax import LOWEST, row_maximum


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
    """Computes what the mask would give: a query's softmax runs over all pieces that it is in.

    So their scores come first, then each query's largest score and its sum, then the weights.
    """
    dtype = query.dtype
    largest = np.full((*query.shape[:3], 1), LOWEST[dtype], dtype)
    sums, out = np.zeros_like(largest), np.zeros((*query.shape[:3], value.shape[3]), dtype)
    wide = None if bias is None else bias.reshape(_four_axes(bias.shape))
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
    sums = np.maximum(sums, 1)  # a query with nothing to attend to
    kept = []
    for queries, keys, weights, capped in parts:
        weights /= sums[:, :, queries]
        numbers = np.arange(query.shape[2])[queries], np.arange(key.shape[2])[keys]
        dropped, dropout_cache = _drop_part(weights, dropout, *numbers)
        part = (fold(dropped, key) @ value[:, :, keys]).reshape(*weights.shape[:3], value.shape[3])
        out[:, :, queries] += part
        kept.append((queries, keys, weights, dropped, dropout_cache, capped))
    return out, (query, key, value, kept, factor, out, None if bias is None else bias.shape)


def backward_in_pieces(dout: Array, cache: tuple) -> tuple[Array, ...]:
    """The gradients: a key that several pieces reach gets the sum of theirs."""
    query, key, value, parts, factor, out, bias_shape = cache
    dquery, dkey, dvalue = (np.zeros(array.shape, array.dtype) for array in (query, key, value))
    dbias = None if bias_shape is None else np.zeros(_four_axes(bias_shape), query.dtype)
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


def _four_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (4 - len(shape)) + shape


def _where(shape: tuple[int, ...], queries: Places, keys: Places) -> tuple:
    """The index of these queries and keys in a bias: all of it along an axis that it is broadcast along."""
    everything = slice(None)
    return ..., everything if shape[2] == 1 else queries, everything if shape[3] == 1 else keys


def _drop_part(weights: Array, dropout: Dropout | None, queries: Array, keys: Array) -> tuple[Array, tuple | None]:
    """`drop` of some of attention's weights, `(B, H, Tq, Tk)`: those of the queries and keys with these numbers."""
    if dropout is None or dropout.threshold == 0:
        return weights, None
    rows = row_hashes(weights.shape[:3], dropout, queries)
    words = mix(rows[:, None] + keys.astype(np.uint32) // 2 * np.uint32(GOLDEN))  # as in dropout_mask, one by one
    kept = (words >> keys.astype(np.uint32) % 2 * 16) % RESOLUTION >= dropout.threshold
    kept, scale = kept.reshape(weights.shape), weights.dtype.type(dropout.scale)
    return weights * kept * scale, (kept, scale)
