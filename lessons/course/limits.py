"""Call a function with limits on its time and its memory.

A timer's signal interrupts the function, also in a notebook's kernel. One long call inside C, such as a huge matrix
product, is interrupted only when it returns. The old timer and handler are restored after the call. Signals need the
main thread and a system that has them (not Windows): elsewhere the function runs without limits, and the kernel's own
interrupt stops it.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None

Result = TypeVar("Result")

TICK = 0.05  # seconds
GIGABYTES = 2.0  # the limit on how much one call may raise the peak memory of the process


class Stopped(BaseException):
    """Raised inside a function that has reached a limit; no `Exception`, because the function may catch those."""


class LimitExceeded(Exception):
    """A call was stopped; the message names the limit and the likely cause."""


def run_limited(seconds: float, function: Callable[[], Result]) -> Result:
    """Return `function()`. Raises `LimitExceeded` if it takes more than `seconds` or `GIGABYTES`."""
    if resource is None or threading.current_thread() is not threading.main_thread():
        return function()
    begin, memory, inside, reached = time.monotonic(), _peak_gigabytes(), True, ""

    def tick(number: int, frame: Any) -> None:
        nonlocal reached
        if not inside or frame.f_code is run_limited.__code__:
            return
        if time.monotonic() - begin > seconds:
            reached = f"it has not come back after {seconds:g} s: is there a loop that never ends?"
        elif _peak_gigabytes() - memory > GIGABYTES:
            reached = f"it takes more than {GIGABYTES:g} GB of memory: what grows there, in a loop that never ends?"
        if reached:  # again at every tick, since a bare `except:` catches even this
            raise Stopped

    handler = signal.signal(signal.SIGALRM, tick)
    timer = signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        return function()
    finally:
        inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, *timer)
        if reached:  # even if the function caught `Stopped` and returned
            raise LimitExceeded(reached)


def _peak_gigabytes() -> float:
    """Return the peak memory of the process so far."""
    assert resource is not None
    unit = 1e9 if sys.platform == "darwin" else 1e6  # bytes there, KB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
