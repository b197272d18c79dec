"""The package's answer in place of a learner's function that is not yet right."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar

Verdict = TypeVar("Verdict")


class Fallback:
    """The package's answer under the name of a learner's function `own`, for the cells that follow.

    It has the name and docstring of `own`, the signature and source of `answer`, and is pickled by its name, as a
    function is. A check of it judges `own`. `number` is the lesson's.
    """

    def __init__(self, own: Callable[..., Any], answer: Callable[..., Any], number: str):
        update_wrapper(self, own)
        self.__wrapped__ = answer
        self.own, self.answer, self.number, self.judging = own, answer, number, False

    def __call__(self, *args: Any, **options: Any) -> Any:
        # A recursive function finds this object under its own name; while it is judged, it must call itself.
        return (self.own if self.judging else self.answer)(*args, **options)

    def __reduce__(self) -> str:
        return vars(self)["__qualname__"]

    def judged(self, judge: Callable[[Callable[..., Any]], Verdict]) -> Verdict:
        """Return `judge(own)`."""
        self.judging = True
        try:
            return judge(self.own)
        finally:
            self.judging = False
