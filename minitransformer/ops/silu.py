"""The sigmoid linear unit, also called swish: the activation of Llama, in its gated form."""

from .arguments import Array, arguments, gradient_of, unchecked
from .sigmoid import sigmoid_forward


@arguments("x ...")
def silu_forward(x: Array) -> tuple[Array, Array]:
    """`y = x · σ(x)`, element by element, with the sigmoid σ(x) = 1 / (1 + e⁻ˣ).

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
