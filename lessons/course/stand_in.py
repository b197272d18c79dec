"""What stands under a learner's name until the learner's own function is right."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar

Verdict = TypeVar("Verdict")


class StandIn:
    """The package's answer under the learner's name, for the cells that follow; a check judges the learner's `own`.

    It has the name and the contract of `own`, the signature and the source of the answer, and is pickled by its name,
    as a function is. `number` is the lesson's.
    """

    def __init__(self, own: Callable[..., Any], answer: Callable[..., Any], number: str):
        update_wrapper(self, own)
        self.__wrapped__ = answer
        self.own, self.answer, self.number, self.judging = own, answer, number, False

    def __call__(self, *args: Any, **options: Any) -> Any:
        # A function that calls itself by its name finds this under it; while it is judged, it must find itself.
        return (self.own if self.judging else self.answer)(*args, **options)

    def __reduce__(self) -> str:
        return vars(self)["__qualname__"]

    def judged(self, judge: Callable[[Callable[..., Any]], Verdict]) -> Verdict:
        """What `judge` says of `own`."""
        self.judging = True
        try:
            return judge(self.own)
        finally:
            self.judging = False
