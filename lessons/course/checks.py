"""Checks for judges: each returns, or raises `Wrong` with the sentence that the learner reads.

Hints that print two numbers take them from `distinct` or `largest_error`, with enough digits to tell them apart.
"""

import math
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitransformer.gradcheck import GradientError, check_gradients, distinct, error

from .exercise import Wrong
from .limits import Stopped


def require(condition: Any, hint: str) -> None:
    """Raise `Wrong(hint)` unless `condition` holds."""
    if not condition:
        raise Wrong(hint)


def unpack(result: Any, *names: str) -> list[np.ndarray]:
    """Return the arrays of a returned tuple, which must be as many as `names`; tensors stay tensors."""
    listed = ", ".join(names)
    require(
        isinstance(result, tuple | list), f"it must return {len(names)} arrays ({listed}), not one {type_name(result)}"
    )
    require(len(result) == len(names), f"it must return {len(names)} arrays ({listed}), not {len(result)}")
    for name, array in zip(names, result, strict=True):
        require(array is not None, f"{name} is None: is it computed, and returned?")
    return [array if hasattr(array, "detach") else np.asarray(array) for array in result]


def require_array(result: Any, name: str = "", single: bool = False) -> np.ndarray:
    """Return `result`, which must be an array of float64, as the judge's own arrays are.

    With `single`, for lessons whose model computes in float32, an array of float32 is right too; it is returned as
    float64.
    """
    must_be = f"{name} must be" if name else "it must return"
    require(type(result) is np.ndarray, f"{must_be} an array, not {type(result).__name__}")
    require(
        result.dtype == np.float64 or (single and result.dtype == np.float32),
        f"{must_be} an array of float64, and not of {result.dtype}{', which rounds' * (result.dtype.kind in 'fiu')}",
    )
    return result.astype(np.float64) if single else result


def require_arrays(result: Any, *names: str) -> list[np.ndarray]:
    """Return the arrays of a returned tuple, which must be as many as `names`, each of float64."""
    unpack(result, *names)
    return [require_array(part, name) for part, name in zip(result, names, strict=True)]


def require_precision(name: str, actual: Any, expected: Any) -> None:
    """Raise `Wrong` if `actual` is off by 1e-9 to 1e-3, as rounding on the way makes it; mistakes make it larger."""
    off = error(actual, expected)
    require(
        not 1e-9 < off < 1e-3,
        f"{name} is right to about {off:.0e} only: is something rounded, or computed in float32, on the way?",
    )


def require_close(
    name: str, actual: Any, expected: Any, *, tolerance: float = 1e-9, factors: Mapping[str, float] | None = None
) -> None:
    """Raise `Wrong` unless `actual` is `expected`, to `tolerance` (as `gradcheck.error` measures).

    The hint describes the difference: the shape, NaN, a sign, a constant factor (the wrong answer divided by the right
    one, with its name if `factors` has it), a transpose, a difference just above rounding, or else the worst place.
    """
    require(
        isinstance(actual, np.ndarray | np.generic | float | int), f"{name} must be an array, not {type_name(actual)}"
    )
    a, e = np.asarray(actual), np.asarray(expected)
    if a.shape != e.shape:
        likely = ": is it transposed?" if a.ndim > 1 and a.shape == e.shape[::-1] else ""
        raise Wrong(f"{name} has shape {a.shape} and must have {e.shape}{likely}")
    require_float64(name, a)
    if error(a, e) <= tolerance:
        return
    require(np.isfinite(a).all(), f"{name} holds NaN or infinity: 0/0, log 0 or an overflow?")
    raise Wrong(f"{name} {_difference(a.astype(float), e.astype(float), tolerance, factors or {})}")


def require_none_of(name: str, found: Any, right: Any, mistakes: Mapping[str, Any], *, tolerance: float = 1e-9) -> None:
    """Raise `Wrong` with the mistake, a clause about `name`, that gives `found`; those that are right here are skipped.

    The values are what the mistakes give in place of `right`.
    """
    for mistake, other in mistakes.items():
        if np.shape(found) == np.shape(other) == np.shape(right) and not error(other, right) < 1e3 * tolerance:
            require(not error(found, other) <= tolerance, f"{name} {mistake}")


