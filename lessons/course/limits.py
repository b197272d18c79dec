"""Call a function with limits on its time and its memory.

A signal interrupts the function at every tick, also in a notebook's kernel: a timer's or, on Windows, which has no such
timer, one that another thread simulates. One long call inside C, such as a huge matrix product, is interrupted only
when it returns. The old timer and handler are restored after the call. Handlers run in the main thread alone: in
another thread the function runs without limits, and in a browser, where the notebook's stop button interrupts it.
Windows does not tell how much memory a process has used, so there the time alone is limited.
"""

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from minitransformer.system import WEBASSEMBLY

try:
    import resource
except ModuleNotFoundError:  # on Windows, in a browser
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
    if WEBASSEMBLY or threading.current_thread() is not threading.main_thread():
        return function()
    begin, memory, inside, reached = time.monotonic(), _peak_gigabytes(), False, ""

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

    with _timer(tick) if hasattr(signal, "SIGALRM") else _thread_timer(tick):
        try:
            inside = True
            return function()
        finally:
            inside = False
            if reached:  # even if the function caught `Stopped` and returned
                raise LimitExceeded(reached)


@contextmanager
def _timer(tick: Callable[[int, Any], None]) -> Iterator[None]:
    """Call `tick` every `TICK` seconds, on a timer's signal."""
    handler = signal.signal(signal.SIGALRM, tick)
    timer = signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, *timer)


@contextmanager
def _thread_timer(tick: Callable[[int, Any], None]) -> Iterator[None]:
    """Do what `_timer` does with a thread that simulates SIGTERM, which Windows itself never sends."""
    handler, done = signal.signal(signal.SIGTERM, tick), threading.Event()

    def interrupt() -> None:
        while not done.wait(TICK):
            _thread.interrupt_main(signal.SIGTERM)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)


def _peak_gigabytes() -> float:
    """Return the peak memory of the process so far; 0 where the system does not tell."""
    if resource is None:
        return 0.0
    unit = 1e9 if sys.platform == "darwin" else 1e6  # bytes there, KB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
