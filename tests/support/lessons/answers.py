"""The answers that tests try on a lesson's judges: its solutions, right ones written in another way, and wrong ones.

`lesson_NN.py` beside this file has them by exercise: `RIGHT`, functions; `WRONG`, functions by the name of the mistake,
each with words of the hint that it must get; and `EDITS`, mistakes made by editing the lesson's solutions, a table:

[exercise]
name of the mistake | before → after | words of the hint

Each edit is made wherever `before` stands, and a mistake may have several. A line that is indented by four spaces holds
more columns, one by eight goes on the column before, and \\n is the end of a line of the solutions.
"""

import itertools
import linecache
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from course.sources import room

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
    answers = import_module(f"support.lessons.lesson_{number}")
    found = dict(getattr(answers, "WRONG", {}).get(name, {}))
    table = answers.EDITS.replace("\n        ", " ").replace("\n    ", " | ")
    _, *exercises = re.split(r"^\[(\w+)\]\n", table, flags=re.MULTILINE)  # a name, its mistakes, a name, …
    for line in dict(zip(exercises[::2], exercises[1::2], strict=True)).get(name, "").splitlines():
        mistake, *edits, words = (column.strip() for column in line.split(" | "))
        assert mistake not in found, f"two mistakes in {name} are called {mistake!r}"
        found[mistake] = _edited(number, name, edits), words
    return found


def _edited(number: str, name: str, edits: list[str]) -> Answer:
    text = (room(number) / "solutions.py").read_text(encoding="utf-8")
    for edit in edits:
        before, after = (side.replace("\\n", "\n") for side in re.split(" →(?: |$)", edit))
        assert before in text, f"the solutions of lesson {number} have no {before!r}: bring the edit up to date"
        text = text.replace(before, after)
    file = f"<answer {next(NUMBERS)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # for hints, and for Triton
    namespace: dict[str, Any] = {"__name__": file}
    exec(compile(text, file, "exec"), namespace)
    return namespace[name]
