"""A learner's right answers, kept as one self-contained file each.

`answers/04/causal_mask.py`, in the folder of the notebooks, holds the function as it was when its check last said
*correct*, with the imports, the constants and the functions of the notebook that it uses. These files are the learner's
progress, and lesson 18 puts them together.
"""

import ast
import contextlib
import inspect
import io
import linecache
import math
import os
import stat
import symtable
import sys
import textwrap
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from minitransformer.system.atomic import atomic_write
from minitransformer.system.visible import visible

from .fallback import Fallback
from .limits import LimitExceeded, run_limited
from .sources import LESSONS, parse

FOLDER = "COURSE_ANSWERS"  # the environment variable that names another folder than lessons/answers
CONSTANTS = bool, int, float, complex, str, bytes, tuple, type(None)
DEFINITIONS = ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef
LARGEST = 1_000_000  # bytes of an answer
SECONDS = 60.0  # the limit on loading an answer, which may import a large package
NUMBERS = count()  # number the loaded texts, so that each has a file name of its own


def folder(number: str = "") -> Path:
    """Return the folder of the answers or, with a number, that of one lesson's answers."""
    return Path(os.environ.get(FOLDER) or LESSONS / "answers").expanduser() / number


def display_path(path: Path) -> str:
    """Return a path as text for the learner: relative to the lessons' folder, absolute outside it."""
    path = path.absolute()
    return visible(str(path.relative_to(LESSONS) if path.is_relative_to(LESSONS) else path))


class Damaged(ValueError):
    """A file in the answers' folder that cannot be an answer; the message completes a sentence about the file."""


def read_answer(number: str, name: str) -> str:
    """Return the text of the answer to an exercise, without running it.

    Raises `FileNotFoundError` if there is none, and `Damaged` if the file cannot be an answer to this exercise.
    """
    try:
        text = read_bytes(folder(number) / f"{name}.py").decode("utf-8-sig").replace("\r\n", "\n")
        statements = parse(text).body
    except UnicodeDecodeError:
        raise Damaged("is not in UTF-8") from None
    except SyntaxError as problem:
        place = f"line {problem.lineno}: " if problem.lineno else ""
        raise Damaged(f"is not Python ({place}{problem.msg})") from None
    for statement in statements:
        if not isinstance(statement, DEFINITIONS) and not _is_text(statement):
            raise Damaged(f"does more than define an answer (line {statement.lineno})")
    found = [each for each in statements if isinstance(each, ast.FunctionDef) and each.name == name]
    if not found:
        raise Damaged(f"does not define {name}")
    if "NotImplementedError" in ast.unparse(found[-1].body[-1]):
        raise Damaged("is still the stub")
    return text


def read_bytes(path: Path, largest: int = LARGEST, kind: str = "answer") -> bytes:
    """Read a learner's file of at most `largest` bytes. Raises `FileNotFoundError`, or `Damaged` if it cannot."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise Damaged("is a folder and no file")
        if not stat.S_ISREG(status.st_mode):
            raise Damaged("is no ordinary file")  # reading a pipe would wait for ever
        if status.st_size > largest:
            raise Damaged(f"is larger than any {kind} ({status.st_size:,} bytes)")
        return path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise Damaged("is a link that leads nowhere") from None
        raise
    except OSError as problem:
        raise Damaged(f"cannot be read ({problem.strerror})") from None


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


class NotStandalone(ValueError):
    """An answer that is right in its notebook and wrong in a file of its own."""


def save(number: str, function: Callable[..., Any], is_right: Callable[[Callable[..., Any]], bool]) -> None:
    """Write a right answer into its file, if the file by itself is right too.

    Raises `NotStandalone` if it is not, for example if the answer uses an array of the notebook, and `OSError` if the
    file cannot be written or Python does not know the function's source.
    """
    text = standalone_module(function)
    try:
        alone = load_function(text, function.__name__)
    except Damaged as damage:
        raise NotStandalone(f"by itself it {damage}") from None
    if not is_right(alone):
        raise NotStandalone("it is not right without what else is in the notebook: put that inside the function")
    with atomic_write(folder(number) / f"{function.__name__}.py") as file:
        file.write(text.encode())


def load_function(text: str, name: str, module: str = "answer") -> Callable[..., Any]:
    """Run a module's text and return its function `name`, whose source `inspect` finds, as Triton requires.

    Output of the text is dropped. Raises `Damaged` if the text raises, ends Python, or takes longer than `SECONDS`.
    """
    path = f"<{name} {next(NUMBERS)}>"
    linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path
    namespace: dict[str, Any] = {"__name__": module}

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, path, "exec"), namespace)

    try:
        run_limited(SECONDS, run)
    except LimitExceeded:
        raise Damaged("does not come back when it is loaded") from None
    except (Exception, SystemExit) as problem:
        text = " ".join(str(problem).split())
        raise Damaged(f"raises {type(problem).__name__} when it is loaded{text and f': {text}'}") from None
    if name not in namespace:
        raise Damaged(f"does not define {name}")
    return namespace[name]


def standalone_module(function: Callable[..., Any]) -> str:
    """Return the text of a module with a function and all that it needs; raises as `standalone_parts`."""
    return "\n\n\n".join(part.strip("\n") for part in standalone_parts(function)) + "\n"


def standalone_parts(function: Callable[..., Any]) -> list[str]:
    """Return a function's imports, its constants, and the sources of the functions it calls and of itself, last.

    An exercise that it calls, and whose own answer is not yet right, is imported from its lesson's solutions. Raises
    `OSError` if Python does not know a source.
    """
    imports, constants, sources = set[str](), list[str](), dict[str, str]()

    def collect(own_name: str, function: Callable[..., Any]) -> None:
        source = textwrap.dedent(inspect.getsource(function))
        sources[own_name] = ""  # it may call itself
        for name in global_names(source):
            known = getattr(inspect.unwrap(function), "__globals__", {})
            if name not in known or name in sources:
                continue
            value = getattr(known[name], "fn", known[name])  # a kernel's own function
            module, own = getattr(value, "__module__", None), getattr(value, "__name__", name)
            renamed = f" as {name}" if name != own else ""
            if isinstance(value, ModuleType):
                imports.add(f"import {own}{renamed}")
            elif isinstance(value, CONSTANTS):
                constants.append(f"{name} = {literal(value)}")
            elif type(value).__name__ == "constexpr":  # Triton's
                constants.append(f"{name} = tl.constexpr({literal(value.value)})")
            elif isinstance(value, Fallback):
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


def literal(constant: Any) -> str:
    """Return a constant as a Python expression."""
    return f"float('{constant}')" if isinstance(constant, float) and not math.isfinite(constant) else repr(constant)


def global_names(source: str) -> list[str]:
    """Return the names that a piece of Python looks up in its module, in the order of their first use."""
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
