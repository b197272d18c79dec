"""Formulas that a variant puts in the place of a kernel's own. Triton finds the names in a function's own module."""

import triton
import triton.language as tl


@triton.jit
def normal_below(x):
    """Φ(x), the probability that a standard normal number is below x, by the error function."""
    return 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)  # √½


@triton.jit
def exp(x):
    """e^x, those below 2⁻¹²⁶ too."""
    return tl.exp(x)
