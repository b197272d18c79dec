"""The answers that tests try on a lesson's judges: its solutions, right ones written in another way, and wrong ones.

`lesson_NN.py` beside this file has the right ones as functions, `RIGHT`, by exercise. Its wrong ones are a table (see
`tables`), `MISTAKES`, each with words of the hint that it must get:

[exercise]
name of the mistake | before → after | words of the hint
name of the mistake | returns expression | words of the hint
name of the mistake | is function | words of the hint

An edit is made in the lesson's solutions, wherever `before` stands, and a mistake may have several. What is returned
instead of the solution's `answer` is computed at its end, from its variables and what the file itself defines;
`solution` is the solution as it was.
"""

import ast
import itertools
import linecache
from collections.abc import Callable
from importlib import import_module
from typing import Any

from support.tables import before_and_after, sections

from course.sources import lesson_folder

Answer = Callable[..., Any]
NUMBERS = itertools.count()  # of the edited files


def solution(number: str, name: str) -> Answer:
    """An exercise's solution."""
    return getattr(import_module(f"course.lesson_{number}.solutions"), name)


def right(number: str, name: str) -> list[Answer]:
    """The other right answers."""
    table = getattr(import_module(f"support.lessons.lesson_{number}"), "RIGHT", {})
    return table.get(name, [])


def wrong(number: str, name: str) -> dict[str, tuple[Answer, str]]:
    """The wrong answers by the name of the mistake, each with words of its hint."""
    found: dict[str, tuple[Answer, str]] = {}
    known = vars(import_module(f"support.lessons.lesson_{number}"))
    for mistake, *changes, words in sections(known["MISTAKES"])[name]:
        assert mistake not in found, f"two mistakes in {name} are called {mistake!r}"
        if changes[0].startswith("is "):
            found[mistake] = eval(changes[0].removeprefix("is "), known), words
        else:
            found[mistake] = _changed(number, name, changes, known), words
    return found


def _changed(number: str, name: str, changes: list[str], known: dict[str, Any]) -> Answer:
    text = (lesson_folder(number) / "solutions.py").read_text(encoding="utf-8")
    for change in changes:
        if change.startswith("returns "):
            text = _returning(text, name, change.removeprefix("returns "))
            continue
        before, after = before_and_after(change)
        assert before in text, f"the solutions of lesson {number} have no {before!r}: bring the edit up to date"
        text = text.replace(before, after)
    file = f"<answer {next(NUMBERS)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # for hints, and for Triton
    namespace = {**known, "__name__": file, "solution": solution(number, name)}
    exec(compile(text, file, "exec"), namespace)
    return namespace[name]


def _returning(text: str, name: str, expression: str) -> str:
    """The solutions with another expression at the end of a function."""
    functions = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    end = next(node for node in functions if node.name == name).body[-1]
    assert isinstance(end, ast.Return), f"{name} returns nothing: edit it"
    lines = text.splitlines(keepends=True)
    last = lines[end.lineno - 1 : end.end_lineno]
    last[0] = last[0].replace("return ", "answer = ", 1)
    return "".join([*lines[: end.lineno - 1], *last, f"    return {expression}\n", *lines[end.end_lineno :]])
