"""The answers that tests try on a lesson's judges: its solutions, right ones written in another way, and wrong ones.

`lesson_NN.py` beside this file has them by exercise: `RIGHT`, and `WRONG` by the name of the mistake, each with words
of the hint that it must get. An answer is a function, or what to edit in the lesson's solutions: "before → after", or a
list of such edits, each made wherever `before` stands.
"""

import itertools
import linecache
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
    return [_function(number, name, answer) for answer in table.get(name, [])]


def wrong(number: str, name: str) -> dict[str, tuple[Answer, str]]:
    """The wrong answers by the name of the mistake, each with words of its hint."""
    table = import_module(f"support.lessons.lesson_{number}").WRONG[name]
    return {mistake: (_function(number, name, answer), words) for mistake, (answer, words) in table.items()}


def _function(number: str, name: str, answer: Answer | str | list[str]) -> Answer:
    if callable(answer):
        return answer
    text = (room(number) / "solutions.py").read_text(encoding="utf-8")
    for edit in [answer] if isinstance(answer, str) else answer:
        before, after = edit.split(" → ")
        assert before in text, f"the solutions of lesson {number} have no {before!r}: bring the edit up to date"
        text = text.replace(before, after)
    file = f"<answer {next(NUMBERS)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # for hints, and for Triton
    namespace: dict[str, Any] = {"__name__": file}
    exec(compile(text, file, "exec"), namespace)
    return namespace[name]
