"""Jobs in processes of their own: whatever becomes of one, the others go on, and their parent learns why.

A job is a function that yields messages. It may raise, hang, run out of memory, or break its GPU for as long as its
process lives: then this process ends, and what it had sent is not lost. No process outlives its parent, whatever ends
that one, nor leaves behind what it started itself.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple

from kernels.proof.ledger import NO_TIME

SPAWN, FORK = "spawn", "forkserver"
"""How a process begins: from nothing, or as a copy of a server that has imported PyTorch and touched no GPU."""

PRELOADED = ["torch._dynamo", "torch.nn.attention", "kernels.proof.checks", "kernels.attention.host", "kernels.tables"]
"""What takes seconds to import. The server does not look into this folder, whose files take 0.4 s more. Triton reads
TRITON_INTERPRET then: it must be set before the first copy is made."""

LEAVE = 5.0
"""Seconds that a process that was killed may take to go: a driver may be slow to let go of it."""


class Job(NamedTuple):
    """A function of these arguments; both are sent to another process, where it yields messages."""

    function: Callable[..., Iterator[Any]]
    arguments: tuple


class Ended(NamedTuple):
    """The last message of each job; `reason` says why there are not more, `None` where there are none to come."""

    reason: str | None


def nothing() -> None:
    """What a process does before its job, unless it is told something else."""


def supervise(
    jobs: Iterable[Job],
    hear: Callable[[Job, Any], None],
    deadline: float,
    patience: float,
    *,
    at_once: int = 1,
    before: Callable[[], None] = nothing,
    how: str = FORK,
) -> None:
    """Run jobs, `at_once` side by side; `hear` takes each message, of each job an `Ended` as the last.

    Until `deadline`, a time of `monotonic`; a job that sends nothing for `patience` seconds is stopped before. Each
    process calls `before` first.
    """
    context = multiprocessing.get_context(how)
    context.set_forkserver_preload(PRELOADED)
    waiting, running = deque(jobs), list[_Child]()
    try:
        while running or (waiting and monotonic() < deadline):
            while waiting and len(running) < at_once and monotonic() < deadline:
                running.append(_Child(waiting.popleft(), before, context))
            until = min(deadline, *(child.heard + patience for child in running))
            ready = wait([part for child in running for part in child.parts], max(until - monotonic(), 0.0))
            for child in list(running):
                if any(part in ready for part in child.parts):
                    message = child.message()
                elif monotonic() >= min(deadline, child.heard + patience):
                    message = Ended(NO_TIME if monotonic() >= deadline else f"not a word for {patience:.0f} s")
                else:
                    continue
                if isinstance(message, Ended):
                    running.remove(child)
                    child.stop(LEAVE if message.reason is None else 0.0)
                hear(child.job, message)
    finally:
        for child in running:
            child.stop()
    for job in waiting:
        hear(job, Ended(NO_TIME))


class _Child:
    """A process at work, and when it was last heard of."""

    def __init__(self, job: Job, before: Callable[[], None], context: Any) -> None:
        self.job, self.heard = job, monotonic()
        self.connection, sending = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(sending, before, job.function, job.arguments))
        self.process.start()
        sending.close()
        self.parts = self.connection, self.process.sentinel
        """One of which is ready when it has sent something, or has ended."""

    def message(self) -> Any:
        """What it sent; where there is no more, how its process ended."""
        self.heard = monotonic()
        with contextlib.suppress(EOFError, OSError):
            if self.connection.poll():
                return self.connection.recv()
        self.process.join(LEAVE)
        code = self.process.exitcode or 0
        if code >= 0:
            return Ended(f"its process ended with status {code}")
        killed = signal.Signals(-code).name
        return Ended(f"its process was ended by {killed}{' (out of memory?)' if killed == 'SIGKILL' else ''}")

    def stop(self, grace: float = 0.0) -> None:
        """End it, if it does not end by itself, and all that it has started."""
        self.process.join(grace)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # it may have been too young to have a group
        self.process.join(LEAVE)
        self.connection.close()


def _work(connection: Connection, before: Callable[[], None], function: Callable, arguments: tuple) -> None:
    """Do the job, in its process. If it fails, the process ends at once: to tidy up may take a broken GPU for ever."""
    os.setpgid(0, 0)  # its own group; Ctrl-C reaches the parent alone
    Thread(target=_outlive_nobody, daemon=True).start()
    reason = None
    try:
        before()
        for message in function(*arguments):
            connection.send(message)
    except Exception as error:
        traceback.print_exc()
        reason = reason_of(error)
    connection.send(Ended(reason))
    if reason is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.killpg(0, signal.SIGKILL)


def _outlive_nobody() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def reason_of(error: BaseException) -> str:
    """An exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}".rstrip(": ")
