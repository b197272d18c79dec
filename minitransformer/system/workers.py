"""Processes forked from this one that compute side by side, each with one BLAS thread.

Python threads take turns between NumPy's calls, since one at a time runs Python; processes do not wait for each other.
A forked process starts in milliseconds with all that is in memory, so that no model is loaded or sent twice. A program
with threads of its own must not fork: a lock that one of them holds would never open in the new process.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread, current_thread, main_thread
from threading import enumerate as enumerate_threads
from typing import TYPE_CHECKING, Any, Self
from warnings import catch_warnings, simplefilter

from .allocator import keep_freed_memory
from .threads import Threads, available_cores

if TYPE_CHECKING:  # a browser lacks it
    from multiprocessing.connection import Connection


class Workers:
    """A context manager with processes that compute one function: `count`, but at most one for each core.

    They start with the first call of `map`. They end with the block, at once if that ends with an exception such as
    Ctrl-C's, and also if this process is killed. Raises `ValueError` for a count that `Threads` would not take.
    """

    def __init__(self, function: Callable[[Any], Any], count: int | None = None) -> None:
        self._function, self._threads = function, Threads(count)
        self.count = min(self._threads.count, available_cores())
        self._processes: list[Any] = []
        self._connections: list[Connection] = []
        self._context = ExitStack()

    @staticmethod
    def supported() -> bool:
        """Return True if processes can be forked safely now: on Linux, without other threads than a progress bar's.

        macOS's own libraries do not allow forks, and a fork beside a thread that computes a matrix product never ends.
        """
        beside = {*enumerate_threads()} - {current_thread()}
        return sys.platform == "linux" and all(type(thread).__name__ == "TMonitor" for thread in beside)  # tqdm's

    def __enter__(self) -> Self:
        self._context.enter_context(self._threads)  # with one BLAS thread, which the processes inherit
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()
        self._context.close()

    def map(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the function's results in the order of the items, each of which goes to the next free process.

        Raises the function's first exception, and `ChildProcessError` if a process was killed.
        """
        if not self._processes:
            self._start()
        from multiprocessing.connection import wait  # loaded by now, without interrupts: an import can lose one

        waiting, computing = enumerate(items), dict[Any, int]()
        done, next_one = dict[int, Any](), 0
        try:
            for connection in self._connections:
                _give_next(connection, waiting, computing)
            while computing:
                ready: list[Any] = wait(list(computing))
                for connection in ready:
                    error, done[computing.pop(connection)] = connection.recv()
                    if error is not None:
                        raise error
                    _give_next(connection, waiting, computing)
                while next_one in done:
                    yield done.pop(next_one)
                    next_one += 1
        except (EOFError, ConnectionError):
            raise ChildProcessError("a process that shared the work was killed: perhaps memory ran out") from None
        finally:
            if computing:  # nobody will receive the results that are still computed
                self._end()

    def _start(self) -> None:
        context = get_context("fork")
        with _without_interrupts(), catch_warnings():
            # Python 3.12 warns of threads, but these do no harm: BLAS's end before a fork, and a bar's only sleeps.
            simplefilter("ignore", DeprecationWarning)
            for _ in range(self.count):
                here, there = context.Pipe()
                self._connections.append(here)
                process = context.Process(target=_serve, args=(self._function, there, list(self._connections)))
                process.start()
                there.close()
                del there  # now, without interrupts: one that arrives during its finaliser is lost
                self._processes.append(process)

    def _end(self) -> None:
        for process in self._processes:
            process.kill()  # they hold nothing that is worth saving
        for process in self._processes:
            process.join()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []


def _give_next(connection: "Connection", waiting: Iterator[tuple[int, Any]], computing: dict[Any, int]) -> None:
    """Send a free process the next item, if there is one, and note its number."""
    for number, item in waiting:
        computing[connection] = number
        connection.send(item)
        return


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Answer Ctrl-C only after the block: during a fork Python would lose its exception."""
    if current_thread() is not main_thread():  # Python interrupts only the main thread
        yield
        return
    received: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *arguments: received.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received and callable(before):
        before(*received[0])


def _serve(function: Callable[[Any], Any], connection: "Connection", parents: list["Connection"]) -> None:
    """Answer each item, in a new process, with an error, or None, and the result."""
    for each in parents:  # the inherited other ends of pipes, which would stay open here
        each.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep_freed_memory()
    Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        try:
            answer = None, function(item)
        except Exception as error:
            answer = error, None
        connection.send(answer)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
