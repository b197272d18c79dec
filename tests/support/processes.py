"""Other processes, alive and dead, and those that a signal meets while they work on files."""

import itertools
import os
import signal
import subprocess
import sys
import time
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


def killed_before_operation(number: int, folder: Path, work: Callable[[], int | None]) -> bool:
    """Whether a fork that does `work` was killed: it is, just before its operation `number` on a file of `folder`.

    An exception in `work`, or another result than None and 0, fails.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal_before_operation(number, folder)
            status = work() or 0
        finally:
            os._exit(status)
    ended = os.waitpid(child, 0)[1]
    assert ended in (0, signal.SIGKILL)
    return ended == signal.SIGKILL
