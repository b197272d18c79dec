"""A spawned worker process that compiles kernels, which the notebook's own process cannot.

Triton reads `TRITON_INTERPRET` once, when it is first imported. The lessons about kernels set it to 1; the worker runs
with 0. It starts with the first call, which takes some seconds, and serves all later ones.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any
from unittest import mock

from .limits import LimitExceeded

if TYPE_CHECKING:  # a browser lacks it
    from multiprocessing.connection import Connection

ENVIRONMENT = {"TRITON_INTERPRET": "0", "TRITON_ALWAYS_COMPILE": "1"}
"""Always compile: Triton's cache finds a kernel by its text alone, and the cached code may name another file."""
SECONDS = 60.0  # the limit on one call, the worker's start included

_process: BaseProcess | None = None
_pipe: "Connection | None" = None


def call_in_worker(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return `function(*arguments)` as computed by the worker; the function, its arguments and result are pickled.

    Raises `RuntimeError` with the worker's traceback if the function raises, and `LimitExceeded` if the call takes
    longer than `SECONDS`; the worker is then killed.
    """
    global _process, _pipe
    if _process is None or _pipe is None or not _process.is_alive():
        spawning = multiprocessing.get_context("spawn")  # a fork would have imported Triton already
        _pipe, other = spawning.Pipe()
        _process = spawning.Process(target=_serve, args=(other,), daemon=True)
        # A spawned process runs the file of its parent's main module again. A notebook's `__main__` has no `__file__`
        # until Triton's interpreter copies the names of its own module into the globals of a kernel.
        without_file = mock.patch.object(sys.modules["__main__"], "__file__", None, create=True)
        with mock.patch.dict(os.environ, ENVIRONMENT), without_file:
            _process.start()
        other.close()
    try:
        _pipe.send((function, arguments))
        if not _pipe.poll(SECONDS):
            raise LimitExceeded(f"it has not come back after {SECONDS:g} s: is there a loop that never ends?")
        result, problem = _pipe.recv()
    except BaseException:  # also for an interrupt: the next call must not get this one's result
        _process.kill()
        _process = None
        raise
    if problem:
        raise RuntimeError(problem)
    return result


def _serve(pipe: "Connection") -> None:
    """Answer calls until the notebook's process ends; ignore interrupts, on which the notebook kills the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((function(*arguments), ""))
        except Exception:
            pipe.send((None, traceback.format_exc()))
