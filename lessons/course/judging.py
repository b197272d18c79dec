"""What judges are written with: checks, which are content or raise `Wrong` with the sentence that the learner reads.

Where a hint prints two numbers, `distinct` and `farthest` print as many digits as it takes to tell them apart.
"""

import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitransformer.gradcheck import GradientError, check_gradients, distinct, error

from .exercise import Wrong


def require(condition: Any, hint: str) -> None:
    """Raise `Wrong(hint)` unless `condition` holds."""
    if not condition:
        raise Wrong(hint)


def several(result: Any, *names: str) -> list[np.ndarray]:
    """The arrays (or tensors, which stay what they are) of a returned tuple, which must be as many as `names`."""
    listed = ", ".join(names)
    require(isinstance(result, tuple | list), f"it must return {len(names)} arrays ({listed}), not one {kind(result)}")
    require(len(result) == len(names), f"it must return {len(names)} arrays ({listed}), not {len(result)}")
    for name, array in zip(names, result, strict=True):
        require(array is not None, f"{name} is None: is it computed, and returned?")
    return [array if hasattr(array, "detach") else np.asarray(array) for array in result]


def array(result: Any, name: str = "", single: bool = False) -> np.ndarray:
    """`result`, which must be an array of float64, as all that a judge hands out is.

    With `single`, for lessons whose model computes in float32, that is right too, and returned as float64.
    """
    must_be = f"{name} must be" if name else "it must return"
    require(type(result) is np.ndarray, f"{must_be} an array, not {type(result).__name__}")
    require(
        result.dtype == np.float64 or (single and result.dtype == np.float32),
        f"{must_be} an array of float64, and not of {result.dtype}{', which rounds' * (result.dtype.kind in 'fiu')}",
    )
    return result.astype(np.float64) if single else result


def arrays(result: Any, *names: str) -> list[np.ndarray]:
    """The parts of a returned tuple, as many as `names`, each an `array`."""
    several(result, *names)
    return [array(part, name) for part, name in zip(result, names, strict=True)]


def precise(name: str, actual: Any, expected: Any) -> None:
    """`actual` may be `expected`, or plainly wrong, but not as near as rounding on the way would take it."""
    off = error(actual, expected)
    require(
        not 1e-9 < off < 1e-3,
        f"{name} is right to about {off:.0e} only: is something rounded, or computed in float32, on the way?",
    )


def agree(
    name: str, actual: Any, expected: Any, *, tolerance: float = 1e-9, factors: Mapping[str, float] | None = None
) -> None:
    """`actual` must be `expected`, to `tolerance` (as `gradcheck.error` measures).

    Where it is not, the hint says what the difference looks like: the shape, NaN, a sign, a constant factor (named, if
    it is one of `factors`, which are the wrong answer divided by the right one), a transpose, next to nothing, or else
    the worst place.
    """
    require(isinstance(actual, np.ndarray | np.generic | float | int), f"{name} must be an array, not {kind(actual)}")
    a, e = np.asarray(actual), np.asarray(expected)
    if a.shape != e.shape:
        likely = ": is it transposed?" if a.ndim > 1 and a.shape == e.shape[::-1] else ""
        raise Wrong(f"{name} has shape {a.shape} and must have {e.shape}{likely}")
    keeps_float64(name, a)
    if error(a, e) <= tolerance:
        return
    require(np.isfinite(a).all(), f"{name} holds NaN or infinity: 0/0, log 0 or an overflow?")
    raise Wrong(f"{name} {_difference(a.astype(float), e.astype(float), tolerance, factors or {})}")


def gradients_agree(
    forward: Callable[..., Any], backward: Callable[..., Any], arrays: Mapping[str, Any], **options: Any
) -> None:
    """As `gradcheck.check_gradients`, whose explanation becomes the hint; and gradients must be float64 too."""

    def wide(dout: Any, cache: Any) -> Any:
        gradients = backward(dout, cache)
        for gradient in gradients if isinstance(gradients, tuple | list) else [gradients]:
            keeps_float64("a gradient", gradient)
        return gradients

    try:
        check_gradients(forward, wide, arrays, **options)
    except GradientError as wrong:
        raise Wrong(str(wrong)) from None


def keeps_float64(name: str, array: Any) -> None:
    """Raise `Wrong` for an array of float32 or fewer digits, whose rounding a tolerance may forgive.

    Also for one of complex numbers or objects.
    """
    dtype = array.dtype if isinstance(array, np.ndarray | np.generic) else np.dtype(float)
    other = dtype.kind in "cO" or (dtype.kind == "f" and dtype.itemsize < 8)
    require(not other, f"{name} is {dtype}, and all that it is made of is float64")


@contextmanager
def where(case: str) -> Iterator[None]:
    """What is found wrong inside begins with the case that it was found in."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{case} {wrong}") from None


def without_loops(few: Callable[[], Any], many: Callable[[], Any], hint: str) -> None:
    """Raise `Wrong(hint)` where `many`, the same call with hundreds of rows more, runs more lines of Python."""
    require(lines_run(many) - lines_run(few) < 100, hint)


def most_memory(call: Callable[[], Any]) -> int:
    """The most bytes that `call` has at a time, beyond those that were there before."""
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if started:
            tracemalloc.stop()


def lines_run(call: Callable[[], Any]) -> int:
    """How many lines of Python `call` runs, in all functions; each round of a loop counts, also on one line."""
    count, tracer = 0, sys.gettrace()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(tracer)
    return count


def farthest(actual: np.ndarray, expected: Any) -> tuple[tuple[int, ...], str, str]:
    """Where `actual` is farthest from what it should be (NaN is), and the two numbers there, told apart."""
    e = np.broadcast_to(expected, actual.shape)
    off = np.nan_to_num(np.abs(actual - e), nan=np.inf)
    place = tuple(int(i) for i in np.unravel_index(np.argmax(off), off.shape))
    return place, *distinct(actual[place], e[place])


def kind(value: Any) -> str:
    """What a value is, in the learner's words."""
    return f"array of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def _difference(actual: np.ndarray, expected: np.ndarray, tolerance: float, factors: Mapping[str, float]) -> str:
    everywhere = " everywhere" if expected.size > 1 else ""
    square = expected.ndim >= 2 and expected.shape[-1] == expected.shape[-2]
    factor = float(np.vdot(expected, actual) / max(np.vdot(expected, expected), np.finfo(float).tiny))
    named = [f", which is {name}" for name, value in factors.items() if abs(factor / value - 1) < 1e-6]
    if not actual.any():
        return f"is zero{everywhere}"
    if error(-actual, expected) <= tolerance:
        return f"has the wrong sign{everywhere}"
    # A number alone is always some factor of another.
    proportional = factor and abs(factor - 1) > 1e-3 and error(actual / factor, expected) <= tolerance
    if proportional and (named or everywhere):
        return f"is {factor:.6g} times what it should be{everywhere}{''.join(named[:1])}"
    if square and error(np.swapaxes(actual, -1, -2), expected) <= tolerance:
        return "is the transpose of what it should be"
    off = np.abs(actual - expected)
    if off.max() <= 1e-5 * np.abs(expected).max():
        return (
            f"is off by up to {off.max():.0e}, which is little, and more than rounding: is a small number added "
            "somewhere, or a number float32?"
        )
    worst, given, right = farthest(actual, expected)
    if not everywhere:
        return f"is {given} and should be {right}"
    wrong = int((off > tolerance * max(1.0, np.abs(expected).max())).sum())
    return f"is wrong in {wrong} of its {expected.size} places: at {worst} it is {given} and should be {right}"
