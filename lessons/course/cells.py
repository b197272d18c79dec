"""Parse the cells of a learner's notebook: the functions that they define, and the exercises that these answer.

Only the text of a cell is used. Its tags and id are not, because learners split, copy, merge and retype cells, and
editors drop metadata that they do not know.
"""

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .sources import exercise_names, is_exercise, notebook_json, parse

FUNCTION = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)  # the course's own solution below a check
MAGIC = re.compile(  # lines that only IPython understands: `%time f()`, `files = !ls`, `np.where?`
    r"^([ \t]*)(?:(?:[\w, ]+=[ \t]*)?[%!].*|\?.*|[\w.]+\?+[ \t]*)$", re.MULTILINE
)


def read_cells(content: bytes) -> list[dict[str, Any]]:
    """Return the cells of a notebook's file, each with its text as one string under "source".

    Raises `ValueError`, whose message completes a sentence about the file, if it is not a notebook.
    """
    if not content.strip():
        raise ValueError("is empty")
    try:
        notebook = json.loads(content)
    except json.JSONDecodeError as problem:
        raise ValueError(f"is no notebook: its line {problem.lineno} is not JSON") from None
    except UnicodeDecodeError:
        raise ValueError("is no notebook: it is not in UTF-8") from None
    except (ValueError, RecursionError):  # a number with thousands of digits, or brackets thousands deep
        raise ValueError("is no notebook") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("is no notebook: it has no list of cells")
    return [cell | {"source": _text(cell.get("source"))} for cell in cells if isinstance(cell, dict)]


def built_fingerprint(content: bytes) -> str | None:
    """Return the fingerprint of the exercises that a notebook was built with, or None if it has lost it."""
    notebook: Any = json.loads(content)
    for name in ("metadata", "course", "exercises"):
        notebook = notebook.get(name) if isinstance(notebook, dict) else None
    return notebook


class ExerciseFunctions(NamedTuple):
    """The functions that a lesson asks for, and those that its own cells define."""

    exercises: dict[str, list[str]]
    """For each function in a stub's cell, the exercises that it answers; a kernel answers that of its launcher."""
    known: dict[str, set[str]]
    """The normalized code of all functions in the lesson's own cells, stubs included, by name."""


def exercise_functions(source: Path) -> ExerciseFunctions:
    """Return the functions that a lesson asks for, and those that its own cells define."""
    order = exercise_names(source)
    asks, known = dict[str, list[str]](), defaultdict[str, set[str]](set)
    for cell in notebook_json(source)["cells"]:
        functions = find_functions(cell["source"])
        for name, meanings in functions.items():
            known[name] |= meanings
        if is_exercise(cell):  # a kernel belongs to the exercise in its cell
            here = [name for name in functions if name in order]
            asks |= {name: [name] if name in here else here for name in functions}
    return ExerciseFunctions(asks, known)


def count_answers(cells: Iterable[dict[str, Any]], source: Path) -> dict[str, int]:
    """Count, for each exercise of a lesson that is answered, the cells that answer it, in the lesson's order.

    A cell answers an exercise if it defines one of the exercise's functions in other words than the course's own cells
    do. In a cell that is not valid Python the name of the function is enough.
    """
    asks, known = exercise_functions(source)
    found = Counter[str]()
    for cell in cells:
        functions = find_functions(cell["source"])
        answered = [name for name, meanings in functions.items() if name in asks and meanings - known[name]]
        found.update({exercise for name in answered for exercise in asks[name]})
    return {name: found[name] for name in exercise_names(source) if found[name]}


def find_functions(text: str) -> dict[str, set[str]]:
    """Return the functions that a text defines, at any depth, each with its normalized code.

    If the text is not valid Python, each name has the whole text.
    """
    text = FOLDED.sub("", text)
    found = defaultdict[str, set[str]](set)
    for code in (text, without_magics(text)):
        try:
            nodes = list(ast.walk(parse(code)))
        except SyntaxError:
            continue
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name].add(normalized(node))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for target in node.targets:
                    found[ast.unparse(target)].add("a lambda")
        return found
    for name in FUNCTION.findall(text):
        found[name].add(text)
    return found


def without_magics(text: str) -> str:
    """Return a cell's text with IPython's own lines replaced by `pass`."""
    return MAGIC.sub(r"\1pass", text)


def normalized(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function's code without the docstring, the comments and the layout, to compare it with another."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    try:
        return "\n".join(map(ast.dump, (function.args, *body)))
    except RecursionError:
        return "too deep to dump"  # such as a sum of a thousand terms; no function of the course is


def _text(source: Any) -> str:
    """Return the text of a cell, which a file holds as one string or as a list of lines."""
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str))
