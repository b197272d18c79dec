"""Scaled dot-product attention."""

import math

import numpy as np

from .arguments import (
    check_array,
    check_flag,
    check_floats,
    check_gradient_of,
    check_integer,
    check_mask,
    check_ndim,
    check_number,
    check_shape,
    check_whole,
)
from .arrays import Array, quiet_products
from .dropout import Dropout, dropout_backward, dropout_forward
from .softmax import softmax_in_place

SMALLEST_BLOCK = 128
"""Queries: windowed attention takes at least so many at a time."""

LARGEST = 2**31 - 1
"""The largest size and position of which a mask is made."""


@quiet_products
def attention_forward(
    query: Array,
    key: Array,
    value: Array,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    window: int | None = None,
    scale: float | None = None,
    dropout: Dropout | None = None,
) -> tuple[Array, tuple]:
    """`softmax(scale · query keyᵀ) value`, with `scale = 1/√D` unless it is given.

    query `(B, H, Tq, D)`, key `(B, H, Tk, D)`, value `(B, H, Tk, Dv)` → `(B, H, Tq, Dv)`. `causal`, `key_mask` and
    `window` say which keys a query may attend to: see `attention_mask`. A query with none gets zeros and sends no
    gradient. `dropout` acts on the weights, and then a window saves no work on long sequences.
    Raises `ValueError` for shapes that do not fit, `TypeError` for mixed dtypes.
    Source: Vaswani 2017, §3.2.1, eq. 1; the window is Table 1's restricted self-attention.
    """
    _check(query, key, value, causal, key_mask, window, scale)
    scale = _scale(query, scale)
    if window is not None and dropout is None and key.shape[2] > 2 * _block_size(window):
        return _windowed_forward(query, key, value, causal, key_mask, int(window), scale)
    mask = _mask(query.shape[2], key.shape[2], causal, key_mask, window)
    out, cache = _attend(query, key, value, mask, scale, dropout)
    return out, (None, cache, out)


