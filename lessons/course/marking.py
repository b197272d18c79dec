"""Mark an answer that was extracted from a notebook: run the statements that it needs, and judge it."""

import ast
import codeop
import linecache
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from . import exercise as exercise_module
from .exercise import CORRECT, NOT_YET, WRONG, Exercise, exercises
from .extraction import MISSING, UNREADABLE, Piece
from .failures import describe_exception, exception_text
from .fallback import Fallback
from .limits import LimitExceeded, run_limited
from .sources import parse

STOPPED = "stopped"
MARKS = CORRECT, WRONG, NOT_YET, MISSING, STOPPED, UNREADABLE
NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


def mark_answer(lesson: str, name: str, pieces: list[Piece], fallbacks: list[str], seconds: float) -> tuple[str, str]:
    """Return one of `MARKS` and the reason for an answer's `pieces`, with at most `seconds` for a call.

    As in the notebook, the course's answers replace those to the exercises in `fallbacks`, which are not right. Call
    it in a process of its own: the pieces become that process's `__main__`.
    """
    known = exercises(lesson)
    stopped = list[str]()

    def limited(limit: float, function: Callable[[], Any]) -> Any:
        try:
            return run_limited(limit, function)
        except (LimitExceeded, MemoryError) as problem:
            much = isinstance(problem, MemoryError)
            stopped.append("it takes more memory than an answer may have" if much else str(problem))
            raise

    state, why, problem = WRONG, "", ""
    try:
        with mock.patch.object(exercise_module, "run_limited", limited):
            replaced = {other: known[other] for other in fallbacks}
            names, problem = limited(seconds, lambda: _run_pieces(pieces, lesson, replaced))
            if name in names:
                judge = replace(known[name], seconds=min(seconds, known[name].seconds)).verdict
                own = names[name]  # a `Fallback` if the learner's own code called a check
                state, why = own.judged(judge) if isinstance(own, Fallback) else judge(own)
            else:
                why = problem or f"no cell gives {name} a meaning at the top of a cell"
    except BaseException as raised:  # the learner's code may raise a KeyboardInterrupt, for example
        why = f"it raises {type(raised).__name__}" + (f": {text}" if (text := exception_text(raised)) else "")
    missing = getattr(sys.modules.get("course.gpu"), "MISSING", None)
    if state != CORRECT and stopped:
        state, why = STOPPED, stopped[-1]
    elif state == WRONG and missing and missing in why:
        state, why = UNREADABLE, f"it cannot be judged on this machine: {missing}"
    elif state == WRONG and (needs := NO_MODULE.search(f"{problem} {why}")):
        state, why = UNREADABLE, f"it needs {needs[1]}, which lies outside the notebook and is not installed here"
    return state, why


def _run_pieces(pieces: list[Piece], lesson: str, replaced: dict[str, Exercise]) -> tuple[dict[str, Any], str]:
    """Run pieces of a notebook; return the names that they define, and the first exception in words, or "".

    As in a notebook, a statement that raises ends its cell, and the next cells go on. An exception of a call whose
    result is dropped is ignored: it may show or save something, which cannot be done here.
    """
    module = ModuleType("__main__")
    module.__spec__ = ModuleSpec("__main__", None)  # else a spawned worker looks for a file of this module
    sys.modules["__main__"], names, raised = module, vars(module), ""
    here: Any = SimpleNamespace(__module__="__main__")
    compiler = codeop.Compile()  # remembers imports from __future__
    for cell, text, places in pieces:
        file = f"<cell {cell + 1}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        body = parse(text).body
        for place in places:
            try:
                exec(compiler(ast.Module([body[place]], []), file, "exec"), names)  # type: ignore[arg-type]
            except (Exception, SystemExit) as problem:
                if isinstance(body[place], ast.Expr):
                    continue
                raised = raised or f"what it needs {describe_exception(problem, here).removeprefix('it ')}"
                break
            for name, exercise in replaced.items():
                if name in names and not isinstance(names[name], Fallback):
                    names[name] = Fallback(names[name], exercise.answer, lesson)
    return names, raised
