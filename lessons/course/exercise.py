"""An exercise: what it asks for, the package's answer, and a judge that tells from behaviour what is wrong."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np

from . import answers
from .changes import Change, change, snapshot
from .failures import explained, is_stub, said
from .limits import Endless, within
from .sources import room
from .stand_in import StandIn

Function = TypeVar("Function", bound=Callable[..., Any])

CORRECT, NOT_YET, WRONG = "correct", "not yet", "wrong"
SECONDS = 10.0  # what one call may take; the longest right one takes 0.3 s on two old cores


class Wrong(Exception):
    """Raised by a judge: what is wrong, and the likely cause, in one sentence."""


class Unwritten(Exception):
    """The attempt is still the stub."""


class Verdict(NamedTuple):
    """What a judge said: one of `CORRECT`, `NOT_YET` and `WRONG`, and with the last what is wrong."""

    state: str
    hint: str = ""


class Attempt:
    """A learner's function, as a judge calls it.

    Raises `Unwritten` where it is a stub, and `Wrong` where it raises, does not come back (a call has `seconds`) or,
    unless it is to work `in_place`, writes into its arguments or into what it returned before.
    """

    def __init__(self, function: Callable[..., Any], in_place: bool = False, seconds: float = SECONDS):
        self.function, self.in_place, self.seconds = function, in_place, seconds
        self.returned: tuple[Any, Any] = None, None  # by the last call; and a copy of it

    def __call__(self, *args: Any, **options: Any) -> Any:
        arguments = {} if self.in_place else self._by_name(args, options)
        before = {name: snapshot(value) for name, value in arguments.items()}
        try:
            result = within(self.seconds, lambda: self.function(*args, **options))
        except Endless as endless:
            raise Wrong(str(endless)) from None
        except (Exception, SystemExit) as problem:
            if is_stub(problem, self.function):
                raise Unwritten from None
            raise Wrong(explained(problem, self.function)) from problem
        if self.in_place:
            return result
        for name, value in arguments.items():
            if found := change(before[name], value):
                raise Wrong(_written_into(name, found))
        if change(*self.returned):
            raise Wrong("a second call changes what the first one returned: does it return an array that it keeps?")
        if result is None:
            raise Wrong("it returns None: is there a `return` at its end?")
        self.returned = snapshot(result), result
        return result

    def _by_name(self, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        """The arguments by their parameters' names, or by numbers where those are not to be had."""
        try:
            return inspect.signature(self.function).bind(*args, **options).arguments
        except (TypeError, ValueError):
            return {f"number {number}": value for number, value in enumerate(args, 1)} | options


@dataclass(frozen=True)
class Exercise:
    """`answer` is the package's version, in the exercise's own signature, or the solution where the package has none;
    `judge` raises `Wrong`, or is content."""

    name: str
    answer: Callable[..., Any]
    judge: Callable[[Attempt], None]
    in_place: bool = False
    seconds: float = SECONDS

    def verdict(self, function: Callable[..., Any]) -> Verdict:
        """What the judge says of `function`."""
        attempt = Attempt(function, self.in_place, self.seconds)
        try:
            # A learner's overflow is for the judge to explain, not for NumPy to warn of.
            with np.errstate(all="ignore"):
                self.judge(attempt)
        except Unwritten:
            return Verdict(NOT_YET)
        except Wrong as wrong:
            return Verdict(WRONG, str(wrong))
        # Whatever it returned, the learner gets one line, not a judge's traceback, and the session goes on.
        except (Exception, SystemExit) as problem:
            text = f"{type(problem).__name__}: {said(problem)[:200]}"
            return Verdict(WRONG, f"what it returns does not fit its contract ({text})")
        return Verdict(CORRECT)


def exercise(
    answer: Callable[..., Any], in_place: bool = False, seconds: float = SECONDS
) -> Callable[[Callable[[Attempt], None]], Exercise]:
    """Make an `Exercise` of a judge; its name is the judge's, which the learner's function must bear.

    `seconds` is what one call of the learner's function may take before it is stopped.
    """
    return lambda judge: Exercise(judge.__name__, answer, judge, in_place, seconds)


def exercises(number: str) -> dict[str, Exercise]:
    """The exercises of a lesson, "00" to "26", by name in their order. Raises `ValueError` for an unknown lesson."""
    if not room(number).is_dir():
        raise ValueError(f"there is no lesson {number!r}")
    module = import_module(f"{__package__}.{room(number).name}.exercises")
    return {value.name: value for value in vars(module).values() if isinstance(value, Exercise)}


def start(number: str) -> Callable[[Function], Function]:
    """Begin a lesson: sets the pictures' style and returns the lesson's `check`.

    `check(function)` prints one line, and returns `function` if it is right, else a `StandIn`, so that the lesson goes
    on; given that, it judges the learner's function again. A right answer is kept in a file (`course.answers`). It
    raises `ValueError` where the lesson has no exercise of the function's name.
    """
    from .style import use_style  # half a second, which a command and a process beside need not wait

    use_style()
    known = exercises(number)

    def check(function: Function) -> Function:
        name = getattr(function, "__name__", str(function))
        if name not in known:
            raise ValueError(f"lesson {number} has no exercise {name!r}; it has {', '.join(known)}")
        stand_in = function if isinstance(function, StandIn) else StandIn(function, known[name].answer, number)
        state, hint = stand_in.judged(known[name].verdict)
        if state == CORRECT:
            print(f"{name}: correct{_kept(number, stand_in.own, known[name])}")
            return stand_in.own  # type: ignore[return-value]
        said = f"wrong: {hint}" if state == WRONG else "not yet. The lesson goes on with the package's version."
        print(f"{name}: {said}")
        return stand_in  # type: ignore[return-value]

    return check


def _kept(number: str, function: Callable[..., Any], exercise: Exercise) -> str:
    """Keep a right answer; returns what to say where it cannot be kept."""
    try:
        answers.keep(number, function, lambda alone: exercise.verdict(alone).state == CORRECT)
    except Exception as problem:  # whatever it is, the answer is right, and the lesson goes on
        return f" (but not kept: {said(problem)[:200]})"
    return ""


def _written_into(name: str, found: Change) -> str:
    if not found.rounding:
        return f"it writes into its argument {name}{found.path}: whoever called still needs those values"
    return (
        f"it moves its argument {name}{found.path} and moves it back, which leaves rounding behind, up to "
        f"{found.rounding:.0e}: work on a copy, or put the old value itself back"
    )
