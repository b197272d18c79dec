"""The element-wise ops: relu, tanh, the sigmoid, silu, gelu, and `gated`, the product of an activation and an array."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .arguments import Array, arguments, check_choice, gradient_of, unchecked
from .normal import normal

SLOPE = math.sqrt(2 / math.pi)  # of gelu's approximation by tanh, as CUBIC is
CUBIC = 0.044715


@arguments("x ...")
def relu_forward(x: Array) -> tuple[Array, Array]:
    """`y = max(0, x)`, element by element. Source: Vaswani 2017, §3.3, eq. 2."""
    y = np.maximum(x, 0)
    return y, y


@gradient_of(lambda y: y)
def relu_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · [x > 0]`; the subgradient at 0 is 0."""
    y = cache  # positive where x is; the next layer keeps y too, so keeping it costs no memory
    return dy * (y > 0)


@arguments("x ...")
def tanh_forward(x: Array) -> tuple[Array, Array]:
    """`y = tanh(x)`, element by element. Source: LeCun et al. 1998, §4.4."""
    y = np.tanh(x)
    return y, y


@gradient_of(lambda y: y)
def tanh_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · (1 − y²)`."""
    y = cache
    return dy * (1 - y * y)


@arguments("x ...")
def sigmoid_forward(x: Array) -> tuple[Array, Array]:
    """`y = 1 / (1 + e⁻ˣ)`, element by element. Source: Hochreiter & Schmidhuber 1997, appendix A.1."""
    with np.errstate(over="ignore"):  # far below 0 e⁻ˣ is inf, and 1 / inf is 0, as it should be
        y = 1 / (1 + np.exp(-x))
    return y, y


@gradient_of(lambda y: y)
def sigmoid_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · y · (1 − y)`."""
    y = cache
    return dy * y * (1 - y)


@arguments("x ...")
def silu_forward(x: Array) -> tuple[Array, Array]:
    """`y = x · σ(x)`, element by element, with the sigmoid σ(x) = 1 / (1 + e⁻ˣ); also called swish.

    The derivative `σ(x) + x σ(x) (1 − σ(x))` costs little more here, and is all that the backward needs.
    Source: Hendrycks & Gimpel 2016, §2; Ramachandran, Zoph, Le 2017 (swish).
    """
    gate, _ = unchecked(sigmoid_forward)(x)
    y = x * gate
    return y, gate + y * (1 - gate)


@gradient_of(lambda derivative: derivative)
def silu_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · (σ(x) + x σ(x) (1 − σ(x)))`: the slope of σ is σ (1 − σ)."""
    derivative = cache
    return dy * derivative


@arguments("x ...", approximate=partial(check_choice, choices=("none", "tanh")))
def gelu_forward(x: Array, approximate: str = "none") -> tuple[Array, Array]:
    """`y = x · Φ(x)`, element by element: Φ(x) is the probability that a standard normal number is below x.

        approximate="none"    Φ(x) = (1 + erf(x / √2)) / 2                              BERT, ViT
        approximate="tanh"    Φ(x) ≈ (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2         GPT-2

    The derivative `Φ(x) + x Φ′(x)` costs little more here, and is all that the backward needs.
    Source: Hendrycks & Gimpel 2016, §2.
    """
    if approximate == "tanh":
        with np.errstate(over="ignore"):  # tanh of infinity is 1, as it should be
            t = np.tanh(SLOPE * x * (1 + CUBIC * x * x))
        below = (1 + t) / 2
        # Φ′ = (1 − t²)/2 · √(2/π) · (1 + 3 · 0.044715 x²): (1 − t²) · x comes first, 0 for a large x, whose x³ is inf.
        rest = (1 - t * t) * x
        along = SLOPE / 2 * (rest + 3 * CUBIC * (rest * x) * x)
    else:
        below, density = normal(x)
        along = x * density
    return x * below, below + along


@gradient_of(lambda derivative: derivative)
def gelu_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy · (Φ(x) + x Φ′(x))`; Φ′ is the normal density, `exp(−x²/2) / √(2π)`, or the slope of tanh's formula."""
    derivative = cache
    return dy * derivative


# --- Gated linear units ---------------------------------------------------------------------------------------


Functions = tuple[Callable[..., Any], Callable[..., Any]]
"""A forward and its backward."""


def activations_of(silu: Functions, gelu: Functions, relu: Functions, sigmoid: Functions) -> dict[str, Functions]:
    """Return a backend's activations by the names that configurations give them."""
    forward, backward = gelu
    tanh = partial(forward, approximate="tanh"), backward
    return {"silu": silu, "gelu": gelu, "gelu_tanh": tanh, "relu": relu, "sigmoid": sigmoid}


ACTIVATIONS = activations_of(
    (unchecked(silu_forward), unchecked(silu_backward)),
    (unchecked(gelu_forward), unchecked(gelu_backward)),
    (unchecked(relu_forward), unchecked(relu_backward)),
    (unchecked(sigmoid_forward), unchecked(sigmoid_backward)),
)


@arguments("gate ... F, up ... F", activation=partial(check_choice, choices=tuple(ACTIVATIONS)))
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
