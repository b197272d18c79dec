"""The earlier versions of attention, in plain PyTorch.

naive    the formula: scores and weights are whole arrays in memory
online   one block of keys at a time, so that memory grows as T; the kernels do this with the block in registers
"""

import math
from typing import Any

import torch
from torch import Tensor

from minitransformer.ops import Dropout

from ..eager.attention import alibi_bias, attention_mask
from ..eager.dropout import dropout_forward

NEVER = float("-inf")
"""The score of a key that a query does not see."""


def attention_naive(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    slopes: Tensor | None = None,
    dropout: Dropout | None = None,
    **seen: Any,
) -> Tensor:
    """`softmax(scale · query keyᵀ + bias) value` exactly as written; shapes and options as in `attention_forward`.

    The scores and then the weights are `(B, H, Tq, Tk)` arrays in memory: the first product writes them; the scale, the
    mask, the softmax and the zeros read and write them; the second product reads them. That is 10 · Tq · Tk numbers for
    each head, and only (D + Dv) · (Tq + Tk) for inputs and output: at T = 4096 and D = 128, 80 times as many.
    """
    if query.shape[1] != key.shape[1]:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)  # (B, H, Tq, Tk)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        scores = scores + alibi_bias(slopes, query.shape[2], key.shape[2]).to(scores.dtype)
    if bias is not None:
        scores = scores + bias
    mask = _mask(query, key, **seen)
    scores = scores.masked_fill(~mask, NEVER)
    weights = torch.softmax(scores, dim=-1).masked_fill(~mask.any(-1, keepdim=True), 0.0)  # no key: zeros, not 0/0
    return dropout_forward(weights, dropout)[0] @ value  # (B, H, Tq, Dv)


def attention_online(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, block: int = 128, **seen: Any
) -> Tensor:
    """Compute attention with one block of keys at a time, as the forward kernel does, for all queries at once.

    The softmax of a row needs its largest score m and `l = Σ_j e^(scores_j − m)`. Both are updated with each block: if
    it has a larger m, the sums so far are multiplied by `e^(old m − new m)`. No array is Tq × Tk any more, so memory
    grows as T; but the scores of each block still move to memory and back, even those that no query sees.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    m = torch.full((*query.shape[:3], 1), NEVER, dtype=torch.float32, device=query.device)
    l = torch.zeros_like(m)
    acc = torch.zeros((*query.shape[:3], value.shape[3]), dtype=torch.float32, device=query.device)
    for start in range(0, key.shape[2], block):
        keys = slice(start, start + block)
        scores = (query @ key[:, :, keys].mT).float() * scale  # (B, H, Tq, block)
        scores = scores.masked_fill(~_mask(query, key, keys=keys, **seen), NEVER)
        new_m = torch.maximum(m, scores.amax(-1, keepdim=True))
        shift = new_m.masked_fill(new_m == NEVER, 0.0)  # no key seen yet: −inf − (−inf) would be NaN
        weights, rescale = torch.exp(scores - shift), torch.exp(m - shift)
        l = l * rescale + weights.sum(-1, keepdim=True)
        acc = acc * rescale + (weights.to(value.dtype) @ value[:, :, keys]).float()
        m = new_m
    return (acc / l.masked_fill(l == 0.0, 1.0)).to(query.dtype)


def _mask(query: Tensor, key: Tensor, **seen: Any) -> Tensor:
    """Return the mask of the keys, or of the slice `keys`, for each query: `(Tq, Tk)` or `(B, 1, Tq, Tk)`."""
    mask = attention_mask(query.shape[2], key.shape[2], query.device, **seen)
    return torch.ones((1, 1), dtype=torch.bool, device=query.device) if mask is None else mask
