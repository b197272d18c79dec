"""Checks gradients that were written by hand: compares them with central differences, for any function.

For `y = f(x)` and a random `dy` of y's shape, a backward must return `dx`, the gradient of the scalar `<dy, f(x)>`.
Each coordinate of it can be measured without any calculus:

    dx[i]  ≈  ( <dy, f(x + ε·e_i)> − <dy, f(x − ε·e_i)> ) / 2ε        with an error of O(ε²)

In float64 with ε = 1e-5 the truncation error (ε² ~ 1e-10) and the rounding error (1e-16 / ε ~ 1e-11) are far below the
tolerance of 1e-6, and every mistake that matters is far above it. Keep inputs of order one, and away from kinks (relu
at 0): a difference across a kink is not a derivative.

    def square_forward(x):
        return x * x, x                       # the output, and what the backward needs
    def square_backward(dy, x):
        return 2 * x * dy
    check_gradients(square_forward, square_backward, {"x": np.random.randn(3, 4)})    # → {"x": 1e-11}
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]


class GradientError(AssertionError):
    """A backward disagrees with central differences; the message says where, by how much and perhaps why."""


def error(actual: ArrayLike, expected: ArrayLike) -> float:
    """Return the difference of two arrays as one number: `max|actual − expected| / max(1, max|expected|)`.

    It is relative for large values and absolute for small ones, so that it is useful also where the truth is zero. A
    NaN or an infinity in either array gives inf, empty arrays give 0. Raises ValueError if the shapes differ.
    """
    a, b = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"actual and expected must have the same shape, got {a.shape} and {b.shape}")
    if a.size == 0:
        return 0.0
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    return float(np.abs(a - b).max() / max(1.0, np.abs(b).max()))


def distinct(a: float, b: float, digits: int = 5) -> tuple[str, str]:
    """Return two numbers as text for a message: with `digits` digits, or with more if they would look equal."""
    shown = f"{a:.{digits}g}", f"{b:.{digits}g}"
    return distinct(a, b, digits + 1) if shown[0] == shown[1] and digits < 17 else shown  # any two differ in 17


def numerical_gradient(f: Callable[[Float64], Any], x: Float64, *, eps: float = 1e-5) -> Float64:
    """Return the gradient of the scalar `f` at `x`, by central differences: `(f(x + ε·e_i) − f(x − ε·e_i)) / 2ε`.

    `f` receives a copy of `x` (any shape, float64) with one coordinate moved. Returns an array of x's shape.
    Raises TypeError if `x` is not float64, and ValueError if `f` does not return one number.
    """
    _require_float64("x", x)
    return _differences(f, x, np.arange(np.size(x)), eps).reshape(np.shape(x))


def check_gradients(
    forward: Callable[..., tuple[Any, Any]],
    backward: Callable[[Any, Any], Any],
    arrays: Mapping[str, Any],
    *,
    eps: float = 1e-5,
    tolerance: float = 1e-6,
    samples: int | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Compare a backward with central differences of its forward; return each argument's `error`.

    `forward(*arrays.values()) -> (out, cache)` and `backward(dout, cache)` follow the convention of
    `minitransformer.ops`: the backward returns the gradients of the floating-point arrays in order (one alone
    bare, several as a tuple or list), None for an argument that is None; integer and boolean arrays have no
    gradient. Pass options with a closure or `functools.partial`. For large arrays, `samples` limits the check to that
    many random coordinates of each.

    Raises GradientError, which names the argument, the worst coordinate and the likely mistake, and TypeError if an
    array or the output is floating-point but not float64: float32 is too coarse for differences.
    """
    arrays = {name: np.asarray(a) if isinstance(a, float) else a for name, a in arrays.items()}
    rng = np.random.default_rng((seed, 1))  # not default_rng(seed): if that drew x too, dout = x would hide mistakes
    arguments = {name: a for name, a in arrays.items() if a is None or np.asarray(a).dtype.kind == "f"}
    for name, array in arguments.items():
        if array is not None:
            _require_float64(name, array)

    out, cache = forward(*arrays.values())
    _require_float64("forward's output", out)
    dout = np.asarray(rng.standard_normal(np.shape(out)))
    gradients = _gradients_by_name(backward(dout, cache), arguments)

    checked: dict[str, NDArray[np.intp]] = {}  # flat coordinates of each array ...
    measured: dict[str, Float64] = {}  # ... and the central differences there
    for name in gradients:

        def inner_product(moved: Float64, name: str = name) -> Float64:
            return np.vdot(dout, forward(*{**arrays, name: moved}.values())[0])

        checked[name] = rng.permutation(arrays[name].size)[:samples]
        measured[name] = _differences(inner_product, arrays[name], checked[name], eps)

    errors = {}
    for name, expected in measured.items():
        actual = gradients[name].ravel()[checked[name]]
        errors[name] = error(actual, expected)
        if errors[name] > tolerance:
            worst = int(np.argmax(np.where(np.isfinite(actual), np.abs(actual - expected), np.inf)))
            index = tuple(int(i) for i in np.unravel_index(checked[name][worst], arrays[name].shape))
            given, right = distinct(actual[worst], expected[worst], digits=6)
            raise GradientError(
                f"the gradient of {name} is wrong, most of all at index {index}: backward gives "
                f"{given}, central differences give {right} "
                f"(error {errors[name]:.1e}, tolerance {tolerance:.0e})."
                + _hint(expected, checked[name], gradients, name, tolerance)
            )
    return errors


