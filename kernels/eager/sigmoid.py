"""The gate."""

import torch
from torch import Tensor

from .._checks import check_floats, check_gradient


def sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = 1 / (1 + exp(−x))`."""
    check_floats(x=x)
    y = torch.sigmoid(x)
    return y, y


def sigmoid_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · y · (1 − y)`."""
    y = cache
    check_gradient("dy", dy, y.shape, y.dtype, y.device)
    return dy * (y * (1 - y))
