"""The element-wise ops: relu, tanh and the sigmoid. Each gradient is a function of the output alone."""

import torch
from torch import Tensor

from .._checks import check_gradient, declared


@declared
def relu_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = max(0, x)`."""
    y = x.clamp(min=0)
    return y, y


def relu_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · [x > 0]`."""
    return _received(dy, cache) * (cache > 0)


@declared
def tanh_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = tanh(x)`."""
    y = torch.tanh(x)
    return y, y


def tanh_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · (1 − y²)`."""
    return _received(dy, cache) * (1 - cache.square())


@declared
def sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = 1 / (1 + exp(−x))`."""
    y = torch.sigmoid(x)
    return y, y


def sigmoid_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · y · (1 − y)`."""
    return _received(dy, cache) * (cache * (1 - cache))


def _received(dy: Tensor, y: Tensor) -> Tensor:
    """Returns dy. Raises unless it has the shape, dtype and device of y."""
    check_gradient("dy", dy, y.shape, y.dtype, y.device)
    return dy
