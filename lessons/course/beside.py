"""A process beside the notebook's, for what cannot be done in it: compile, where Triton interprets.

Triton reads once, when it is first imported, whether it interprets, and the lessons about kernels tell it to. This
process tells it not to. It starts with the first call, which takes some seconds, and is kept for the next ones.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any
from unittest import mock

from .limits import Endless

ENVIRONMENT = {"TRITON_INTERPRET": "0", "TRITON_ALWAYS_COMPILE": "1"}
"""What is compiled already may name another file: Triton finds a kernel again by its text alone."""
SECONDS = 60.0  # what one call may take, with the start

_process: BaseProcess | None = None
_pipe: Connection | None = None


def beside(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module returns there; both ways goes what can be pickled.

    Raises `Endless` where it does not come back, and the process is ended then; `RuntimeError` for what it raises.
    """
    global _process, _pipe
    if _process is None or _pipe is None or not _process.is_alive():
        spawning = multiprocessing.get_context("spawn")  # a fork would have imported Triton already
        _pipe, other = spawning.Pipe()
        _process = spawning.Process(target=_serve, args=(other,), daemon=True)
        # A new process runs the file of its parent's main module again. A notebook has none, until Triton's interpreter
        # puts what its own module has, `__file__` too, beside the kernels of a notebook.
        without_file = mock.patch.object(sys.modules["__main__"], "__file__", None, create=True)
        with mock.patch.dict(os.environ, ENVIRONMENT), without_file:
            _process.start()
        other.close()
    try:
        _pipe.send((function, arguments))
        if not _pipe.poll(SECONDS):
            raise Endless(f"it has not come back after {SECONDS:g} s: is there a loop that never ends?")
        result, problem = _pipe.recv()
    except BaseException:  # of an interrupt too: the next call must not get this one's result
        _process.kill()
        _process = None
        raise
    if problem:
        raise RuntimeError(problem)
    return result


def _serve(pipe: Connection) -> None:
    """Answer calls until the notebook ends; an interrupt is for the notebook, which ends this then."""
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
