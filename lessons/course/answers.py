"""The answers of a learner that were found right: a file each, which stands on its own.

`answers/04/causal_mask.py`, beside the notebooks, holds the function as it was when its check last said *correct*, with
the imports, the constants and the functions of the notebook that it uses. What is there is the learner's progress, and
what lesson 18 puts together.
"""

import ast
import inspect
import linecache
import math
import os
import symtable
import sys
import textwrap
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from minitransformer.atomic import atomic_write

from .sources import LESSONS
from .stand_in import StandIn

FOLDER = "COURSE_ANSWERS"  # names another folder than lessons/answers
CONSTANTS = bool, int, float, complex, str, bytes, tuple, type(None)
NUMBERS = count()  # of the loaded texts


def folder(number: str = "") -> Path:
    """Where the answers lie; with a number, those of one lesson."""
    return Path(os.environ.get(FOLDER) or LESSONS / "answers") / number


def answered(number: str) -> set[str]:
    """The exercises of a lesson that were answered right."""
    return {path.stem for path in folder(number).glob("*.py")}


class NotAlone(ValueError):
    """An answer that is right in its notebook, and not in a file of its own."""


def keep(number: str, function: Callable[..., Any], is_right: Callable[[Callable[..., Any]], bool]) -> None:
    """Write a right answer into its file, if the file is right too.

    Raises `NotAlone` where it is not, such as for an answer that uses an array of the notebook; `OSError` where it
    cannot be written, or where Python does not know the source.
    """
    text = "\n\n\n".join(part.strip("\n") for part in standing_alone(function)) + "\n"
    try:
        alone = loaded(text, function.__name__)
    except Exception as problem:
        raise NotAlone(f"by itself it raises {type(problem).__name__}: {problem}") from None
    if not is_right(alone):
        raise NotAlone("it is not right without what else is in the notebook: put that inside the function")
    with atomic_write(folder(number) / f"{function.__name__}.py") as file:
        file.write(text.encode())


def loaded(text: str, name: str, module: str = "answer") -> Callable[..., Any]:
    """The function of this name in a module's text. Its source is known, as Triton needs it to be."""
    path = f"<{name} {next(NUMBERS)}>"
    linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path
    namespace: dict[str, Any] = {"__name__": module}
    exec(compile(text, path, "exec"), namespace)
    return namespace[name]


def standing_alone(function: Callable[..., Any]) -> list[str]:
    """A function's imports, its constants, and the sources of what it calls in its own module and of itself.

    Another exercise that is not yet right is imported from its lesson's solutions. Raises `OSError` where Python does
    not know a source.
    """
    imports, constants, sources = set[str](), list[str](), dict[str, str]()

    def collect(own_name: str, function: Callable[..., Any]) -> None:
        source = textwrap.dedent(inspect.getsource(function))
        sources[own_name] = ""  # it may call itself
        for name in global_names(source):
            known = getattr(inspect.unwrap(function), "__globals__", {})
            if name not in known or name in sources:
                continue
            value = getattr(known[name], "fn", known[name])  # of a kernel
            module, own = getattr(value, "__module__", None), getattr(value, "__name__", name)
            renamed = f" as {name}" if name != own else ""
            if isinstance(value, ModuleType):
                imports.add(f"import {own}{renamed}")
            elif isinstance(value, CONSTANTS):
                constants.append(f"{name} = {written(value)}")
            elif type(value).__name__ == "constexpr":  # Triton's
                constants.append(f"{name} = tl.constexpr({written(value.value)})")
            elif isinstance(value, StandIn):
                imports.add(f"from course.lesson_{value.number}.solutions import {name}")
            elif isinstance(value, FunctionType) and module == function.__module__:
                collect(name, value)
            elif module is not None and (
                module.startswith("course.lesson_") or getattr(sys.modules.get(module), own, None) is value
            ):
                imports.add(f"from {module} import {own}{renamed}")
        del sources[own_name]  # what it calls comes before it
        sources[own_name] = source

    collect(function.__name__, function)
    return [*filter(None, ("\n".join(sorted(imports)), "\n".join(constants))), *sources.values()]


def written(constant: Any) -> str:
    """A constant as Python writes it."""
    return f"float('{constant}')" if isinstance(constant, float) and not math.isfinite(constant) else repr(constant)


def global_names(source: str) -> list[str]:
    """The names that a piece of Python takes from its module, in the order of their first use."""
    found: dict[str, None] = {}

    def look(scope: symtable.SymbolTable) -> None:
        top = scope.get_type() == "module"
        for symbol in scope.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or (top and not symbol.is_assigned())):
                found[symbol.get_name()] = None
        for inner in scope.get_children():
            look(inner)

    look(symtable.symtable(source, "<answer>", "exec"))
    order = [node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    return sorted(found, key=order.index)
