"""What a learner wrote in a notebook, found by the functions that its cells define.

Tags and ids of cells say nothing here: a learner splits, copies, merges and retypes cells, and editors drop what they
do not know. So a cell may lack all but its text.
"""

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .sources import checked, fresh, is_exercise, parsed

FUNCTION = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)  # the course's own solution below a check
MAGIC = re.compile(  # IPython's lines, which are no Python: `%time f()`, `files = !ls`, `np.where?`
    r"^([ \t]*)(?:(?:[\w, ]+=[ \t]*)?[%!].*|\?.*|[\w.]+\?+[ \t]*)$", re.MULTILINE
)


def cells_in(content: bytes) -> list[dict[str, Any]]:
    """The cells of a notebook's file, each with its text as one string under "source".

    Raises `ValueError`, the end of a sentence about the file, where it is no notebook.
    """
    if not content.strip():
        raise ValueError("is empty")
    try:
        notebook = json.loads(content)
    except json.JSONDecodeError as problem:
        raise ValueError(f"is no notebook: its line {problem.lineno} is not JSON") from None
    except UnicodeDecodeError:
        raise ValueError("is no notebook: it is not in UTF-8") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or brackets as deep
        raise ValueError("is no notebook") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("is no notebook: it has no list of cells")
    return [cell | {"source": _text(cell.get("source"))} for cell in cells if isinstance(cell, dict)]


def built_with(content: bytes) -> str | None:
    """The fingerprint of the exercises that a notebook was built with, where it still has one."""
    notebook: Any = json.loads(content)
    for name in ("metadata", "course", "exercises"):
        notebook = notebook.get(name) if isinstance(notebook, dict) else None
    return notebook


class Asked(NamedTuple):
    """What a lesson asks for, and what its own cells define."""

    exercises: dict[str, list[str]]
    """The exercises that each function of a stub's cell answers: a kernel is its launching function's."""
    known: dict[str, set[str]]
    """What the functions of the lesson's cells do, by name: the stubs, and what the course itself wrote."""


def asked(source: Path) -> Asked:
    """What a lesson asks for."""
    order = checked(source)
    asks, known = dict[str, list[str]](), defaultdict[str, set[str]](set)
    for cell in fresh(source)["cells"]:
        functions = functions_in(cell["source"])
        for name, meanings in functions.items():
            known[name] |= meanings
        if is_exercise(cell):  # a kernel belongs to the function of its cell that launches it
            here = [name for name in functions if name in order]
            asks |= {name: [name] if name in here else here for name in functions}
    return Asked(asks, known)


def answers_in(cells: Iterable[dict[str, Any]], source: Path) -> dict[str, int]:
    """The exercises of a lesson that these cells answer, in the lesson's order, each with the number of such cells.

    A cell answers an exercise if it defines one of the exercise's functions as no cell of the course does. Of a cell
    that is no Python nobody can say what it does with the function, so there the name is enough.
    """
    asks, known = asked(source)
    found = Counter[str]()
    for cell in cells:
        functions = functions_in(cell["source"])
        answered = [name for name, meanings in functions.items() if name in asks and meanings - known[name]]
        found.update({exercise for name in answered for exercise in asks[name]})
    return {name: found[name] for name in checked(source) if found[name]}


def functions_in(text: str) -> dict[str, set[str]]:
    """The functions that a text defines, at any depth; of each what it does, or the text where that is no Python."""
    text = FOLDED.sub("", text)
    found = defaultdict[str, set[str]](set)
    for code in (text, without_magic(text)):
        try:
            nodes = list(ast.walk(parsed(code)))
        except SyntaxError:
            continue
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name].add(meaning(node))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for target in node.targets:
                    found[ast.unparse(target)].add("a lambda")
        return found
    for name in FUNCTION.findall(text):
        found[name].add(text)
    return found


def without_magic(text: str) -> str:
    """A cell's text in which IPython's own lines do nothing."""
    return MAGIC.sub(r"\1pass", text)


def meaning(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """What tells two functions of one name apart: all but the docstring, the comments and the layout."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    try:
        return "\n".join(map(ast.dump, (function.args, *body)))
    except RecursionError:
        return "a sum of a thousand terms"  # which no function of the course has


def _text(source: Any) -> str:
    """The text of a cell, which a file holds as one string or as a list of lines."""
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str))
