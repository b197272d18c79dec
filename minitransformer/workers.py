"""Processes forked from this one that compute side by side, each with one BLAS thread.

Python threads take turns between NumPy's calls, since one at a time runs Python; processes do not wait for each other.
A forked process starts in milliseconds with all that is in memory, so that no model is loaded or sent twice. A program
with threads of its own must not fork: a lock that one of them holds would never open in the new process.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import Any, Self
from warnings import catch_warnings, simplefilter

from .allocator import keep_freed_memory
from .threads import Threads


class Workers:
    """A context manager with `count` processes, by default one for each core, that compute one function.

    They start with the first call of `map`. When the block ends with an exception, such as Ctrl-C's, they end at once;
    they also end if this process is killed. Raises `ValueError` for a count that `Threads` would not take.
    """

    def __init__(self, function: Callable[[Any], Any], count: int | None = None) -> None:
        self._function, self._threads = function, Threads(count)
        self.count = self._threads.count
        self._context = ExitStack()

    @staticmethod
    def supported() -> bool:
        """Whether processes can be forked safely here: on Linux; macOS's own libraries do not allow it."""
        return sys.platform == "linux"

    def __enter__(self) -> Self:
        self._context.enter_context(self._threads)  # with one BLAS thread, which the processes inherit
        self._pool, self._others = None, set(active_children())
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is not None:
            for process in set(active_children()) - self._others:
                process.terminate()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._context.close()

    def map(self, items: Iterable[Any]) -> Iterator[Any]:
        """The function's results in the order of the items.

        Raises the function's first exception, and `RuntimeError` if a process was killed.
        """
        if self._pool is None:
            context = get_context("fork")
            self._pool = ProcessPoolExecutor(self.count, context, initializer=_begin, initargs=(self._function,))
        with catch_warnings():  # since 3.12 Python warns of threads: BLAS's end before a fork, and are the only ones
            simplefilter("ignore", DeprecationWarning)
            results = self._pool.map(_compute, items)
        try:
            yield from results
        except BrokenProcessPool:
            raise RuntimeError("a process that shared the work was killed: perhaps memory ran out") from None


def _begin(function: Callable[[Any], Any]) -> None:
    """In a new process: remembers the function, which is inherited and need not be pickled."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first process ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep_freed_memory()
    Thread(target=_end_with_parent, daemon=True).start()


def _compute(item: Any) -> Any:
    return _function(item)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
