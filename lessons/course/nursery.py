"""A process for each answer that is judged, which may end as badly as it likes.

`Nursery` starts `python -m course.nursery`, in bubblewrap where that may run. That process imports the judges once, and
forks for each job (to read a notebook, to mark an answer), so that a fresh process takes milliseconds. A job is a line
of JSON, and so is the reply: a text says how the job's process ended without one.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import Any

from . import answers, guard
from .exercise import exercises
from .failures import said
from .limits import Endless, within
from .marking import STOPPED, mark
from .reading import Piece, of_the_course, read
from .sources import LESSONS, number_of, sources

GRACE = 1.0  # seconds beyond what an answer may take: the limits of its calls come first
LARGEST = 16_000_000  # bytes of a reply
READING = 60.0  # seconds in which a notebook must be read
FORGED = "it writes into what it does not own"
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),  # a fork keeps no thread
    "MPLBACKEND": "Agg",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TRITON_INTERPRET": "1",
    "CUDA_VISIBLE_DEVICES": "",  # a fork cannot use a GPU, and marks are the same on all
    "COURSE_RECORD": "",
}


class Nursery:
    """The process that forks; use it as a context. `guard` names what guards the forks.

    Raises `ValueError` where nothing does, unless the notebooks are `trusted`.
    """

    def __init__(self, trusted: bool = False) -> None:
        if not hasattr(os, "fork"):
            raise ValueError("grading needs a system that can fork a process: Linux, macOS, or Linux on Windows (WSL)")
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="grading-"))
        self.front, found = guard.found(self.folder)
        self.guard = found or "nothing"
        self.process: subprocess.Popen[str] | None = None
        if not (found or trusted):
            os.rmdir(self.folder)
            raise ValueError(
                "nothing here keeps a notebook from doing what you may do: install bubblewrap, grade on a Linux that "
                "has Landlock, or in a container; --trusted grades all the same"
            )

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        subprocess.run(["rm", "-rf", self.folder], stderr=subprocess.DEVNULL)  # however deep its folders lie

    def read(self, path: str, named: str | None) -> dict[str, Any]:
        """What `reading.read` says of a notebook."""
        reply = self._reply(READING, "read", os.path.abspath(path), named)
        return {"lesson": named, "why": f"cannot be read: {reply}"} if isinstance(reply, str) else reply

    def mark(
        self, lesson: str, name: str, pieces: list[Piece], standing_in: list[str], seconds: float
    ) -> tuple[str, str]:
        """What `marking.mark` says of an answer, all of which may take `seconds`."""
        match self._reply(seconds, "mark", lesson, name, pieces, standing_in, seconds):
            case [str(state), str(why)]:
                return state, why
            case str(how):
                return STOPPED, how
        return STOPPED, FORGED  # the process ran the learner's code, and so may say anything

    def _reply(self, *job: Any) -> Any:
        """What `done` returns."""
        if self.process is None:
            path = os.pathsep.join([str(LESSONS), *filter(None, sys.path)])
            self.process = subprocess.Popen(
                [*self.front, sys.executable, "-W", "ignore", "-m", "course.nursery", self.folder],
                cwd=LESSONS,
                env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "TMPDIR": self.folder},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the one who waits
            )
            if not self.process.stdout.readline():  # type: ignore[union-attr]
                raise OSError("the process that judges does not start")
        with suppress(BrokenPipeError):
            print(json.dumps(job), file=self.process.stdin, flush=True)
        if line := self.process.stdout.readline():  # type: ignore[union-attr]
            return json.loads(line)
        self._end()
        return "it ends the process that judges it"  # where the guard leaves signals to others

    def _end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.communicate()
            self.process = None


# --- In the process that forks ----------------------------------------------------------------------------------


def main(root: str) -> None:
    """Print a first line, and then a reply to each line of standard input; the jobs' folders lie in `root`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # which ends what is under way, too
    guard.adopt()
    print(flush=True)
    for line in sys.stdin:
        print(json.dumps(done(root, *json.loads(line))), flush=True)


def done(root: str, seconds: float, kind: str, *arguments: Any) -> Any:
    """What `mark` or `read` returns in a fork, or as a text how that ended without a reply."""
    with suppress(Exception):  # import and find out, once for all forks, what they need; they meet a mistake again
        if kind == "mark":
            exercises(arguments[0])
        else:
            of_the_course(next(source for source in sources() if number_of(source) == arguments[1]))
    folder, (reader, writer) = tempfile.mkdtemp(dir=root), os.pipe()
    fork, reply, how = os.fork(), b"", ""
    if fork == 0:
        with suppress(BaseException):
            work(folder, writer, kind, *arguments)
        os._exit(0)
    try:
        os.close(writer)
        with open(reader, "rb") as replies:
            reply = within(seconds + GRACE, lambda: replies.readline(LARGEST))
    except Endless as endless:
        how = str(endless)
    finally:
        status = end(fork)
        with suppress(RecursionError):  # a folder that lies a thousand deep goes at the end
            shutil.rmtree(folder, ignore_errors=True)
    try:
        return json.loads(reply) if reply else how or _how(status)
    except (ValueError, RecursionError):
        return FORGED


def end(fork: int) -> int:
    """Kill a fork, and what it started until there is nothing more: whose parent has ended becomes this process's
    child. Returns the fork's status, or the negative number of the signal that ended it."""
    import psutil  # here: who asks for their progress need not have it

    for kill in (os.killpg, os.kill):  # it may not yet have a group of its own
        with suppress(ProcessLookupError):
            kill(fork, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    with suppress(ChildProcessError):  # there is none
        while True:
            os.waitpid(-1, os.WNOHANG)
            for each in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    each.kill()
    return status


def _how(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return "it ends Python itself: a function ends with `return`"
    if status == -signal.SIGKILL:
        return "it was killed by the system: does it take too much memory?"
    name = {-number: number.name for number in signal.Signals}.get(status, f"signal {-status}")
    return f"it crashes Python itself ({name})"


def work(folder: str, writer: int, kind: str, *arguments: Any) -> None:
    """What a fork does: guard itself, read or mark, and write the reply."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # there goes what the learner's code prints
        os.dup2(nowhere, number)
    try:
        os.environ |= {answers.FOLDER: f"{folder}/answers", "TMPDIR": folder, "TRITON_CACHE_DIR": folder}
        tempfile.tempdir = None
        os.chdir(folder)
        os.symlink(LESSONS / "weights", "weights")  # what a notebook reads, it reads from there
        guard.limit()
        guard.lock(folder)
        reply = mark(*arguments) if kind == "mark" else read(*arguments)
    except BaseException as problem:
        reply = f"{type(problem).__name__}: {said(problem)}"
    with open(writer, "w") as replies:
        print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main(sys.argv[1])
