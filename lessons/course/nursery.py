"""A process for each answer that is judged, which may end as badly as it likes.

`Nursery` starts `python -m course.nursery`, in bubblewrap where that may run. That process imports the judges once, and
forks for each answer, so that a fresh process takes milliseconds. What it is asked is a line of JSON with the arguments
of `mark`, and so is the reply.
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
from .marking import MARKS, STOPPED, mark
from .reading import Piece
from .sources import LESSONS

GRACE = 1.0  # seconds beyond what an answer may take: the limits of its calls come first
LARGEST = 4_000_000  # bytes of a reply
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

    def mark(
        self, lesson: str, name: str, pieces: list[Piece], standing_in: list[str], seconds: float
    ) -> tuple[str, str]:
        """What `marking.mark` says of an answer, all of which may take `seconds`, or how its process ended."""
        if self.process is None:
            self._start()
        if line := self._line([lesson, name, pieces, standing_in, seconds]):
            state, why = json.loads(line)
            return state, why
        self._end()
        return STOPPED, "it ends the process that judges it"  # where the guard leaves signals to others

    def _start(self) -> None:
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
        if not self._line():
            raise OSError("the process that judges does not start")

    def _line(self, asked: list[Any] | None = None) -> str:
        """What the process replies; nothing where it has ended."""
        process: Any = self.process
        with suppress(BrokenPipeError):
            print(json.dumps(asked), file=process.stdin, flush=True)
        return process.stdout.readline()

    def _end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.communicate()
            self.process = None


# --- In the process that forks ----------------------------------------------------------------------------------


def main(root: str) -> None:
    """Reply to each line of standard input, with null to null; the answers' folders lie in `root`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # which ends what is under way, too
    guard.adopt()
    for line in sys.stdin:
        answer = json.loads(line)
        print(json.dumps(answer and marked(root, *answer)), flush=True)


def marked(root: str, *answer: Any) -> tuple[str, str]:
    """What `mark` returns of an answer in a fork, or how that ended."""
    lesson, seconds = answer[0], answer[-1]
    with suppress(Exception):  # whatever it is, the fork meets it again, and says so
        exercises(lesson)  # imported once for all forks
    folder, (reader, writer) = tempfile.mkdtemp(dir=root), os.pipe()
    fork, reply, how = os.fork(), b"", ""
    if fork == 0:
        with suppress(BaseException):
            work(folder, writer, *answer)
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
    with suppress(ValueError, RecursionError):
        match json.loads(reply):
            case [str(state), str(why)] if state in MARKS:
                return state, why
    if reply:
        how = "it writes into what it does not own"  # the process ran the learner's code, and so may say anything
    elif status == -signal.SIGKILL:
        how = how or "it was killed by the system: does it take too much memory?"
    elif status < 0:
        how = f"it crashes Python itself ({signal.strsignal(-status)})"
    else:
        how = "it ends Python itself: a function ends with `return`"
    return STOPPED, how


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


def work(folder: str, writer: int, *answer: Any) -> None:
    """What a fork does: guard itself, mark, and write the reply."""
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
        reply = mark(*answer)
    except BaseException as problem:
        reply = STOPPED, f"{type(problem).__name__}: {said(problem)}"
    with open(writer, "w") as replies:
        print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main(sys.argv[1])
