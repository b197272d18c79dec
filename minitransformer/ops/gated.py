"""Gated linear units: the hidden layer of Llama's and T5 v1.1's feed-forward networks."""

from functools import partial

from .arguments import Array, arguments, check_choice, gradient_of, unchecked
from .gelu import gelu_backward, gelu_forward
from .relu import relu_backward, relu_forward
from .sigmoid import sigmoid_backward, sigmoid_forward
from .silu import silu_backward, silu_forward

ACTIVATIONS = {
    "silu": (unchecked(silu_forward), unchecked(silu_backward)),
    "gelu": (unchecked(gelu_forward), unchecked(gelu_backward)),
    "gelu_tanh": (partial(unchecked(gelu_forward), approximate="tanh"), unchecked(gelu_backward)),
    "relu": (unchecked(relu_forward), unchecked(relu_backward)),
    "sigmoid": (unchecked(sigmoid_forward), unchecked(sigmoid_backward)),
}


def check_activation(name: str, value: object) -> None:
    """Raises unless the value names an activation."""
    check_choice(name, value, tuple(ACTIVATIONS))


@arguments("gate ... F, up ... F", activation=check_activation)
def gated_forward(gate: Array, up: Array, activation: str = "silu") -> tuple[Array, tuple]:
    """`y = activation(gate) · up`, element by element; gate and up are two linear maps of the same input.

    `activation`: `"silu"` (SwiGLU), `"gelu"` or `"gelu_tanh"` (GEGLU), `"relu"` (ReGLU), `"sigmoid"` (GLU).
    Source: Shazeer 2020, eqs. 5 and 6; Dauphin et al. 2017 (GLU).
    """
    forward, _ = ACTIVATIONS[activation]
    activated, cache = forward(gate)
    return activated * up, (activated, up, cache, activation)


@gradient_of(lambda activated, up, cache, activation: up)
def gated_backward(dy: Array, cache: tuple) -> tuple[Array, Array]:
    """Gradients `(dgate, dup)`: a product's gradient in one factor is dy times the other."""
    activated, up, activation_cache, activation = cache
    _, backward = ACTIVATIONS[activation]
    dgate = backward(dy * up, activation_cache)  # y = activated * up
    dup = dy * activated  # y = activated * up
    return dgate, dup
