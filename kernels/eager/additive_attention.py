"""Additive attention, composed from a softmax."""

import math

import torch
from torch import Tensor

from ..checks import check_gradient, declared
from .softmax import softmax_backward, softmax_forward, widened


@declared
def additive_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, score_weight: Tensor, *, key_mask: Tensor | None = None
) -> tuple[Tensor, tuple]:
    """`out_i = Σ_j softmax_j(score_weight · tanh(query_i + key_j)) value_j`: `(B, Tq, C)`, … → `(B, Tq, Dv)`."""
    features = torch.tanh(query[:, :, None] + key[:, None])  # (B, Tq, Tk, C)
    scores = features @ score_weight  # (B, Tq, Tk)
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None], -math.inf)
    weights, softmax_cache = softmax_forward(scores)
    return weights @ value, (features, value, score_weight, weights, softmax_cache)


def additive_attention_backward(dout: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients `(dquery, dkey, dvalue, dscore_weight)`."""
    features, value, score_weight, weights, softmax_cache = cache
    check_gradient("dout", dout, (*weights.shape[:2], value.shape[2]), value.dtype, value.device)
    dvalue = weights.mT @ dout  # out = weights @ value
    dscores = softmax_backward(dout @ value.mT, softmax_cache)  # (B, Tq, Tk)
    dscore_weight = dscores.reshape(-1) @ features.reshape(dscores.numel(), len(score_weight))
    dsum = widened(dscores)[..., None] * (1 - widened(features).square()) * score_weight  # features = tanh(query + key)
    return dsum.sum(2).to(dout.dtype), dsum.sum(1).to(dout.dtype), dvalue, dscore_weight
