"""Answers of learners, judged in processes that may end as badly as they like.

`Nursery` starts `python -m course.nursery`, which imports the judges once. For each job it forks a process, with a
guard and limits of its own, and waits for it no longer than the job may take. Where a system cannot fork, the process
itself does one job and ends.
"""

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from . import answers
from .exercise import exercises
from .failures import said
from .guard import guard, limit
from .marking import mark
from .reading import Piece, of_the_course, read
from .sources import LESSONS, number_of, sources

GRACE = 1.0  # seconds beyond what a job may take: the limits of its calls come first
START = 60.0  # seconds in which the judges must be imported
LARGEST = 4_000_000  # bytes of a reply
FORGED = "it writes into what it does not own"
READING = 60.0  # seconds in which a notebook must be read
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),  # a fork keeps no thread
    "MPLBACKEND": "Agg",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TRITON_INTERPRET": "1",
    "CUDA_VISIBLE_DEVICES": "",  # a fork cannot use a GPU, and marks are the same on all
}


class Ended(Exception):
    """A job's process ended without a reply; the message says how, as a sentence about what it did ends."""


class Nursery:
    """The process that judges. Close it, or use it as a context."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, path: str, named: str | None) -> dict[str, Any]:
        """`reading.read`. Raises `Ended`."""
        return self._asked({"does": "read", "seconds": READING, "path": path, "named": named})

    def mark(self, lesson: str, name: str, pieces: Any, standing_in: list[str], seconds: float) -> tuple[str, str, str]:
        """`marking.mark`, all of which may take `seconds`, and what it tried to do to files outside. Raises `Ended`."""
        given = {"lesson": lesson, "name": name, "pieces": pieces, "standing_in": standing_in}
        reply = self._asked({"does": "mark", "seconds": seconds, **given})
        match reply:
            case [str(state), str(why), str(tried)]:
                return state, why, tried
        raise Ended(FORGED)  # its process ran the learner's code, and so may say anything

    def close(self) -> None:
        """End it, with what it does just now."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()
            self.process = None

    def _asked(self, job: dict[str, Any], again: bool = True) -> Any:
        """The reply to a job, which has a folder of its own.

        Where the nursery itself ends, what was there before may have done it: the job gets one more try.
        """
        with tempfile.TemporaryDirectory(prefix="grading-", ignore_cleanup_errors=True) as folder:
            line, late = self._replied(job | {"folder": os.path.realpath(folder)})
        if not line.endswith(b"\n"):
            assert self.process is not None
            status = self.process.wait()
            self.close()
            if again and not late:
                return self._asked(job, again=False)
            raise Ended(_late(job) if late else _how(status))
        reply = json.loads(line)
        if "last" in reply:
            self.close()
        if "ended" in reply:
            raise Ended(reply["ended"])
        return reply["reply"]

    def _replied(self, job: dict[str, Any]) -> tuple[bytes, bool]:
        """The line that comes back, whole where all is well, and whether the process was ended because it was late."""
        if self.process is None or self.process.poll() is not None:
            self.close()
            self.process = _started()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        process, late = self.process, threading.Event()

        def stop() -> None:  # a nursery that forks watches the time itself
            late.set()
            process.kill()

        clock = threading.Timer(START + job["seconds"] + GRACE, stop)
        clock.daemon = True
        clock.start()
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
            return self.process.stdout.readline(), late.is_set()
        except BrokenPipeError:
            return b"", late.is_set()
        except BaseException:  # after Ctrl-C the next job must not get this one's reply
            self.close()
            raise
        finally:
            clock.cancel()


def _started() -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(LESSONS), *filter(None, sys.path)])
    environment = {name: value for name, value in os.environ.items() if name not in ("COURSE_RECORD", "PYTHONSTARTUP")}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "course.nursery"],
        cwd=LESSONS,
        env={**environment, **ENVIRONMENT, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the one who waits
    )


def _how(status: int) -> str:
    """How a process ended, in words. A negative status is that of a signal, as `subprocess` has it."""
    name = {-number: number.name for number in signal.Signals}.get(status, f"signal {-status}")
    if name == "SIGKILL":
        return "it was killed by the system: does it take too much memory?"
    if status < 0:
        return f"it crashes Python itself ({name})"
    return "it ends Python itself: a function ends with `return`"


def _late(job: dict[str, Any]) -> str:
    if job["does"] == "read":
        return f"it takes more than {job['seconds']:g} s"
    return f"it has not come back after {job['seconds']:g} s: is there a loop that never ends?"


# --- In the nursery ---------------------------------------------------------------------------------------------


