"""Softmax over the last axis, and its logarithm."""

import torch
from torch import Tensor

from ..checks import check_gradient, declared


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
    """`log softmax(x)`, for decoding only; in float32 if x is narrower, since good tokens could become equal there."""
    if not x.numel():
        return widened(x).clone()
    shifted = _below_max(x)
    return shifted - torch.log(_total(torch.exp(shifted)))  # a row of all −inf stays −inf


def widened(x: Tensor) -> Tensor:
    """Return x as float32 if it is float16 or bfloat16, so that sums are exact enough."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _below_max(x: Tensor) -> Tensor:
    """Return `x − m` for the row's maximum m, at least the lowest finite number, since −inf − (−inf) is NaN."""
    x = widened(x)
    return x - x.amax(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).min)


def _total(exponentials: Tensor) -> Tensor:
    """Return the sum of each row, 1 for a row of all −inf; in every other row the maximum alone gives 1."""
    return exponentials.sum(-1, keepdim=True).clamp(min=1)
