"""Other processes, alive and dead, and those that a signal meets while they work on files."""

import itertools
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path

OPERATIONS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")


@cache
def dead_process() -> int:
    """The number of a process that is no more."""
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return once `condition()` is true; fails where that takes longer."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def signal_before_operation(number: int, folder: Path, signal_number: int = signal.SIGKILL) -> None:
    """Send this process a signal just before its operation `number`, counted from 0, on a file of `folder`."""
    operations = itertools.count()

    def hook(event: str, arguments: tuple) -> None:
        if event in OPERATIONS and str(arguments[0]).startswith(str(folder)) and next(operations) == number:
            os.kill(os.getpid(), signal_number)

    sys.addaudithook(hook)


def in_a_fork(work: Callable[[], int | None]) -> int:
    """Start a fork that does `work`; its number. An exception makes its status 1, a result is its status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = work() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def killed_at(moment: float, folder: Path, work: Callable[[], int | None]) -> bool:
    """Return True if a fork that does `work` was killed before its end, which must be a good one.

    It is killed after `moment` seconds, or for an int just before that operation on a file of `folder`.
    """

    def killed_work() -> int | None:
        if isinstance(moment, int):
            signal_before_operation(moment, folder)
        return work()

    child = in_a_fork(killed_work)
    if not isinstance(moment, int):
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
    ended = os.waitpid(child, 0)[1]
    assert ended in (0, signal.SIGKILL)
    return ended == signal.SIGKILL
