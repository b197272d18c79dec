"""Scaled dot-product attention, composed from a softmax."""

import math

import torch
from torch import Tensor

from minitransformer.ops import Dropout, Pair, Pattern
from minitransformer.ops.pattern import Window, pattern_of

from .._checks import check_gradient, declared
from .dropout import dropout_backward, dropout_forward
from .softmax import softmax_backward, softmax_forward


def attention_from(softmax: Pair) -> Pair:
    """Attention made of two products and any softmax pair; scores and weights are stored, `(B, H, Tq, Tk)` each.

    With it a whole model uses a softmax kernel: `dataclasses.replace(ops, attention=attention_from(softmax))`.
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
    ) -> tuple[Tensor, tuple]:
        """`softmax(scale · query keyᵀ + bias) value`, with the options of `minitransformer.ops.attention_forward`.

        query `(B, H, Tq, D)`, key `(B, Hk, Tk, D)`, value `(B, Hk, Tk, Dv)` → `(B, H, Tq, Dv)`.
        """
        whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
        scores, scaled_query, scale, capped = _scores(query, key, bias, whole, scale, softcap)
        weights, softmax_cache = softmax.forward(scores)  # (B, H, Tq, Tk)
        dropped, dropout_cache = dropout_forward(weights, dropout)
        out = (fold(dropped, key) @ value).reshape(*query.shape[:3], value.shape[3])  # (B, H, Tq, Dv)
        bias_shape = None if bias is None else bias.shape
        return out, (scaled_query, key, value, dropped, softmax_cache, dropout_cache, scale, capped, bias_shape)

    def attention_backward(dout: Tensor, cache: tuple) -> tuple[Tensor, ...]:
        """Gradients `(dquery, dkey, dvalue)`; with a bias, `dbias` too, summed over the axes that were broadcast."""
        scaled_query, key, value, dropped, softmax_cache, dropout_cache, scale, capped, bias_shape = cache
        check_gradient("dout", dout, (*dropped.shape[:3], value.shape[3]), value.dtype, value.device)
        dout = fold(dout, key)
        dvalue = fold(dropped, key).mT @ dout  # out = dropped @ value
        dweights = dropout_backward((dout @ value.mT).reshape(dropped.shape), dropout_cache)
        dscores = softmax.backward(dweights, softmax_cache)
        dscaled = fold(dscores if capped is None else dscores * (1 - capped * capped), key)
        dquery = (dscaled @ key).reshape(scaled_query.shape) * scale  # scores = (scale · query) @ keyᵀ
        dkey = dscaled.mT @ fold(scaled_query, key)
        if bias_shape is None:
            return dquery, dkey, dvalue
        return dquery, dkey, dvalue, dscores.sum_to_size(bias_shape)

    return Pair(attention_forward, attention_backward)


attention = attention_from(Pair(softmax_forward, softmax_backward))
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
    """The softmax matrix `(B, H, Tq, Tk)`, for pictures and for teaching."""
    whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
    return softmax_forward(_scores(query, key, bias, whole, scale, softcap)[0])[0]


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
    """`True` = may attend; broadcasts to `(B, H, Tq, Tk)`, `None` if all: see `minitransformer.ops.attention_mask`.

    `keys` selects the keys that the mask is for, by default all.
    """
    whole = pattern_of(pattern, causal, key_mask, window)
    last = torch.arange(num_keys - num_queries, num_keys, device=device)
    mask = whole.allows(last[:, None], torch.arange(num_keys, device=device)[None, keys])  # (Tq, Tk)
    if whole.key_mask is not None:
        real = whole.key_mask[:, None, None, keys]  # (B, 1, 1, Tk)
        mask = real if mask is None else mask & real
    return mask


def _scores(
    query: Tensor, key: Tensor, bias: Tensor | None, pattern: Pattern, scale: float | None, softcap: float | None
) -> tuple[Tensor, Tensor, float, Tensor | None]:
    """The scores, the scaled query, the scale, and the tanh of the softcap."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scaled_query = query * scale  # (B, H, Tq, D)
    scores = (fold(scaled_query, key) @ key.mT).reshape(*query.shape[:3], key.shape[2])  # (B, H, Tq, Tk)
    capped = None
    if softcap is not None:
        capped = torch.tanh(scores / softcap)
        scores = capped * softcap
    if bias is not None:
        scores = scores + bias
    mask = attention_mask(query.shape[2], key.shape[2], query.device, pattern=pattern)
    return scores if mask is None else scores.masked_fill_(~mask, -math.inf), scaled_query, scale, capped


def fold(x: Tensor, key: Tensor) -> Tensor:
    """`(B, H, T, W)` → `(B, Hk, H/Hk·T, W)`: see `minitransformer.ops.attention.fold`."""
    batch, heads, time, width = x.shape
    kv_heads = key.shape[1]
    return x if heads == kv_heads else x.reshape(batch, kv_heads, heads // kv_heads * time, width)
