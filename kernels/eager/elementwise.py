"""The element-wise ops: relu, tanh, the sigmoid, gelu, silu, and the gated product of two arrays.

The gradients of the first three are functions of the output alone. The others keep their input, and their backward
computes the rest again, which is cheaper than keeping it.
"""

from functools import partial

import torch
from torch import Tensor

from minitransformer.ops.gelu import CUBIC, SLOPE

from ..checks import check_gradient, declared
from .softmax import widened


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
    return (widened(_received(dy, cache)) * (1 - widened(cache).square())).to(cache.dtype)


@declared
def sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = 1 / (1 + exp(−x))`."""
    y = torch.sigmoid(x)
    return y, y


def sigmoid_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · y · (1 − y)`."""
    y = widened(cache)
    return (widened(_received(dy, cache)) * (y * (1 - y))).to(cache.dtype)


@declared
def gelu_forward(x: Tensor, approximate: str = "none") -> tuple[Tensor, tuple]:
    """`y = x · Φ(x)`, Φ(x) = (1 + erf(x / √2)) / 2 or its approximation with tanh."""
    wide = widened(x)
    return (wide * _normal_below(wide, approximate)).to(x.dtype), (x, approximate)


def gelu_backward(dy: Tensor, cache: tuple) -> Tensor:
    """`dx = dy · (Φ(x) + x Φ′(x))`."""
    x, approximate = cache
    wide = widened(x)
    below = _normal_below(wide, approximate)
    if approximate == "tanh":
        product = 2 * below * (1 - below) * wide  # 0 for a large x: it comes first, so that x³ never overflows
        x_times_slope = SLOPE * (product + 3 * CUBIC * (product * wide) * wide)
    else:
        x_times_slope = wide * torch.exp(wide.square() / -2) * (SLOPE / 2)
    return (widened(_received(dy, x)) * (below + x_times_slope)).to(x.dtype)


def _normal_below(x: Tensor, approximate: str) -> Tensor:
    """Return Φ(x), the probability that a standard normal number is below x."""
    if approximate == "tanh":
        return (1 + torch.tanh(SLOPE * x * (1 + CUBIC * x.square()))) / 2
    return (1 + torch.erf(x * 0.5**0.5)) / 2


@declared
def silu_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = x · σ(x)`."""
    wide = widened(x)
    return (wide * torch.sigmoid(wide)).to(x.dtype), x


def silu_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · (σ(x) + x σ(x) (1 − σ(x)))`."""
    x, wide = cache, widened(cache)
    gate = torch.sigmoid(wide)
    return (widened(_received(dy, x)) * (gate + wide * gate * (1 - gate))).to(x.dtype)


ACTIVATIONS = {
    "silu": (silu_forward, silu_backward),
    "gelu": (gelu_forward, gelu_backward),
    "gelu_tanh": (partial(gelu_forward, approximate="tanh"), gelu_backward),
    "relu": (relu_forward, relu_backward),
    "sigmoid": (sigmoid_forward, sigmoid_backward),
}


@declared
def gated_forward(gate: Tensor, up: Tensor, activation: str = "silu") -> tuple[Tensor, tuple]:
    """`y = activation(gate) · up`."""
    activated, _ = ACTIVATIONS[activation][0](widened(gate))
    return (activated * widened(up)).to(gate.dtype), (gate, up, activation)


def gated_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor]:
    """Gradients `(dgate, dup)`."""
    gate, up, activation = cache
    forward, backward = ACTIVATIONS[activation]
    dy = widened(_received(dy, gate))
    activated, activation_cache = forward(widened(gate))
    dgate = backward(dy * widened(up), activation_cache)  # y = activated * up
    return dgate.to(gate.dtype), (dy * activated).to(up.dtype)


def _received(dy: Tensor, y: Tensor) -> Tensor:
    """Return dy. Raises unless it has the shape, dtype and device of y."""
    check_gradient("dy", dy, y.shape, y.dtype, y.device)
    return dy
