"""Jobs in copies of this process: whatever becomes of one, the others go on, and their parent learns why.

A job may raise, hang, run out of memory, or break its GPU for as long as its process lives: then this process ends, and
what it had sent is not lost. No process outlives its parent, whatever ends that one, nor leaves behind what it started
itself. The parent must not compute: in copies of a process a GPU that it asked for anything does not work, and the
threads that it computed with (OpenMP's) are missing, for which a copy waits for ever.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple

from kernels.proof.ledger import NO_TIME

COPY = multiprocessing.get_context("fork")
LEAVE = 5.0
"""Seconds that a process that was killed may take to go: a driver may be slow to let go of it."""

Job = Callable[[], Iterator[Any]]
"""Yields messages."""


class Ended(NamedTuple):
    """The last message of a job; `reason` says why there are not more, `None` where there are none to come."""

    reason: str | None


def supervise(
    jobs: deque[Job], hear: Callable[[Job, Any], None], deadline: float, patience: float, at_once: int = 1
) -> None:
    """Run jobs, `at_once` side by side; `hear` takes each message, of each job that began an `Ended` as the last.

    It may put more into `jobs`. None begins at `deadline`, a time of `monotonic`, and those that run are stopped; a job
    that sends nothing for `patience` seconds is stopped before.
    """
    running = list[_Child]()
    try:
        while running or (jobs and monotonic() < deadline):
            while jobs and len(running) < at_once and monotonic() < deadline:
                running.append(_Child(jobs.popleft()))
            until = min([deadline, *(child.heard + patience for child in running)])
            ready = wait([child.connection for child in running], max(until - monotonic(), 0.0))
            for child in list(running):
                if child.connection in ready:
                    message = child.message()
                elif monotonic() >= min(deadline, child.heard + patience):
                    message = Ended(NO_TIME if monotonic() >= deadline else f"not a word for {patience:.0f} s")
                else:
                    continue
                if isinstance(message, Ended):
                    running.remove(child)
                    child.stop()
                hear(child.job, message)
    finally:
        for child in running:
            child.stop()


class _Child:
    """A process at work, and when it was last heard of."""

    def __init__(self, job: Job) -> None:
        self.job, self.heard = job, monotonic()
        self.connection, sending = COPY.Pipe(duplex=False)
        self.process: Any = COPY.Process(target=_work, args=(sending, job))
        self.process.start()
        sending.close()

    def message(self) -> Any:
        """Return what it sent; where there is no more, how its process ended."""
        self.heard = monotonic()
        with contextlib.suppress(EOFError, OSError):
            return self.connection.recv()
        self.process.join(LEAVE)
        code = self.process.exitcode or 0
        if code >= 0:
            return Ended(f"its process ended with status {code}")
        killed = signal.Signals(-code).name
        return Ended(f"its process was ended by {killed}{' (out of memory?)' if killed == 'SIGKILL' else ''}")

    def stop(self) -> None:
        """End it and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # it may have been too young to have a group
        self.process.join(LEAVE)
        self.connection.close()


def _work(connection: Connection, job: Job) -> None:
    """Do the job, in its process, which its parent ends: to tidy up may take a broken GPU for ever."""
    os.setpgid(0, 0)  # its own group; Ctrl-C reaches the parent alone
    Thread(target=_outlive_nobody, daemon=True).start()
    reason = None
    try:
        for message in job():
            connection.send(message)
    except Exception as error:
        traceback.print_exc()
        reason = reason_of(error)
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(Ended(reason))


def _outlive_nobody() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def reason_of(error: BaseException) -> str:
    """Return an exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}".rstrip(": ")
