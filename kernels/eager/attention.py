"""Scaled dot-product attention, composed from a softmax."""

import math
from functools import partial

import torch
from torch import Tensor

from minitransformer.ops import Dropout, Pair, Pattern
from minitransformer.ops.pattern import Window, pattern_of

from ..checks import check_gradient, check_mask, check_slopes, declared
from .dropout import dropout_backward, dropout_forward
from .scores import fold, scores_backward, scores_forward
from .softmax import softmax_backward, softmax_forward, widened
from .sparse_attention import InPieces, backward_in_pieces, forward_in_pieces


def attention_from(softmax: Pair, *, in_pieces: bool = False) -> Pair:
    """Make attention of two products and any softmax pair; scores and weights are stored, `(B, H, Tq, Tk)` each.

    With it a whole model uses a softmax kernel: `dataclasses.replace(ops, attention=attention_from(softmax))`. With
    `in_pieces` a sparse pattern on a long sequence costs only the pairs that it keeps, and has a softmax of its own.
    """

    @declared
    def attention_forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        *,
        causal: bool = False,
        key_mask: Tensor | None = None,
        window: Window = None,
        pattern: Pattern | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        dropout: Dropout | None = None,
        slopes: Tensor | None = None,
    ) -> tuple[Tensor, tuple]:
        """`softmax(scale · query keyᵀ + bias) value`, with the options of `minitransformer.ops.attention_forward`.

        query `(B, H, Tq, D)`, key `(B, Hk, Tk, D)`, value `(B, Hk, Tk, Dv)` → `(B, H, Tq, Dv)`. ALiBi's `slopes`,
        float32, `(H,)` or `(B, H)`, are constants without a gradient.
        """
        whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
        if whole.key_mask is not None:
            check_mask("key_mask", whole.key_mask, "query", query)
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
        bias_shape = None if bias is None else bias.shape
        if slopes is not None:
            check_slopes("slopes", slopes, "query", query, query.shape[0])
            distances = alibi_bias(slopes, query.shape[2], key.shape[2])
            bias = distances if bias is None else bias + distances
        if in_pieces:
            pieces = whole.pieces(query.shape[2], key.shape[2], partial(torch.arange, device=query.device))
            if pieces is not None:
                return forward_in_pieces(query, key, value, bias, bias_shape, pieces, scale, softcap, dropout)
        mask = attention_mask(query.shape[2], key.shape[2], query.device, pattern=whole)
        scores, capped = scores_forward(query, key, bias, mask, scale, softcap)
        weights, softmax_cache = softmax.forward(scores)  # (B, H, Tq, Tk)
        dropped, dropout_cache = dropout_forward(weights.to(value.dtype), dropout)
        out = (fold(dropped, key) @ value).reshape(*query.shape[:3], value.shape[3])  # (B, H, Tq, Dv)
        softmax_cache = softmax_cache, weights.dtype
        return out, (query, key, value, dropped, softmax_cache, dropout_cache, scale, capped, bias_shape)

    def attention_backward(dout: Tensor, cache: tuple) -> tuple[Tensor, ...]:
        """Gradients `(dquery, dkey, dvalue)`; with a bias, `dbias` too, summed over the axes that were broadcast."""
        if isinstance(cache, InPieces):
            return backward_in_pieces(dout, cache)
        query, key, value, dropped, (softmax_cache, dtype), dropout_cache, scale, capped, bias_shape = cache
        check_gradient("dout", dout, (*dropped.shape[:3], value.shape[3]), value.dtype, value.device)
        dout = fold(dout, key)
        dvalue = fold(dropped, key).mT @ dout  # out = dropped @ value
        dweights = dropout_backward((dout @ value.mT).reshape(dropped.shape), dropout_cache)
        dscores = softmax.backward(dweights.to(dtype), softmax_cache)
        dquery, dkey = (x.to(query.dtype) for x in scores_backward(dscores, query, key, scale, capped))
        if bias_shape is None:
            return dquery, dkey, dvalue
        return dquery, dkey, dvalue, dscores.sum_to_size(bias_shape).to(query.dtype)

    return Pair(attention_forward, attention_backward)


attention = attention_from(Pair(softmax_forward, softmax_backward), in_pieces=True)
attention_forward, attention_backward = attention.forward, attention.backward


@declared
def attention_weights(
    query: Tensor,
    key: Tensor,
    bias: Tensor | None = None,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    window: Window = None,
    pattern: Pattern | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Return the softmax matrix `(B, H, Tq, Tk)`, for pictures and for teaching."""
    whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
    mask = attention_mask(query.shape[2], key.shape[2], query.device, pattern=whole)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    return softmax_forward(scores_forward(query, key, bias, mask, scale, softcap)[0])[0].to(query.dtype)


def attention_lse(
    query: Tensor,
    key: Tensor,
    *,
    causal: bool = False,
    window: Window = None,
    scale: float,
    softcap: float | None = None,
    slopes: Tensor | None = None,
) -> Tensor:
    """Return the log-sum-exp of each query's scores, `(B, H, Tq)` in float32; +inf for a query that sees nothing."""
    Tq, Tk = query.shape[2], key.shape[2]
    mask = attention_mask(Tq, Tk, query.device, causal=causal, window=window)
    bias = None if slopes is None else alibi_bias(slopes, Tq, Tk)
    lse = scores_forward(widened(query), widened(key), bias, mask, scale, softcap)[0].logsumexp(-1)
    return lse.masked_fill(lse == -math.inf, math.inf).float()


def attention_mask(
    num_queries: int,
    num_keys: int,
    device: torch.device | str,
    causal: bool = False,
    key_mask: Tensor | None = None,
    window: Window = None,
    keys: slice = slice(None),
    pattern: Pattern | None = None,
) -> Tensor | None:
    """Return the mask, `True` = may attend, which broadcasts to `(B, H, Tq, Tk)`; `None` if all may attend to all.

    `keys` selects the keys that the mask is for, by default all. See `minitransformer.ops.attention_mask`.
    """
    whole = pattern_of(pattern, causal, key_mask, window)
    last = torch.arange(num_keys - num_queries, num_keys, device=device)
    mask = whole.allows(last[:, None], torch.arange(num_keys, device=device)[None, keys])  # (Tq, Tk)
    if whole.key_mask is not None:
        real = whole.key_mask[:, None, None, keys]  # (B, 1, 1, Tk)
        mask = real if mask is None else mask & real
    return mask


def alibi_bias(slopes: Tensor, num_queries: int, num_keys: int) -> Tensor:
    """Return ALiBi as a bias `(…, H, Tq, Tk)` from slopes `(…, H)`: `−slope · |Tk − Tq + i − j|`, query i and key j.

    Source: Press, Smith, Lewis 2022, §3.
    """
    last = torch.arange(num_keys - num_queries, num_keys, device=slopes.device)
    distance = (last[:, None] - torch.arange(num_keys, device=slopes.device)).abs()  # (Tq, Tk)
    return -slopes[..., None, None] * distance
