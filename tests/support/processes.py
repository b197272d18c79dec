"""Other processes, alive and dead."""

import subprocess
import time
from collections.abc import Callable
from functools import cache


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
