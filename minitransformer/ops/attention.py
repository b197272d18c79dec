"""Scaled dot-product attention."""

import math
from functools import partial

import numpy as np

from .arguments import Array, arguments, check_flag, check_integer, check_number, gradient_of, has_products, unchecked
from .dropout import Dropout, check_dropout, drop, drop_backward
from .softmax import softmax_gradient, softmax_in_place

SMALLEST_BLOCK = 128
"""Windowed attention takes at least this many queries at a time."""

check_distance = partial(check_integer, at_least=0)
check_mask_size = partial(check_integer, at_least=0, at_most=2**31 - 1)
check_mask_offset = partial(check_integer, at_least=-(2**31), at_most=2**31 - 1)


def attend(
    query: Array, key: Array, value: Array, mask: Array | None, scale: float | None, dropout: Dropout | None
) -> tuple[Array, tuple]:
    """Equation 1: `softmax(scale · query keyᵀ) value`. A query attends to the keys where its row of `mask` is true."""
    factor = query.dtype.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = (query * factor) @ key.swapaxes(-1, -2)  # (B, H, Tq, Tk)
    if mask is not None:
        scores = np.where(mask, scores, scores.dtype.type(-np.inf))
    weights = softmax_in_place(scores)
    dropped, dropout_cache = drop(weights, dropout)
    out = dropped @ value  # (B, H, Tq, Dv)
    return out, (query, key, value, factor, weights, dropped, dropout_cache)


def attend_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dquery, dkey, dvalue)`."""
    query, key, value, factor, weights, dropped, dropout_cache = cache
    dvalue = dropped.swapaxes(-1, -2) @ dout  # out = dropped @ value
    ddropped = dout @ value.swapaxes(-1, -2)  # (B, H, Tq, Tk)
    dweights = drop_backward(ddropped, dropout_cache)
    dscores = softmax_gradient(dweights, weights)  # 0 where the weight is 0: behind the mask
    dquery = dscores @ key  # scores = (query * factor) @ keyᵀ
    dquery *= factor
    dkey = dscores.swapaxes(-1, -2) @ (query * factor)
    return dquery, dkey, dvalue


@arguments(
    "query B H Tq D≥1, key B H Tk D, value B H Tk Dv≥1, key_mask?:bool B Tk",
    causal=check_flag,
    window=check_distance,
    scale=check_number,
    dropout=check_dropout,
)
@has_products
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
    """`softmax(scale · query keyᵀ) value`, `(B, H, Tq, Dv)`, with `scale = 1/√D` unless it is given.

    `causal`, `key_mask` and `window` say which keys a query may attend to: see `attention_mask`. A query with none gets
    zeros and sends no gradient. `dropout` acts on the weights, and then a window saves no work on long sequences.
    Source: Vaswani 2017, §3.2.1, eq. 1; the window is Table 1's restricted self-attention.
    """
    if window is not None and dropout is None and key.shape[2] > 2 * _block_size(window):
        return _windowed_forward(query, key, value, causal, key_mask, int(window), scale)
    hides_keys = causal and query.shape[2] > 1  # one query alone is the last, which sees every key
    mask = allowed_keys(query.shape[2], key.shape[2], hides_keys, key_mask, window)
    return attend(query, key, value, mask, scale, dropout)


@gradient_of(lambda query, key, value, *_: ((*query.shape[:3], value.shape[3]), query.dtype))
@has_products
def attention_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dquery, dkey, dvalue)`."""
    in_blocks = isinstance(cache[3], list)  # where `attend` keeps its factor
    return _windowed_backward(dout, cache) if in_blocks else attend_backward(dout, cache)


@arguments(
    "query B H Tq D≥1, key B H Tk D, key_mask?:bool B Tk",
    causal=check_flag,
    window=check_distance,
    scale=check_number,
)
@has_products
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
    mask = allowed_keys(query.shape[2], key.shape[2], causal, key_mask, window)
    _, (*_, weights, _, _) = attend(query, key, key, mask, scale, None)  # key as value: the output is not wanted
    return weights


@arguments(
    "key_mask?:bool B Tk",
    num_queries=check_mask_size,
    num_keys=check_mask_size,
    causal=check_flag,
    window=check_distance,
    offset=check_mask_offset,
)
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
    padding.
    """
    if key_mask is not None and key_mask.shape[-1] != num_keys:
        raise ValueError(f"key_mask has shape {key_mask.shape}, expected (B, {num_keys})")
    mask = None
    if causal or window is not None:
        first = int(num_keys) - int(num_queries) if offset is None else int(offset)
        # back[i, j] > 0: key j lies before query i
        back = np.arange(first, first + int(num_queries))[:, None] - np.arange(num_keys)  # (Tq, Tk)
        mask = np.ones(back.shape, dtype=bool)
        if causal:
            mask &= back >= 0
        if window is not None:
            mask &= abs(back) <= window
    if key_mask is None:
        return mask
    real = key_mask[:, None, None, :]  # (B, 1, 1, Tk)
    return real if mask is None else mask & real


allowed_keys = unchecked(attention_mask)


# --- A window on a long sequence ------------------------------------------------------------------------------


def _windowed_forward(
    query: Array, key: Array, value: Array, causal: bool, key_mask: Array | None, window: int, scale: float | None
) -> tuple[Array, tuple]:
    """Computes what the mask would give, one block of queries at a time, each with the keys that its window reaches.

    So the cost grows as Tq · window, not as Tq · Tk: Table 1's O(r · n · d).
    """
    num_queries, num_keys = query.shape[2], key.shape[2]
    out = np.empty((*query.shape[:3], value.shape[3]), query.dtype)
    blocks = []
    for start in range(0, num_queries, _block_size(window)):
        queries = slice(start, min(start + _block_size(window), num_queries))
        first, last = (num_keys - num_queries + i for i in (queries.start, queries.stop - 1))  # their positions
        keys = slice(min(max(first - window, 0), num_keys), max(last + 1 + (0 if causal else window), 0))
        real = None if key_mask is None else key_mask[:, keys]
        size = len(range(*keys.indices(num_keys)))
        mask = allowed_keys(queries.stop - start, size, causal, real, window, first - keys.start)
        block = query[:, :, queries], key[:, :, keys], value[:, :, keys]
        out[:, :, queries], cache = attend(*block, mask, scale, None)
        blocks.append((queries, keys, cache))
    return out, (query, key, value, blocks)


def _windowed_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dquery, dkey, dvalue)`: a key that several blocks reach gets the sum of their gradients."""
    query, key, value, blocks = cache
    dquery, dkey, dvalue = (np.zeros(array.shape, array.dtype) for array in (query, key, value))
    for queries, keys, block_cache in blocks:
        dquery_block, dkey_block, dvalue_block = attend_backward(dout[:, :, queries], block_cache)
        dquery[:, :, queries] = dquery_block
        dkey[:, :, keys] += dkey_block
        dvalue[:, :, keys] += dvalue_block
    return dquery, dkey, dvalue


def _block_size(window: int) -> int:
    return max(int(window), SMALLEST_BLOCK)
