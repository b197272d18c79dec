"""What judges ask of a returned value before they look at its numbers: its kind and its precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitransformer.gradcheck import error

from .exercise import Wrong
from .judging import require, several


def array(result: Any, name: str = "", single: bool = False) -> np.ndarray:
    """`result`, which must be an array of float64, as all that a judge hands out is.

    With `single`, for lessons whose model computes in float32, that is right too, and returned as float64.
    """
    must_be = f"{name} must be" if name else "it must return"
    require(type(result) is np.ndarray, f"{must_be} an array, not {type(result).__name__}")
    require(
        result.dtype == np.float64 or (single and result.dtype == np.float32),
        f"{must_be} an array of float64, and not of {result.dtype}, which rounds",
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


@contextmanager
def where(case: str) -> Iterator[None]:
    """What is found wrong inside begins with the case that it was found in."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{case} {wrong}") from None
