"""Describe an exception in one line: its type and text, the learner's line, and the shapes of the variables there."""

import linecache
import re
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from minitransformer.system.visible import visible

NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")


def describe_exception(problem: BaseException, function: Callable[..., Any]) -> str:
    """Describe the exception that `function` raised in a clause of at most 350 characters."""
    problem, frame, number = _origin(problem, function)
    text = _likely(problem)
    said = f"it raises {type(problem).__name__}" + (f": {truncate(text, 140)}" if text else "")
    if frame is None:
        return said
    line = _line(frame, number)
    values = {name: frame.f_locals[name] for name in NAME.findall(line) if name in frame.f_locals}
    shapes = ", ".join(f"{name} is {what}" for name, value in values.items() if (what := _shape(value)))
    said += f"; line {number}" + (f": `{truncate(line, 80)}`" if line else "")
    return said + (f", where {truncate(shapes, 100)}" if shapes else "")


def _likely(problem: BaseException) -> str:
    if isinstance(problem, RecursionError):
        return "it calls itself without end"
    if isinstance(problem, SystemExit):
        return "that ends the whole session, not the function alone: a function ends with `return`"
    return exception_text(problem)


def exception_text(problem: BaseException) -> str:
    """Return an exception's text in one line, or an empty string for a class of a learner's own whose `str` raises."""
    try:
        return visible(" ".join(str(problem).split()))
    except Exception:
        return ""


def is_stub(problem: BaseException, function: Callable[..., Any]) -> bool:
    """Return True if `problem` is the `NotImplementedError` of a stub, and not of a library that `function` calls."""
    problem, frame, number = _origin(problem, function)
    line = _line(frame, number) if frame is not None else ""
    if type(problem).__name__ == "UnsupportedLanguageConstruct":  # Triton cannot compile a `raise`
        return "raise NotImplementedError" in str(problem)
    return isinstance(problem, NotImplementedError) and (not line or "NotImplementedError" in line)


def _origin(problem: BaseException, function: Callable[..., Any]) -> tuple[BaseException, FrameType | None, int]:
    """Return the innermost exception of the chain that has a frame in the learner's code, with that frame and line.

    The learner's code is the function's module: all cells of a notebook.
    """
    chain = [problem]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    module = getattr(function, "__module__", None)
    for raised in reversed(chain):
        frames = [at for at in traceback.walk_tb(raised.__traceback__) if at[0].f_globals.get("__name__") == module]
        if frames:
            return raised, *frames[-1]
    return problem, None, 0


def _line(frame: FrameType, number: int) -> str:
    return visible(linecache.getline(frame.f_code.co_filename, number).strip())


def _shape(value: Any) -> str:
    """Return a value's shape or, if it is small, the value; an empty string for functions and other objects."""
    if isinstance(value, bool | int | float | str | np.generic | None):
        return truncate(f"{value:.4g}" if isinstance(value, float) else repr(value), 20)
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    shape = getattr(value, "shape", None)
    return str(tuple(shape)) if shape is not None else ""


def truncate(text: str, width: int) -> str:
    """Cut a text to at most `width` characters, with "…" in place of the rest."""
    return text if len(text) <= width else text[: width - 1] + "…"
