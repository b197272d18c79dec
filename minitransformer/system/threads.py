"""Python threads that compute side by side, each with one BLAS thread.

NumPy releases the interpreter's lock inside its loops and inside BLAS, so Python threads compute at the same time. They
share all of the arithmetic; BLAS's own threads would share only the matrix products. For small products BLAS's threads
are even slower than one: distributing the work takes longer than the work, above all on a busy machine.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from threading import Lock
from typing import Any, Self

from . import WEBASSEMBLY

MOST_THREADS = 1024
"""The most threads that may be asked for: more threads than cores only wait, and a system may refuse thousands."""


class Threads:
    """A context manager with `count` threads, by default one for each core; inside it BLAS has one thread.

    Where no thread can be started, the shares are computed one after the other, with the same results.
    BLAS has one thread even if `count` is 1, because more would round differently from machine to machine.
    Raises `ValueError` for a count below 1 or above `MOST_THREADS`.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = min(available_cores(), MOST_THREADS) if count is None else count
        if not 1 <= self.count <= MOST_THREADS:
            raise ValueError(f"threads is {count}, expected 1 to {MOST_THREADS}")
        self._context = ExitStack()

    def __enter__(self) -> Self:
        self._context.enter_context(_ONE_BLAS_THREAD)
        self._map = map
        if not WEBASSEMBLY:
            pool = ThreadPoolExecutor(self.count)
            self._context.callback(pool.shutdown, cancel_futures=True)
            self._map = pool.map
        return self

    def __exit__(self, *exception: object) -> None:
        self._context.close()

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        """Return the function's results in the order of the arguments. Raises its first exception."""
        return self._map(function, *arguments)


class _OneBlasThread:
    """Keeps BLAS at one thread until the last user has left: the setting belongs to the whole process."""

    def __init__(self) -> None:
        self._lock, self._inside, self._limit = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit.enter_context(blas_threads(1))
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.close()


_ONE_BLAS_THREAD = _OneBlasThread()


def blas_threads(count: int) -> AbstractContextManager[Any]:
    """Let BLAS use `count` threads, until the context that is returned ends; without threadpoolctl nothing changes."""
    blas = _blas()
    return nullcontext() if blas is None else blas.limit(limits=count, user_api="blas")


@cache
def _blas() -> Any:
    """Find the libraries that have threads, only once, since that takes longer than a short translation."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
