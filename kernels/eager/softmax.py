"""Softmax over the last axis, and its logarithm."""

import torch
from torch import Tensor

from .._checks import check_gradient, declared


@declared
def softmax_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y_i = exp(x_i) / Σ_j exp(x_j)`; a row of all −inf gives zeros."""
    if not x.numel():
        return x.clone(), x
    exponentials = torch.exp(_below_max(x))
    y = (exponentials / _total(exponentials)).to(x.dtype)
    return y, y


def softmax_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = y · (dy − Σ_j dy_j y_j)`."""
    y = cache
    check_gradient("dy", dy, y.shape, y.dtype, y.device)
    weights, dweights = widened(y), widened(dy)
    return (weights * (dweights - (dweights * weights).sum(-1, keepdim=True))).to(y.dtype)


@declared
def log_softmax(x: Tensor) -> Tensor:
    """`log softmax(x)`, for decoding only; in float32 where x is narrower, or good tokens could not be told apart."""
    if not x.numel():
        return widened(x).clone()
    shifted = _below_max(x)
    return shifted - torch.log(_total(torch.exp(shifted)))  # a row of all −inf stays −inf


def widened(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32, in which sums are taken."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _below_max(x: Tensor) -> Tensor:
    """`x − m`, m the row's maximum; the lowest number where that is −inf, since −inf − (−inf) is NaN."""
    x = widened(x)
    return x - x.amax(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).min)


def _total(exponentials: Tensor) -> Tensor:
    """Each row's sum, at least 1, which is the maximum's own; but 0 for a row of all −inf, here 1."""
    return exponentials.sum(-1, keepdim=True).clamp(min=1)
