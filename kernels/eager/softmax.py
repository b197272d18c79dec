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
    """`log softmax(x)`, for decoding only; float32 if x is narrower, in which good tokens could become equal."""
    if not x.numel():
        return widened(x).clone()
    shifted = _below_max(x)
    return shifted - torch.log(_total(torch.exp(shifted)))  # a row of all −inf stays −inf


def widened(x: Tensor) -> Tensor:
    """x as float32 if it is float16 or bfloat16, so that sums are exact enough."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _below_max(x: Tensor) -> Tensor:
    """`x − m` for the row's maximum m, or the lowest finite number instead of −inf, since −inf − (−inf) is NaN."""
    x = widened(x)
    return x - x.amax(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).min)


def _total(exponentials: Tensor) -> Tensor:
    """The sum of each row. Its maximum alone gives 1, so less means a row of all −inf: it gets 1 too."""
    return exponentials.sum(-1, keepdim=True).clamp(min=1)
