"""Exercises: a name, the package's answer, and a judge that calls a learner's function and explains what is wrong."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np

from . import answers
from .changes import Change, first_change, snapshot
from .failures import describe_exception, exception_text, is_stub
from .fallback import Fallback
from .limits import LimitExceeded, run_limited
from .sources import lesson_folder

Function = TypeVar("Function", bound=Callable[..., Any])

CORRECT, NOT_YET, WRONG = "correct", "not yet", "wrong"
SECONDS = 10.0  # the limit on one call; the slowest right answer takes 0.3 s on two old cores


class Wrong(Exception):
    """Raised by a judge; the message says in one sentence what is wrong and the likely cause."""


class Unwritten(Exception):
    """Raised by an `Attempt` that is still the stub."""


class Verdict(NamedTuple):
    """A judge's verdict: `CORRECT`, `NOT_YET`, or `WRONG` with a hint."""

    state: str
    hint: str = ""


class Attempt:
    """A learner's function, as a judge calls it.

    A call raises `Unwritten` if the function is a stub, and `Wrong` if it raises, takes more than `seconds` or, unless
    it is meant to work `in_place`, returns None or writes into its arguments or into an earlier result.
    """

    def __init__(self, function: Callable[..., Any], in_place: bool = False, seconds: float = SECONDS):
        self.function, self.in_place, self.seconds = function, in_place, seconds
        self.returned: tuple[Any, Any] = None, None  # a copy of the last result, and the last result

    def __call__(self, *args: Any, **options: Any) -> Any:
        arguments = {} if self.in_place else self._by_name(args, options)
        before = {name: snapshot(value) for name, value in arguments.items()}
        try:
            result = run_limited(self.seconds, lambda: self.function(*args, **options))
        except LimitExceeded as endless:
            raise Wrong(str(endless)) from None
        except (Exception, SystemExit) as problem:
            if is_stub(problem, self.function):
                raise Unwritten from None
            raise Wrong(describe_exception(problem, self.function)) from problem
        if self.in_place:
            return result
        for name, value in arguments.items():
            if found := first_change(before[name], value):
                raise Wrong(_written_into(name, found))
        if first_change(*self.returned):
            raise Wrong("a second call changes what the first one returned: does it return an array that it keeps?")
        if result is None:
            raise Wrong("it returns None: is there a `return` at its end?")
        self.returned = snapshot(result), result
        return result

    def _by_name(self, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by their parameters' names or, for a function without a signature, by number."""
        try:
            return inspect.signature(self.function).bind(*args, **options).arguments
        except (TypeError, ValueError):
            return {f"number {number}": value for number, value in enumerate(args, 1)} | options


@dataclass(frozen=True)
class Exercise:
    """An exercise of a lesson.

    `answer` is the package's version in the exercise's own signature, or the solution if the package has none. `judge`
    raises `Wrong` for a wrong attempt and returns for a right one.
    """

    name: str
    answer: Callable[..., Any]
    judge: Callable[[Attempt], None]
    in_place: bool = False
    seconds: float = SECONDS

    def verdict(self, function: Callable[..., Any]) -> Verdict:
        """Return the judge's verdict on `function`."""
        attempt = Attempt(function, self.in_place, self.seconds)
        try:
            # The judge explains an overflow; NumPy's warning about it would only distract.
            with np.errstate(all="ignore"):
                self.judge(attempt)
        except Unwritten:
            return Verdict(NOT_YET)
        except Wrong as wrong:
            return Verdict(WRONG, str(wrong))
        # The judge itself failed on an odd result: the learner gets one line, not the judge's traceback.
        except (Exception, SystemExit) as problem:
            text = f"{type(problem).__name__}: {exception_text(problem)[:200]}"
            return Verdict(WRONG, f"what it returns does not fit its contract ({text})")
        return Verdict(CORRECT)


def exercise(
    answer: Callable[..., Any], in_place: bool = False, seconds: float = SECONDS
) -> Callable[[Callable[[Attempt], None]], Exercise]:
    """Make an `Exercise` of a judge, which has the name of the function that the learner writes.

    `seconds` is the limit on one call of the learner's function.
    """
    return lambda judge: Exercise(judge.__name__, answer, judge, in_place, seconds)


def exercises(number: str) -> dict[str, Exercise]:
    """Return the exercises of lesson "00" to "30" by name, in order. Raises `ValueError` for an unknown lesson."""
    if not lesson_folder(number).is_dir():
        raise ValueError(f"there is no lesson {number!r}")
    module = import_module(f"{__package__}.{lesson_folder(number).name}.exercises")
    return {value.name: value for value in vars(module).values() if isinstance(value, Exercise)}


def start(number: str) -> Callable[[Function], Function]:
    """Begin a lesson: set the pictures' style and return the lesson's `check`.

    `check(function)` prints one line and returns `function` if it is right, else a `Fallback`, with which the lesson
    goes on; given a `Fallback`, it judges the learner's function again. A right answer is kept in a file
    (`course.answers`). It raises `ValueError` if the lesson has no exercise of the function's name.
    """
    from .style import use_style  # here: it takes half a second, and commands and workers need no style

    use_style()
    known = exercises(number)

    def check(function: Function) -> Function:
        name = getattr(function, "__name__", str(function))
        if name not in known:
            raise ValueError(f"lesson {number} has no exercise {name!r}; it has {', '.join(known)}")
        fallback = function if isinstance(function, Fallback) else Fallback(function, known[name].answer, number)
        state, hint = fallback.judged(known[name].verdict)
        if state == CORRECT:
            print(f"{name}: correct{_kept(number, fallback.own, known[name])}")
            return fallback.own  # type: ignore[return-value]
        said = f"wrong: {hint}" if state == WRONG else "not yet. The lesson goes on with the package's version."
        print(f"{name}: {said}")
        return fallback  # type: ignore[return-value]

    return check


def _kept(number: str, function: Callable[..., Any], exercise: Exercise) -> str:
    """Save a right answer; return a remark for the learner if it cannot be saved, else an empty string."""
    try:
        answers.save(number, function, lambda alone: exercise.verdict(alone).state == CORRECT)
    except Exception as problem:  # the answer is right all the same, and the lesson goes on
        return f" (but not kept: {exception_text(problem)[:200]})"
    return ""


def _written_into(name: str, found: Change) -> str:
    if not found.rounding:
        return f"it writes into its argument {name}{found.path}: whoever called still needs those values"
    return (
        f"it moves its argument {name}{found.path} and moves it back, which leaves rounding behind, up to "
        f"{found.rounding:.0e}: work on a copy, or put the old value itself back"
    )
