"""An exception in one line: what was raised, the learner's own line, and the shapes of what stands in it."""

import linecache
import re
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from minitransformer.system.visible import visible

NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")


def explained(problem: BaseException, function: Callable[..., Any]) -> str:
    """What `function` raised, in a clause of at most 350 characters."""
    problem, frame, number = _origin(problem, function)
    text = _likely(problem)
    said = f"it raises {type(problem).__name__}" + (f": {cut(text, 140)}" if text else "")
    if frame is None:
        return said
    line = _line(frame, number)
    values = {name: frame.f_locals[name] for name in NAME.findall(line) if name in frame.f_locals}
    shapes = ", ".join(f"{name} is {what}" for name, value in values.items() if (what := _shape(value)))
    said += f"; line {number}" + (f": `{cut(line, 80)}`" if line else "")
    return said + (f", where {cut(shapes, 100)}" if shapes else "")


def _likely(problem: BaseException) -> str:
    if isinstance(problem, RecursionError):
        return "it calls itself without end"
    if isinstance(problem, SystemExit):
        return "that ends the whole session, not the function alone: a function ends with `return`"
    return said(problem)


def said(problem: BaseException) -> str:
    """An exception's text in one line; a learner's own may have none, and raise where it is asked for."""
    try:
        return visible(" ".join(str(problem).split()))
    except Exception:
        return ""


def is_stub(problem: BaseException, function: Callable[..., Any]) -> bool:
    """Whether `problem` is the `NotImplementedError` of a stub, and not of a library that `function` calls."""
    problem, frame, number = _origin(problem, function)
    line = _line(frame, number) if frame is not None else ""
    if type(problem).__name__ == "UnsupportedLanguageConstruct":  # on a GPU, Triton compiles no `raise`
        return "raise NotImplementedError" in str(problem)
    return isinstance(problem, NotImplementedError) and (not line or "NotImplementedError" in line)


def _origin(problem: BaseException, function: Callable[..., Any]) -> tuple[BaseException, FrameType | None, int]:
    """The exception that arose in the learner's code, which others may have wrapped, and the innermost place there.

    The learner's code is the function's module, so all cells of a notebook.
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
    """A value's shape or, where it is small, the value; nothing for functions and other objects."""
    if isinstance(value, bool | int | float | str | np.generic | None):
        return cut(f"{value:.4g}" if isinstance(value, float) else repr(value), 20)
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    shape = getattr(value, "shape", None)
    return str(tuple(shape)) if shape is not None else ""


def cut(text: str, width: int) -> str:
    """A text of at most `width` characters, with "…" where more was there."""
    return text if len(text) <= width else text[: width - 1] + "…"
