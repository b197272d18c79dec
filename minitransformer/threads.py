"""Python threads that compute side by side, each with one thread of BLAS.

NumPy releases the interpreter's lock inside its loops and BLAS, so Python threads do compute at the same time, and all
of the arithmetic, where BLAS's own threads would share the matrix products alone. BLAS's threads even slow down small
products: handing them out takes longer than the work, all the more on a busy machine.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from threading import Lock
from typing import Any, Self

MOST_THREADS = 1024
"""Threads beyond the cores only wait for each other, and a system may refuse to start thousands of them."""


class Threads:
    """A context manager of `count` threads, one per core by default; at its end BLAS has as many threads as before.

    BLAS has one thread also where `count` is 1, since its own would round differently on every machine.
    Raises `ValueError` for a count below 1 or above `MOST_THREADS`.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = min(available_cores(), MOST_THREADS) if count is None else count
        if not 1 <= self.count <= MOST_THREADS:
            raise ValueError(f"threads is {count}, expected 1 to {MOST_THREADS}")
        self._context = ExitStack()

    def __enter__(self) -> Self:
        self._context.enter_context(_ONE_BLAS_THREAD)
        self._pool = ThreadPoolExecutor(self.count)
        self._context.callback(self._pool.shutdown, cancel_futures=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._context.close()

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        """The function's results in the order of the arguments; raises its first exception."""
        return self._pool.map(function, *arguments)


class _OneBlasThread:
    """Holds BLAS to one thread while anybody is inside: the setting is the whole process's."""

    def __init__(self) -> None:
        self._lock, self._inside, self._limit = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit.enter_context(_blas().limit(limits=1, user_api="blas"))
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.close()


_ONE_BLAS_THREAD = _OneBlasThread()


@cache
def _blas() -> Any:
    """The libraries that have threads, looked up once: that takes longer than a short translation."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