def serve(jobs: BinaryIO, replies: BinaryIO) -> None:
    """Do what each line of JSON asks for, until there are no more."""
    for line in jobs:
        job = json.loads(line)
        with suppress(Exception):  # whatever it is, the job itself meets it again, and says so
            _prepare(job)
        if hasattr(os, "fork"):
            reply = _in_a_fork(job, (jobs.fileno(), replies.fileno()))
        else:
            reply = {"reply": _done(job), "last": True}
            os.chdir(LESSONS)  # so that the folder can be removed
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()
        if "last" in reply:
            return


def _prepare(job: dict[str, Any]) -> None:
    """Import and find out, once for all forks, what the job needs."""
    if job["does"] == "mark":
        exercises(job["lesson"])
    for source in sources() if job["does"] == "read" else ():
        if number_of(source) == job["named"]:
            of_the_course(source)


def _done(job: dict[str, Any]) -> Any:
    """What a job's process does: guard itself, and do it. It never raises."""
    folder = Path(job["folder"])
    try:
        os.environ |= {answers.FOLDER: str(folder / "answers"), "TMPDIR": str(folder), "TRITON_CACHE_DIR": str(folder)}
        tempfile.tempdir = None
        with suppress(OSError):  # what a notebook reads, it reads from there
            (folder / "weights").symlink_to(LESSONS / "weights")
        os.chdir(folder)
        limit(job["seconds"])
        tried = guard(folder)
        if job["does"] == "read":
            return read(job["path"], job["named"])
        pieces = [Piece(*piece) for piece in job["pieces"]]
        return [*mark(job["lesson"], job["name"], pieces, job["standing_in"], job["seconds"]), "".join(tried[:1])]
    except BaseException as problem:
        why = f"{type(problem).__name__}: {said(problem)}".removesuffix(": ")
        if job["does"] == "read":
            return {"lesson": job["named"], "why": f"cannot be read here ({why})"}
        return ["unreadable", f"it cannot be judged here ({why})", ""]


def _in_a_fork(job: dict[str, Any], pipes: tuple[int, ...]) -> dict[str, Any]:
    """A job's reply, or how its process ended; the nursery's own pipes are not for that process.

    A word that is made up for this job comes before the reply: the learner's code may write into the pipe too.
    """
    word = secrets.token_hex(8).encode()
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in range(3):  # what the learner's code prints goes nowhere
                os.dup2(nothing, number)
            for pipe in (end, *pipes):
                os.close(pipe)
            reply = json.dumps(_done(job)).encode()
            with os.fdopen(begin, "wb") as out:
                out.write(word + reply)
        os._exit(0)
    signal.signal(signal.SIGTERM, lambda *_: _end(child))
    os.close(begin)
    try:
        content, status = _waited(child, end, job["seconds"] + GRACE)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(end)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # and what it started
    if content:
        try:
            return {"reply": json.loads(content.removeprefix(word))} if content.startswith(word) else {"ended": FORGED}
        except (ValueError, RecursionError):
            return {"ended": FORGED}
    return {"ended": _late(job) if status is None else _how(os.waitstatus_to_exitcode(status))}


def _end(child: int) -> None:
    """End this process with what is under way."""
    _killed(child)
    os._exit(0)


def _killed(child: int) -> None:
    """Kill a child and what it started, and wait for its end, if it has not been waited for."""
    for kill in (os.killpg, os.kill):  # it may not yet have a group of its own
        with suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)


def _waited(child: int, pipe: int, seconds: float) -> tuple[bytes, int | None]:
    """What a child wrote until it ended, and its status; `None` where it was killed because its time was over."""
    content, deadline, status = bytearray(), time.monotonic() + seconds, None
    try:
        while (left := deadline - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
            more = os.read(pipe, 65_536)
            content += more
            if len(content) > LARGEST:
                return bytes(content), None
            if not more:
                break
        while time.monotonic() < deadline:  # its end may come long after that of what it writes
            done, found = os.waitpid(child, os.WNOHANG)
            if done:
                status = found
                break
            time.sleep(0.001)
        return bytes(content), status
    finally:
        if status is None:
            _killed(child)


def main() -> None:
    """The command: jobs come from standard input, replies go to standard output, which nobody else writes to."""
    import_module("matplotlib.pyplot")  # here, once: what is being graded may not write where it keeps its fonts
    jobs, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1) if hasattr(os, "fork") else (0, 1, 2):
        os.dup2(nothing, number)
    serve(jobs, replies)


if __name__ == "__main__":
    main()
