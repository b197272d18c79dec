"""The mark of an answer that was taken from a notebook: loaded with what it needs, and judged."""

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

from . import exercise as judged
from .exercise import CORRECT, NOT_YET, WRONG, Exercise, exercises
from .failures import explained, said
from .limits import Endless, within
from .reading import MISSING, UNREADABLE, Piece
from .sources import parsed
from .stand_in import StandIn

STOPPED = "stopped"
MARKS = CORRECT, WRONG, NOT_YET, MISSING, STOPPED, UNREADABLE
NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


def mark(lesson: str, name: str, pieces: list[Piece], standing_in: list[str], seconds: float) -> tuple[str, str]:
    """One of `MARKS`, and what the judge says: of an answer's pieces, with at most `seconds` for a call.

    For the exercises in `standing_in`, whose answers are not right, the course's stand in, as in the notebook. It is
    for a process that does nothing else: the pieces become its `__main__`, as they are a notebook's.
    """
    known = exercises(lesson)
    stopped = list[str]()

    def watched(limit: float, function: Callable[[], Any]) -> Any:
        try:
            return within(limit, function)
        except (Endless, MemoryError) as problem:
            much = isinstance(problem, MemoryError)
            stopped.append("it takes more memory than an answer may have" if much else str(problem))
            raise

    state, why, problem = WRONG, "", ""
    try:
        with mock.patch.object(judged, "within", watched):
            stand_ins = {other: known[other] for other in standing_in}
            names, problem = watched(seconds, lambda: _loaded(pieces, lesson, stand_ins))
            if name in names:
                judge = replace(known[name], seconds=min(seconds, known[name].seconds)).verdict
                own = names[name]  # for which a check that the learner called may have left a stand-in
                state, why = own.judged(judge) if isinstance(own, StandIn) else judge(own)
            else:
                why = problem or f"no cell gives {name} a meaning at the top of a cell"
    except BaseException as raised:  # such as a KeyboardInterrupt of the learner's own
        why = f"it raises {type(raised).__name__}" + (f": {text}" if (text := said(raised)) else "")
    missing = getattr(sys.modules.get("course.gpu"), "MISSING", None)
    if state != CORRECT and stopped:
        state, why = STOPPED, stopped[-1]
    elif state == WRONG and missing and missing in why:
        state, why = UNREADABLE, f"it cannot be judged on this machine: {missing}"
    elif state == WRONG and (needs := NO_MODULE.search(f"{problem} {why}")):
        state, why = UNREADABLE, f"it needs {needs[1]}, which lies outside the notebook and is not installed here"
    return state, why


def _loaded(pieces: list[Piece], lesson: str, stand_ins: dict[str, Exercise]) -> tuple[dict[str, Any], str]:
    """The names of a notebook after these pieces of it, and what was raised first on the way; nothing if all went well.

    As in a notebook, a statement that raises ends its cell, and the next cells go on. Not so a call whose result nobody
    takes: it may show or save something, which cannot be done here.
    """
    module = ModuleType("__main__")
    module.__spec__ = ModuleSpec("__main__", None)  # else a process that `beside` starts looks for a file of it
    sys.modules["__main__"], names, raised = module, vars(module), ""
    here: Any = SimpleNamespace(__module__="__main__")
    compiler = codeop.Compile()  # which remembers what is imported from __future__
    for cell, text, places in pieces:
        file = f"<cell {cell + 1}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        body = parsed(text).body
        for place in places:
            try:
                exec(compiler(ast.Module([body[place]], []), file, "exec"), names)  # type: ignore[arg-type]
            except (Exception, SystemExit) as problem:
                if isinstance(body[place], ast.Expr):
                    continue
                raised = raised or f"what it needs {explained(problem, here).removeprefix('it ')}"
                break
            for name, exercise in stand_ins.items():
                if name in names and not isinstance(names[name], StandIn):
                    names[name] = StandIn(names[name], exercise.answer, lesson)
    return names, raised