def require_gradients(
    forward: Callable[..., Any], backward: Callable[..., Any], arrays: Mapping[str, Any], **options: Any
) -> None:
    """Raise `Wrong` unless gradients pass `gradcheck.check_gradients`, whose explanation is the hint, in float64."""

    def checked(dout: Any, cache: Any) -> Any:
        gradients = backward(dout, cache)
        for gradient in gradients if isinstance(gradients, tuple | list) else [gradients]:
            require_float64("a gradient", gradient)
        return gradients

    try:
        check_gradients(forward, checked, arrays, **options)
    except GradientError as wrong:
        raise Wrong(str(wrong)) from None


def require_float64(name: str, array: Any) -> None:
    """Raise `Wrong` for an array of float32 or less, whose rounding a tolerance may hide, or of complex or objects."""
    dtype = array.dtype if isinstance(array, np.ndarray | np.generic) else np.dtype(float)
    other = dtype.kind in "cO" or (dtype.kind == "f" and dtype.itemsize < 8)
    require(not other, f"{name} is {dtype}, and all that it is made of is float64")


@contextmanager
def in_case(case: str) -> Iterator[None]:
    """Prefix the message of a `Wrong` that is raised inside this context with `case`."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{case} {wrong}") from None


def require_vectorized(few: Callable[[], Any], many: Callable[[], Any], hint: str) -> None:
    """Raise `Wrong(hint)` if `many`, the call `few` with hundreds of rows more, runs at least 100 lines more."""
    require(count_lines(many) - count_lines(few) < 100, hint)


def peak_memory(call: Callable[[], Any]) -> int:
    """Return the peak of the memory that `call` allocates, in bytes."""
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


def count_lines(call: Callable[[], Any], most: float = math.inf) -> int:
    """Return the number of lines of Python that `call` runs, in all functions; each round of a loop counts.

    Raises `Wrong` if there are more than `most`.
    """
    count, tracer = 0, sys.gettrace()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        if count > most:
            raise Stopped
        return trace

    sys.settrace(trace)
    try:
        call()
    except Stopped:
        raise Wrong(f"it has run {most:,} lines and goes on: is there a loop that never ends?") from None
    finally:
        sys.settrace(tracer)
    return count


def largest_error(actual: np.ndarray, expected: Any) -> tuple[tuple[int, ...], str, str]:
    """Return the index of the largest error, or of NaN, and the two numbers there with enough digits to differ."""
    e = np.broadcast_to(expected, actual.shape)
    off = np.nan_to_num(np.abs(actual - e), nan=np.inf)
    place = tuple(int(i) for i in np.unravel_index(np.argmax(off), off.shape))
    return place, *distinct(actual[place], e[place])


def type_name(value: Any) -> str:
    """Return a value's type in words: "array of shape (2, 3)", or the name of its class."""
    return f"array of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def _moved(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    """Say that all numbers stand in the reverse order, or one place too far, along an axis, if they do."""
    for axis in range(expected.ndim):
        a, e = np.moveaxis(actual, axis, 0), np.moveaxis(expected, axis, 0)
        along = f" along axis {axis}" * (expected.ndim > 1)
        if error(a[::-1], e) <= tolerance:
            return f"is in the reverse order{along}"
        if len(e) > 2 and e[1:-1].any() and not error(e[1:], e[:-1]) <= tolerance:
            for where, one, other in (("late", a[1:], e[:-1]), ("early", a[:-1], e[1:])):
                if error(one, other) <= tolerance:
                    return f"stands one place too {where}{along}"
    return ""


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
    if moved := _moved(actual, expected, tolerance):
        return moved
    off = np.abs(actual - expected)
    if off.max() <= 1e-5 * np.abs(expected).max():
        return (
            f"is off by up to {off.max():.0e}, which is little, and more than rounding: is a small number added "
            "somewhere, or a number float32?"
        )
    worst, given, right = largest_error(actual, expected)
    if not everywhere:
        return f"is {given} and should be {right}"
    wrong = int((off > tolerance * max(1.0, np.abs(expected).max())).sum())
    return f"is wrong in {wrong} of its {expected.size} places: at {worst} it is {given} and should be {right}"