@quiet_products
def attention_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dquery, dkey, dvalue)`."""
    blocks, caches, out = cache
    check_gradient_of("dout", dout, out.shape, out.dtype)
    return _attend_backward(dout, caches) if blocks is None else _windowed_backward(dout, blocks, caches)


def _attend(
    query: Array, key: Array, value: Array, mask: Array | None, scale: Array, dropout: Dropout | None = None
) -> tuple[Array, tuple]:
    weights, scaled_query = _weights(query, key, mask, scale)  # (B, H, Tq, Tk)
    dropped, dropout_cache = (weights, None) if dropout is None else dropout_forward(weights, dropout)
    out = dropped @ value  # (B, H, Tq, Dv)
    return out, (scaled_query, key, value, weights, dropped, dropout_cache, out, scale)


def _attend_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """`_attend` in reverse.

    The softmax's backward needs `Σ_j dweights_j weights_j` for each query; since `out = Σ_j weights_j value_j`, with
    dropout or without, that is `dout · out` (Dao et al. 2022, appendix B.2), a sum over Dv instead of over Tk.
    """
    scaled_query, key, value, weights, dropped, dropout_cache, out, scale = cache
    dvalue = dropped.swapaxes(-1, -2) @ dout  # out = dropped @ value
    dweights = dropout_backward(dout @ value.swapaxes(-1, -2), dropout_cache)  # (B, H, Tq, Tk)
    # softmax: dscores = weights · (dweights − Σ_j dweights_j weights_j)
    dscores = np.subtract(dweights, np.vecdot(dout, out)[..., None], out=dweights)
    dscores *= weights
    dquery = dscores @ key  # scores = scaled_query @ keyᵀ
    dquery *= scale
    dkey = dscores.swapaxes(-1, -2) @ scaled_query
    return dquery, dkey, dvalue


def _windowed_forward(
    query: Array, key: Array, value: Array, causal: bool, key_mask: Array | None, window: int, scale: Array
) -> tuple[Array, tuple]:
    """Equal to the masked form, block by block of queries, each with the keys that its window reaches.

    So the cost grows as Tq · window, not as Tq · Tk: Table 1's O(r · n · d).
    """
    num_queries, num_keys = query.shape[2], key.shape[2]
    blocks, caches, outs = [], [], []
    for start in range(0, num_queries, _block_size(window)):
        queries = slice(start, min(start + _block_size(window), num_queries))
        first, last = (num_keys - num_queries + i for i in (queries.start, queries.stop - 1))  # their positions
        keys = slice(min(max(first - window, 0), num_keys), max(last + 1 + (0 if causal else window), 0))
        block_mask = None if key_mask is None else key_mask[:, keys]
        key_block = key[:, :, keys]
        mask = _mask(queries.stop - start, key_block.shape[2], causal, block_mask, window, offset=first - keys.start)
        out, cache = _attend(query[:, :, queries], key_block, value[:, :, keys], mask, scale)
        blocks.append((queries, keys))
        caches.append(cache)
        outs.append(out)
    out = np.concatenate(outs, axis=2) if outs else np.empty((*query.shape[:3], value.shape[3]), query.dtype)
    return out, (([array.shape for array in (query, key, value)], blocks), caches, out)


def _windowed_backward(dout: Array, blocks: tuple, caches: list[tuple]) -> tuple[Array, Array, Array]:
    """`_windowed_forward` in reverse: a key that several blocks reach gets the sum of what they send."""
    shapes, slices = blocks
    dquery, dkey, dvalue = (np.zeros(shape, dout.dtype) for shape in shapes)
    for (queries, keys), cache in zip(slices, caches, strict=True):
        dquery_block, dkey_block, dvalue_block = _attend_backward(dout[:, :, queries], cache)
        dquery[:, :, queries] = dquery_block
        dkey[:, :, keys] += dkey_block
        dvalue[:, :, keys] += dvalue_block
    return dquery, dkey, dvalue


def _block_size(window: int) -> int:
    return max(int(window), SMALLEST_BLOCK)


@quiet_products
def attention_weights(
    query: Array,
    key: Array,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    window: int | None = None,
    scale: float | None = None,
) -> Array:
    """The softmax matrix `(B, H, Tq, Tk)` of `attention_forward`, for pictures and for teaching."""
    _check(query, key, key, causal, key_mask, window, scale)
    mask = _mask(query.shape[2], key.shape[2], causal, key_mask, window)
    return _weights(query, key, mask, _scale(query, scale))[0]


def attention_mask(
    num_queries: int,
    num_keys: int,
    causal: bool,
    key_mask: Array | None,
    window: int | None,
    offset: int | None = None,
) -> Array | None:
    """Which keys each query may attend to, `True` = may; broadcasts to `(B, H, Tq, Tk)`; `None` if all.

    Query i stands at position `offset + i`, by default `Tk − Tq + i`: aligned bottom-right, as a key/value cache needs.
    `causal`: keys at or before it. `window = r`: keys at distance ≤ r. `key_mask (B, Tk)`: keys that are real, not
    padding. Raises `ValueError` for a size or a shape that does not fit, `TypeError` for another kind of argument.
    """
    for name, size in (("num_queries", num_queries), ("num_keys", num_keys)):
        check_whole(name, size, 0, LARGEST)
    check_flag("causal", causal)
    if key_mask is not None:
        check_ndim("key_mask", check_array("key_mask", key_mask), 2, "(B, Tk)")
        check_mask("key_mask", key_mask, (len(key_mask), num_keys))
    _check_window(window)
    if offset is not None:
        check_whole("offset", offset, -LARGEST, LARGEST)
    # NumPy's integers may be narrow: the positions are counted in Python's.
    return _mask(int(num_queries), int(num_keys), causal, key_mask, window, None if offset is None else int(offset))


def _mask(
    num_queries: int,
    num_keys: int,
    causal: bool,
    key_mask: Array | None,
    window: int | None,
    offset: int | None = None,
) -> Array | None:
    """`attention_mask`, of arguments that were checked."""
    mask = None
    if causal or window is not None:
        # distance[i, j] > 0: key j lies before query i
        offset = num_keys - num_queries if offset is None else offset
        distance = np.arange(offset, offset + num_queries)[:, None] - np.arange(num_keys)  # (Tq, Tk)
        mask = np.ones(distance.shape, dtype=bool)
        if causal:
            mask &= distance >= 0
        if window is not None:
            mask &= abs(distance) <= window
    if key_mask is not None:
        real = key_mask[:, None, None, :]  # (B, 1, 1, Tk)
        mask = real if mask is None else mask & real
    return mask


def _weights(query: Array, key: Array, mask: Array | None, scale: Array) -> tuple[Array, Array]:
    """The softmax matrix and the scaled query: D numbers a row are scaled, not the Tk scores."""
    scaled_query = query * scale  # (B, H, Tq, D)
    scores = scaled_query @ key.swapaxes(-1, -2)  # (B, H, Tq, Tk)
    if mask is not None:
        # Added, not written with np.where: one vectorised pass over the large array.
        scores += np.where(mask, 0, -np.inf).astype(scores.dtype)
    return softmax_in_place(scores), scaled_query


def _scale(query: Array, scale: float | None) -> Array:
    return query.dtype.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)


def _check(
    query: Array,
    key: Array,
    value: Array,
    causal: bool,
    key_mask: Array | None,
    window: int | None,
    scale: float | None,
) -> None:
    check_floats("query key value", query, key, value)
    check_ndim("query", query, 4, "(B, H, Tq, D)")
    check_ndim("key", key, 4, "(B, H, Tk, D)")
    check_ndim("value", value, 4, "(B, H, Tk, Dv)")
    batch, heads, _, width = query.shape
    if not width or not value.shape[-1]:
        raise ValueError(f"query {query.shape} and value {value.shape} need a last axis of at least 1")
    check_shape("key", key, (batch, heads, key.shape[2], width))
    check_shape("value", value, (batch, heads, key.shape[2], value.shape[3]))
    check_flag("causal", causal)
    if scale is not None:
        check_number("scale", scale)
    if key_mask is not None:
        check_mask("key_mask", key_mask, (batch, key.shape[2]))
    _check_window(window)


def _check_window(window: int | None) -> None:
    if window is not None:
        check_integer("window", window)
        if window < 0:
            raise ValueError(f"window is {window}, expected a distance of 0 or more")
