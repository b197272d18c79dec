"""Ctrl-C without harm: the training asks after each step whether it should stop."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class StopRequest:
    """Within this context, SIGINT (Ctrl-C) and SIGTERM only set `requested`; a second signal acts as without it.

    A signal that was ignored, as SIGINT is for a shell's background jobs, stays ignored. Outside the main thread,
    where Python allows no handlers, nothing is changed.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._request) or signal.SIG_DFL
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(number, self._previous[number])
