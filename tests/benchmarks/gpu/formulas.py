"""Formulas that a variant puts in the place of a kernel's own. They have a file because Triton reads a
function's source and the names of its module."""

import triton
import triton.language as tl


@triton.jit
def normal_below(x):
    """Return Φ(x), the probability that a standard normal number is below x, by the error function."""
    return 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)  # √½


@triton.jit
def exp(x):
    """Return e^x, also below 2⁻¹²⁶."""
    return tl.exp(x)
