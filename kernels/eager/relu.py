"""The rectifier."""

from torch import Tensor

from .._checks import check_floats, check_gradient


def relu_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = max(0, x)`."""
    check_floats(x=x)
    y = x.clamp(min=0)
    return y, y


def relu_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · [x > 0]`."""
    y = cache
    check_gradient("dy", dy, y.shape, y.dtype, y.device)
    return dy * (y > 0)
