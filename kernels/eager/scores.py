"""The scores of scaled dot-product attention, of all pairs or of a piece; see `minitransformer.ops.attention`."""

import math

import torch
from torch import Tensor

from .softmax import widened


def scores_forward(
    query: Tensor, key: Tensor, bias: Tensor | None, mask: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor | None]:
    """Return the scores `(B, H, Tq, Tk)`, −inf where `mask` is false, and the softcap's tanh, for the backward."""
    query, key = _exact(query), _exact(key)
    scores = (fold(query * scale, key) @ key.mT).reshape(*query.shape[:3], key.shape[2])
    capped = None
    if softcap is not None:
        capped = torch.tanh(scores / softcap)
        scores = capped * softcap
    if bias is not None:
        scores = scores + bias
    return scores if mask is None else scores.masked_fill_(~mask, -math.inf), capped


def scores_backward(
    dscores: Tensor, query: Tensor, key: Tensor, scale: float, capped: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients `(dquery, dkey)`, in the dtype of the scores' product."""
    query, key = _exact(query), _exact(key)
    dscaled = fold(dscores if capped is None else dscores * (1 - capped * capped), key).to(query.dtype)
    dquery = (dscaled @ key).reshape(query.shape) * scale  # scores = (query * scale) @ keyᵀ
    return dquery, dscaled.mT @ fold(query * scale, key)


def _exact(x: Tensor) -> Tensor:
    """Return x in float32, since float16 would overflow; on a GPU x itself, since its float32 products are slow."""
    return x if x.is_cuda else widened(x)


def fold(x: Tensor, key: Tensor) -> Tensor:
    """Reshape `(B, H, T, W)` to `(B, Hk, H/Hk·T, W)`: see `minitransformer.ops.attention.fold`."""
    batch, heads, time, width = x.shape
    kv_heads = key.shape[1]
    return x if heads == kv_heads else x.reshape(batch, kv_heads, heads // kv_heads * time, width)
