"""The Gaussian error linear unit, the activation of GPT-2, BERT and ViT."""

import math

import numpy as np

from .arguments import Array, arguments, check_choice, gradient_of
from .normal import normal

SLOPE = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def check_approximate(name: str, value: object) -> None:
    """Raises unless the value is `"none"` or `"tanh"`."""
    check_choice(name, value, ("none", "tanh"))


@arguments("x ...", approximate=check_approximate)
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
