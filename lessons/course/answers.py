"""The answers of a learner that were found right: a file each, which stands on its own.

`answers/04/causal_mask.py`, beside the notebooks, holds the function as it was when its check last said *correct*, with
the imports, the constants and the functions of the notebook that it uses. What is there is the learner's progress, and
what lesson 18 puts together.
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

from .limits import Endless, within
from .sources import LESSONS, parsed
from .stand_in import StandIn

FOLDER = "COURSE_ANSWERS"  # names another folder than lessons/answers
CONSTANTS = bool, int, float, complex, str, bytes, tuple, type(None)
DEFINITIONS = ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef
LARGEST = 1_000_000  # bytes of an answer
SECONDS = 60.0  # in which an answer must be loaded: it may import a large package
NUMBERS = count()  # of the loaded texts


def folder(number: str = "") -> Path:
    """Where the answers lie; with a number, those of one lesson."""
    return Path(os.environ.get(FOLDER) or LESSONS / "answers").expanduser() / number


def shown(path: Path) -> str:
    """A place as it is printed: from the lessons' folder, or in full where it lies elsewhere."""
    path = path.absolute()
    return visible(str(path.relative_to(LESSONS) if path.is_relative_to(LESSONS) else path))


class Damaged(ValueError):
    """What is kept as an answer, and cannot be one: the end of a sentence about it."""


def text_of(number: str, name: str) -> str:
    """The text of an answer that was found right.

    It is read and never run. Raises `FileNotFoundError` where there is none, and `Damaged` where the file cannot be an
    answer to this exercise.
    """
    try:
        text = bytes_of(folder(number) / f"{name}.py").decode("utf-8-sig").replace("\r\n", "\n")
        statements = parsed(text).body
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


def bytes_of(path: Path, largest: int = LARGEST, kind: str = "answer") -> bytes:
    """What is in a learner's file. Raises `FileNotFoundError`, or `Damaged` where it cannot be read."""
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


class NotAlone(ValueError):
    """An answer that is right in its notebook, and not in a file of its own."""


def keep(number: str, function: Callable[..., Any], is_right: Callable[[Callable[..., Any]], bool]) -> None:
    """Write a right answer into its file, if the file is right too.

    Raises `NotAlone` where it is not, such as for an answer that uses an array of the notebook; `OSError` where it
    cannot be written, or where Python does not know the source.
    """
    text = text_alone(function)
    try:
        alone = loaded(text, function.__name__)
    except Damaged as damage:
        raise NotAlone(f"by itself it {damage}") from None
    if not is_right(alone):
        raise NotAlone("it is not right without what else is in the notebook: put that inside the function")
    with atomic_write(folder(number) / f"{function.__name__}.py") as file:
        file.write(text.encode())


def loaded(text: str, name: str, module: str = "answer") -> Callable[..., Any]:
    """The function of this name in a module's text. Its source is known, as Triton needs it to be.

    What the text prints is dropped. Raises `Damaged` where it raises, ends Python, or does not come back.
    """
    path = f"<{name} {next(NUMBERS)}>"
    linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path
    namespace: dict[str, Any] = {"__name__": module}

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, path, "exec"), namespace)

    try:
        within(SECONDS, run)
    except Endless:
        raise Damaged("does not come back when it is loaded") from None
    except (Exception, SystemExit) as problem:
        text = " ".join(str(problem).split())
        raise Damaged(f"raises {type(problem).__name__} when it is loaded{text and f': {text}'}") from None
    if name not in namespace:
        raise Damaged(f"does not define {name}")
    return namespace[name]


def text_alone(function: Callable[..., Any]) -> str:
    """The text of a module that has what a function needs, and the function itself last; raises as `standing_alone`."""
    return "\n\n\n".join(part.strip("\n") for part in standing_alone(function)) + "\n"


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
