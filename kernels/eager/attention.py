"""Scaled dot-product attention, composed from a softmax."""

import math

import torch
from torch import Tensor

from minitransformer.ops import Dropout, Pair

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
        *,
        causal: bool = False,
        key_mask: Tensor | None = None,
        window: int | None = None,
        scale: float | None = None,
        dropout: Dropout | None = None,
    ) -> tuple[Tensor, tuple]:
        """`softmax(scale · query keyᵀ) value`: `(B, H, Tq, D)`, `(B, H, Tk, D)`, `(B, H, Tk, Dv)` → `(B, H, Tq, Dv)`"""
        scores, scaled_query, scale = _scores(query, key, causal, key_mask, window, scale)
        weights, softmax_cache = softmax.forward(scores)  # (B, H, Tq, Tk)
        dropped, dropout_cache = dropout_forward(weights, dropout)
        out = dropped @ value  # (B, H, Tq, Dv)
        return out, (scaled_query, key, value, dropped, softmax_cache, dropout_cache, scale)

    def attention_backward(dout: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients `(dquery, dkey, dvalue)`."""
        scaled_query, key, value, dropped, softmax_cache, dropout_cache, scale = cache
        check_gradient("dout", dout, (*dropped.shape[:3], value.shape[3]), value.dtype, value.device)
        dvalue = dropped.mT @ dout  # out = dropped @ value
        dweights = dropout_backward(dout @ value.mT, dropout_cache)
        dscores = softmax.backward(dweights, softmax_cache)
        dquery = dscores @ key * scale  # scores = (scale · query) @ keyᵀ
        dkey = dscores.mT @ scaled_query
        return dquery, dkey, dvalue

    return Pair(attention_forward, attention_backward)


attention = attention_from(Pair(softmax_forward, softmax_backward))
attention_forward, attention_backward = attention.forward, attention.backward


@declared
def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """The softmax matrix `(B, H, Tq, Tk)`, for pictures and for teaching."""
    return softmax_forward(_scores(query, key, causal, key_mask, window, scale)[0])[0]


def attention_mask(
    num_queries: int,
    num_keys: int,
    device: torch.device | str,
    causal: bool = False,
    key_mask: Tensor | None = None,
    window: int | None = None,
    keys: slice = slice(None),
) -> Tensor | None:
    """`True` = may attend; broadcasts to `(B, H, Tq, Tk)`, `None` if all: see `minitransformer.ops.attention_mask`.

    `keys` selects the keys that the mask is for, by default all.
    """
    mask = None
    if causal or window is not None:
        # distance[i, j] > 0: key j lies before query i
        last = torch.arange(num_keys - num_queries, num_keys, device=device)
        distance = last[:, None] - torch.arange(num_keys, device=device)[keys]  # (Tq, Tk)
        mask = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
        if window is not None:
            mask &= distance.abs() <= window
    if key_mask is not None:
        real = key_mask[:, None, None, keys]  # (B, 1, 1, Tk)
        mask = real if mask is None else mask & real
    return mask


def _scores(
    query: Tensor, key: Tensor, causal: bool, key_mask: Tensor | None, window: int | None, scale: float | None
) -> tuple[Tensor, Tensor, float]:
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scaled_query = query * scale  # (B, H, Tq, D)
    scores = scaled_query @ key.mT  # (B, H, Tq, Tk)
    mask = attention_mask(query.shape[2], key.shape[2], query.device, causal, key_mask, window)
    return scores if mask is None else scores.masked_fill_(~mask, -math.inf), scaled_query, scale
