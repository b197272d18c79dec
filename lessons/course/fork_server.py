"""A fork server: it marks each answer in a process of its own, which the answer may hang or crash.

`ForkServer` starts `python -m course.fork_server`, in bubblewrap if that is available. The server imports the judges
once and forks for each answer, so that a new process takes milliseconds. A request is a line of JSON with the arguments
of `mark_answer`; the reply is a line with its result.
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

from . import answers, sandbox
from .exercise import exercises
from .extraction import Piece
from .failures import exception_text
from .limits import LimitExceeded, run_limited
from .marking import MARKS, STOPPED, mark_answer
from .sources import LESSONS

GRACE = 1.0  # seconds beyond an answer's limit: the limits of its calls come first
LARGEST = 4_000_000  # bytes of a reply
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),  # a fork has no other thread
    "MPLBACKEND": "Agg",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TRITON_INTERPRET": "1",
    "CUDA_VISIBLE_DEVICES": "",  # a fork cannot use a GPU, and marks are the same on all
    "COURSE_RECORD": "",
}


class ForkServer:
    """The process that forks, as a context manager; `sandbox` names the sandbox of the forks.

    Raises `ValueError` if no sandbox is available, unless the notebooks are `trusted`.
    """

    def __init__(self, trusted: bool = False) -> None:
        if not hasattr(os, "fork"):
            raise ValueError("grading needs a system that can fork a process: Linux, macOS, or Linux on Windows (WSL)")
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="grading-"))
        self.prefix, found = sandbox.find_sandbox(self.folder)
        self.sandbox = found or "nothing"
        self.process: subprocess.Popen[str] | None = None
        if not (found or trusted):
            os.rmdir(self.folder)
            raise ValueError(
                "nothing here keeps a notebook from doing what you may do: install bubblewrap, grade on a Linux that "
                "has Landlock, or in a container; --trusted grades all the same"
            )

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        subprocess.run(["rm", "-rf", self.folder], stderr=subprocess.DEVNULL)  # rmtree cannot remove very deep folders

    def mark(
        self, lesson: str, name: str, pieces: list[Piece], fallbacks: list[str], seconds: float
    ) -> tuple[str, str]:
        """Return the mark of an answer and the reason, within `seconds`, or how its process ended."""
        if self.process is None:
            self._start()
        if line := self._line([lesson, name, pieces, fallbacks, seconds]):
            state, why = json.loads(line)
            return state, why
        self._end()
        return STOPPED, "it ends the process that judges it"  # possible where the sandbox allows signals

    def _start(self) -> None:
        path = os.pathsep.join([str(LESSONS), *filter(None, sys.path)])
        self.process = subprocess.Popen(
            [*self.prefix, sys.executable, "-W", "ignore", "-m", "course.fork_server", self.folder],
            cwd=LESSONS,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "TMPDIR": self.folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only the command, which then ends the server
        )
        if not self._line():
            raise OSError("the process that judges does not start")

    def _line(self, asked: list[Any] | None = None) -> str:
        """Send a request and return the line of the reply, which is empty if the server has ended."""
        process: Any = self.process
        with suppress(BrokenPipeError):
            print(json.dumps(asked), file=process.stdin, flush=True)
        return process.stdout.readline()

    def _end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.communicate()
            self.process = None


# --- In the server ----------------------------------------------------------------------------------------------


def main(root: str) -> None:
    """Reply to each line of standard input, to null with null. Each fork gets a folder in `root`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # `mark_in_fork` then kills a fork under way
    sandbox.become_subreaper()
    for line in sys.stdin:
        answer = json.loads(line)
        print(json.dumps(answer and mark_in_fork(root, *answer)), flush=True)


def mark_in_fork(root: str, *answer: Any) -> tuple[str, str]:
    """Return the result of `mark_answer` in a fork, or how the fork ended."""
    lesson, seconds = answer[0], answer[-1]
    with suppress(Exception):  # an error occurs again in the fork, which reports it
        exercises(lesson)  # imported once for all forks
    folder, (reader, writer) = tempfile.mkdtemp(dir=root), os.pipe()
    fork, reply, how = os.fork(), b"", ""
    if fork == 0:
        with suppress(BaseException):
            run_fork(folder, writer, *answer)
        os._exit(0)
    try:
        os.close(writer)
        with open(reader, "rb") as replies:
            reply = run_limited(seconds + GRACE, lambda: replies.readline(LARGEST))
    except LimitExceeded as endless:
        how = str(endless)
    finally:
        status = kill_fork(fork)
        with suppress(RecursionError):  # folders a thousand deep are removed when the server ends
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(ValueError, RecursionError):
        match json.loads(reply):
            case [str(state), str(why)] if state in MARKS:
                return state, why
    if reply:
        how = "it writes into what it does not own"  # a forged reply: the fork runs the learner's code
    elif status == -signal.SIGKILL:
        how = how or "it was killed by the system: does it take too much memory?"
    elif status < 0:
        how = f"it crashes Python itself ({signal.strsignal(-status)})"
    else:
        how = "it ends Python itself: a function ends with `return`"
    return STOPPED, how


def kill_fork(fork: int) -> int:
    """Kill a fork and all its descendants; return its exit status, or the negative number of its signal.

    Orphaned descendants become children of this process (`become_subreaper`), so it kills its children until none is
    left.
    """
    import psutil  # here: `python -m course progress` works without it

    for kill in (os.killpg, os.kill):  # the fork may not yet have a process group of its own
        with suppress(ProcessLookupError):
            kill(fork, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    with suppress(ChildProcessError):  # until no child is left
        while True:
            os.waitpid(-1, os.WNOHANG)
            for each in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    each.kill()
    return status


def run_fork(folder: str, writer: int, *answer: Any) -> None:
    """Enter the sandbox, mark the answer, and write the reply."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # drop what the learner's code prints
        os.dup2(nowhere, number)
    try:
        os.environ |= {answers.FOLDER: f"{folder}/answers", "TMPDIR": folder, "TRITON_CACHE_DIR": folder}
        tempfile.tempdir = None
        os.chdir(folder)
        os.symlink(LESSONS / "weights", "weights")  # notebooks read the weights from their own folder
        sandbox.limit_resources()
        sandbox.restrict_writes(folder)
        reply = mark_answer(*answer)
    except BaseException as problem:
        reply = STOPPED, f"{type(problem).__name__}: {exception_text(problem)}"
    with open(writer, "w") as replies:
        print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main(sys.argv[1])