def _require_float64(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray | np.floating | float):
        raise TypeError(f"{name} must be a float64 array, got {type(array).__name__}")
    if np.asarray(array).dtype != np.float64:
        raise TypeError(f"{name} must be float64 (finite differences need it), got {np.asarray(array).dtype}")


def _differences(f: Callable[[Float64], Any], x: Float64, coordinates: NDArray[np.intp], eps: float) -> Float64:
    """Return the central differences of `f` at `x`, one for each of the given flat coordinates."""
    slopes = np.empty(len(coordinates))
    for n, i in enumerate(coordinates):
        up, down = np.array(x, order="C"), np.array(x, order="C")
        up.reshape(-1)[i] += eps
        down.reshape(-1)[i] -= eps
        difference = np.asarray(f(up)) - np.asarray(f(down))
        if difference.ndim:
            raise ValueError(f"f must return one number, got an array of shape {difference.shape}")
        slopes[n] = difference / (2 * eps)
    return slopes


def _gradients_by_name(returned: Any, arguments: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return a backward's gradients by name. Raises GradientError if the number, a type or a shape is wrong."""
    returned = list(returned) if isinstance(returned, tuple | list) else [returned]
    if len(returned) != len(arguments):
        raise GradientError(
            f"backward must return {len(arguments)} gradients ({', '.join(arguments)}), got {len(returned)}"
        )
    gradients = {}
    for (name, argument), gradient in zip(arguments.items(), returned, strict=True):
        if (argument is None) != (gradient is None):
            expected = "None, as the argument is" if argument is None else "an array"
            raise GradientError(f"the gradient of {name} must be {expected}, got {type(gradient).__name__}")
        if argument is not None:
            gradients[name] = np.asarray(gradient)
            if gradients[name].shape != argument.shape:
                hint = ": is it transposed?" if gradients[name].shape == argument.shape[::-1] else ""
                raise GradientError(
                    f"the gradient of {name} must have its shape {argument.shape}, got {gradients[name].shape}{hint}"
                )
    return gradients


def _hint(
    expected: Float64,
    checked: NDArray[np.intp],
    gradients: Mapping[str, NDArray[Any]],
    name: str,
    tolerance: float,
) -> str:
    """Return the usual mistake that explains a wrong gradient, if there is one; else an empty string."""

    def explains(candidate: NDArray[Any]) -> bool:
        return error(candidate.ravel()[checked], expected) <= 10 * tolerance

    gradient = gradients[name]
    actual = gradient.ravel()[checked]
    factor = np.vdot(expected, actual) / max(np.vdot(expected, expected), np.finfo(np.float64).tiny)
    square = gradient.ndim >= 2 and gradient.shape[-1] == gradient.shape[-2]
    twins = [k for k, g in gradients.items() if k != name and g.shape == gradient.shape and explains(g)]
    wrong = np.mean(np.abs(actual - expected) > tolerance * max(1.0, np.abs(expected).max()))
    everywhere = " everywhere" if len(expected) > 1 else ""

    if not np.isfinite(actual).all():
        return " It holds NaN or infinity: look for 0/0, log(0) or the exponential of a large number."
    if not actual.any():
        return f" It is zero{everywhere}: is it computed, and added to what is returned?"
    if explains(-gradient):
        return f" It has the wrong sign{everywhere}."
    if everywhere and factor and abs(factor - 1) > 1e-3 and explains(gradient / factor):
        return f" It is {factor:.6g} times the true gradient{everywhere}: a factor is missing or too many."
    if square and explains(np.swapaxes(gradient, -1, -2)):
        return " It is the transpose of the true gradient."
    if twins:
        return f" What backward returns for {twins[0]} would be right here: are two gradients swapped?"
    share = f"{wrong:.0%}" if wrong >= 0.005 else "a few"
    return f" Only {share} of the checked coordinates are wrong." if wrong < 0.5 else ""
