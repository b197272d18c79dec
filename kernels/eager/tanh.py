"""The squashing function."""

import torch
from torch import Tensor

from .._checks import check_floats, check_gradient


def tanh_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = tanh(x)`."""
    check_floats(x=x)
    y = torch.tanh(x)
    return y, y


def tanh_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · (1 − y²)`."""
    y = cache
    check_gradient("dy", dy, y.shape, y.dtype, y.device)
    return dy * (1 - y.square())
