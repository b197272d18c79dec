"""An exercise: what it asks for, the package's answer, and a judge that tells from behaviour what is wrong."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .style import use_style

Function = TypeVar("Function", bound=Callable[..., Any])

CORRECT, NOT_YET, WRONG = "correct", "not yet", "wrong"


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

    Raises `Unwritten` where it is a stub, `Wrong` where it raises or, unless `in_place`, writes into its arguments.
    """

    def __init__(self, function: Callable[..., Any], in_place: bool = False):
        self.function, self.in_place = function, in_place

    def __call__(self, *args: Any, **options: Any) -> Any:
        before = None if self.in_place else copy.deepcopy(args)
        try:
            result = self.function(*args, **options)
        except NotImplementedError:
            raise Unwritten from None
        except Exception as problem:
            text = " ".join(str(problem).split())
            raise Wrong(f"it raises {type(problem).__name__}: {text}") from problem
        if before is not None and (changed := _changed(before, args)) is not None:
            raise Wrong(f"it writes into its argument number {changed + 1}: whoever called still needs those values")
        if result is None and not self.in_place:
            raise Wrong("it returns None: is there a `return` at its end?")
        return result


@dataclass(frozen=True)
class Exercise:
    """`answer` is the package's version, in the exercise's own signature; `judge` raises `Wrong`, or is content."""

    name: str
    answer: Callable[..., Any]
    judge: Callable[[Attempt], None]
    in_place: bool = False

    def verdict(self, function: Callable[..., Any]) -> Verdict:
        """What the judge says of `function`."""
        attempt = Attempt(function, self.in_place)
        try:
            # A learner's overflow is for the judge to explain, not for NumPy to warn of.
            with np.errstate(all="ignore"):
                self.judge(attempt)
        except Unwritten:
            return Verdict(NOT_YET)
        except Wrong as wrong:
            return Verdict(WRONG, str(wrong))
        except Exception as problem:  # whatever it returned, the learner gets one line, not a judge's traceback
            text = " ".join(str(problem).split())
            return Verdict(WRONG, f"what it returns does not fit its contract ({type(problem).__name__}: {text})")
        return Verdict(CORRECT)


def exercise(answer: Callable[..., Any], in_place: bool = False) -> Callable[[Callable[[Attempt], None]], Exercise]:
    """Make an `Exercise` of a judge; its name is the judge's, which the learner's function must bear."""
    return lambda judge: Exercise(judge.__name__, answer, judge, in_place)


def exercises(number: str) -> dict[str, Exercise]:
    """The exercises of a lesson, "00" to "17", by name in their order. Raises `ValueError` for an unknown lesson."""
    name = f"{__package__}.exercises.lesson_{number}"
    try:
        module = import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise ValueError(f"there is no lesson {number!r}") from None
    return {value.name: value for value in vars(module).values() if isinstance(value, Exercise)}


def start(number: str) -> Callable[[Function], Function]:
    """Begin a lesson: sets the pictures' style and returns the lesson's `check`.

    `check(function)` prints one line, and returns `function` if it is right, else the package's version, so that the
    lesson goes on. It raises `ValueError` where the lesson has no exercise of the function's name.
    """
    use_style()
    known = exercises(number)

    def check(function: Function) -> Function:
        name = getattr(function, "__name__", str(function))
        if name not in known:
            raise ValueError(f"lesson {number} has no exercise {name!r}; it has {', '.join(known)}")
        state, hint = known[name].verdict(function)
        if state == CORRECT:
            print(f"{name}: correct")
            return function
        explained = f"wrong: {hint}" if state == WRONG else "not yet. The lesson goes on with the package's version."
        print(f"{name}: {explained}")
        return known[name].answer  # type: ignore[return-value]

    return check


def _changed(before: tuple[Any, ...], after: tuple[Any, ...]) -> int | None:
    """The number of the first argument that is no longer what it was."""
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        same = np.array_equal(old, new, equal_nan=old.dtype.kind in "fc") if isinstance(old, np.ndarray) else True
        if not same:
            return number
    return None
