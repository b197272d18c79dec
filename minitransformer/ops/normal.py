"""The standard normal distribution, which gelu needs: NumPy has no error function."""

import math

import numpy as np

from .arguments import Array

# The coefficients of polynomials, each beginning with the highest power.
# float64: W. J. Cody, "Rational Chebyshev Approximations for the Error Function", Mathematics of Computation 23 (1969),
# with the digits of his program CALERF.
NEAR_ABOVE = (
    1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3,
)  # fmt: skip
NEAR_BELOW = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
FAR_ABOVE = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
    8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip
FAR_BELOW = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
NEAR = 0.46875
"""Up to here the first fraction is the more exact one."""

ENOUGH = 6.0
"""From here on erf is 1 in float64: 1 − erf(6) is 2e-17."""

# float32: Abramowitz & Stegun 1964, eq. 26.2.17. Its error is 7.5e-8 at most, about the rounding of float32 at 1.
TAIL = (1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530, 0.0)
TAIL_SCALE = 0.2316419


def normal(x: Array) -> tuple[Array, Array]:
    """Return the probability Φ(x) that a standard normal number is below x, and its density `exp(−x²/2) / √(2π)`."""
    with np.errstate(over="ignore"):  # exp of −infinity is 0, as it should be
        density = np.exp(x * x * -0.5)
    density *= 1 / math.sqrt(2 * math.pi)
    if x.dtype == np.float64:
        return (1 + erf(x * math.sqrt(0.5))) / 2, density
    # It takes a third of the time of erf's fractions, and a model spends much of its time in gelu.
    tail = polynomial(TAIL, 1 / (1 + TAIL_SCALE * np.abs(x)))
    tail *= density  # 1 − Φ(|x|)
    below = np.copysign(0.5 - tail, x)
    below += 0.5
    return below, density


def erf(x: Array) -> Array:
    """`erf(x) = 2/√π ∫₀ˣ exp(−t²) dt` of float64, element by element, to its last digits.

    |x| ≤ 0.47    erf(x) = x · P(x²) / Q(x²)
    |x| > 0.47    erf(x) = ±(1 − exp(−x²) · R(|x|) / S(|x|))
    """
    size = np.minimum(np.abs(x), ENOUGH)
    square = size * size
    far = 1 - np.exp(-square) * polynomial(FAR_ABOVE, size) / polynomial(FAR_BELOW, size)
    square = np.minimum(square, NEAR * NEAR)
    near = size * polynomial(NEAR_ABOVE, square) / polynomial(NEAR_BELOW, square)
    return np.copysign(np.where(size <= NEAR, near, far), x)


def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """`c_0 xⁿ + … + c_n` by Horner's rule."""
    first, second, *rest = coefficients
    total = x * first + second
    for coefficient in rest:
        total *= x
        total += coefficient
    return total
