"""A process for each notebook that is graded, which may end as badly as it likes.

`Nursery` starts `python -m course.nursery`, in bubblewrap where that is installed. That process imports the judges once
and forks for each notebook, so that a fresh process takes milliseconds. The fork guards itself, reads the notebook and
judges its answers; where one of them ends it, or does not come back, the next answer gets a new fork.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any

from . import answers, guard
from .exercise import exercises
from .failures import said
from .limits import Endless, within
from .marking import mark
from .reading import of_the_course, read
from .sources import LESSONS, number_of, sources

GRACE = 1.0  # seconds beyond what an answer may take: the limits of its calls come first
START = 120.0  # seconds in which the judges must be imported
LARGEST = 4_000_000  # bytes of a reply
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

Notebook = tuple[str, str | None, str | None]
"""A notebook's path, the lesson that its name says, and the lesson whose answers are marked."""


class Ended(Exception):
    """A notebook's process ended without a reply; the message says how, as a sentence about what it did ends."""


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
        if not (found or trusted):
            os.rmdir(self.folder)
            raise ValueError(
                "nothing here keeps a notebook from doing what you may do: install bubblewrap, grade on a Linux that "
                "has Landlock, or in a container; --trusted grades all the same"
            )
        self.process: subprocess.Popen[bytes] | None = None
        self.notebook: Notebook | None = None
        self.channel = socket.socket()  # to the notebook's process

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.channel.close()
        _remove(self.folder)

    def read(self, notebook: Notebook) -> dict[str, Any]:
        """Return what `reading.read` finds, without the answers' text. Raises `Ended`."""
        return self._asked(notebook, {"seconds": READING})

    def mark(self, notebook: Notebook, name: str, standing_in: list[str], seconds: float) -> tuple[str, str]:
        """Return what `marking.mark` says of an answer, all of which may take `seconds`. Raises `Ended`."""
        match self._asked(notebook, {"name": name, "standing_in": standing_in, "seconds": seconds}):
            case [str(state), str(why)]:
                return state, why
        self._told(None)
        raise Ended(FORGED)  # the process ran the learner's code, and so may say anything

    def _asked(self, notebook: Notebook, job: dict[str, Any], again: bool = True) -> Any:
        """What the notebook's process replies to a job."""
        if notebook != self.notebook:
            self._told(notebook)
        try:
            self.channel.sendall(json.dumps(job).encode() + b"\n")
            with self.channel.makefile("rb") as replies:
                reply = within(job["seconds"] + GRACE, lambda: replies.readline(LARGEST))
            if reply:
                return json.loads(reply)
            raise BrokenPipeError
        except Endless as endless:
            how = str(endless)
        except OSError:
            time.sleep(0.1)  # the end of a process comes after that of its sockets
            how = ""
        except (ValueError, RecursionError):
            how = FORGED
        status = self._told(None)
        if status is None and again:  # what was there before may have ended the process that forks, and this one
            return self._asked(notebook, job, again=False)
        raise Ended(how or _how(status or 0))

    def _told(self, notebook: Notebook | None) -> int | None:
        """End the last notebook's process, and begin this one's.

        Returns the status of the ended one, or None where the process that forks had to be started again.
        """
        for told in range(2):
            if self.process is None:
                self._start()
            self.channel.close()
            self.notebook, (self.channel, other) = notebook, socket.socketpair()
            with suppress(OSError), other:
                socket.send_fds(self.control, [json.dumps(notebook).encode()], [other.fileno()])
                if status := self.control.recv(100):
                    return int(status) if told == 0 else None
            self._end()
        raise OSError("the process that judges does not come back")

    def _start(self) -> None:
        self.control, other = socket.socketpair()
        self.control.settimeout(START)
        path = os.pathsep.join([str(LESSONS), *filter(None, sys.path)])
        arguments = "-W", "ignore", "-m", "course.nursery", self.folder, str(other.fileno())
        with other:
            self.process = subprocess.Popen(
                [*self.front, sys.executable, *arguments],
                cwd=LESSONS,
                env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "TMPDIR": self.folder},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,  # Ctrl-C is for the one who waits
            )
        if not self.control.recv(100):
            raise OSError("the process that judges does not start")

    def _end(self) -> None:
        if self.process is not None:
            self.control.close()  # then it leaves, with all that it started
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:  # it imports, which may take long, and has started nothing yet
                self.process.kill()
                self.process.wait()
            self.process = self.notebook = None


def _how(status: int) -> str:
    """How a process ended, in words. A negative status is that of a signal, as `subprocess` has it."""
    if status >= 0:
        return "it ends Python itself: a function ends with `return`"
    if status == -signal.SIGKILL:
        return "it was killed by the system: does it take too much memory?"
    name = {-number: number.name for number in signal.Signals}.get(status, f"signal {-status}")
    return f"it crashes Python itself ({name})"


def _remove(folder: str) -> None:
    subprocess.run(["rm", "-rf", folder], stderr=subprocess.DEVNULL)  # Python cannot where folders lie a thousand deep


# --- In the process that forks ----------------------------------------------------------------------------------


def main(root: str, number: int) -> None:
    """For each notebook that the socket `number` brings fork once, and answer how the last one's process ended."""
    guard.adopt()
    control, fork, folder, status = socket.socket(fileno=number), 0, "", 0
    while True:
        control.send(str(status).encode())
        message, channels, _, _ = socket.recv_fds(control, 65_536, 1)
        if fork:
            for kill in (os.killpg, os.kill):  # it may not yet have a group of its own
                with suppress(ProcessLookupError):
                    kill(fork, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
            end_all()
            _remove(folder)
            fork = 0
        if not message:
            return
        notebook: Notebook | None = json.loads(message)
        with socket.socket(fileno=channels[0]) as channel:
            if notebook:
                with suppress(Exception):  # whatever it is, the fork meets it again, and says so
                    prepare(notebook)
                folder = tempfile.mkdtemp(dir=root)
                fork = os.fork()
                if fork == 0:
                    with suppress(BaseException):
                        control.close()
                        os.setsid()
                        os.dup2(1, 2)  # what the learner's code prints goes nowhere
                        work(notebook, folder, channel)
                    os._exit(0)


def prepare(notebook: Notebook) -> None:
    """Import and find out, once for all forks, what they need."""
    _, named, lesson = notebook
    if lesson:
        exercises(lesson)
    for source in sources():
        if number_of(source) == (lesson or named):
            of_the_course(source)


def end_all() -> None:
    """Kill what was started until there is nothing more: whose parent has ended becomes this process's child."""
    import psutil  # here: who asks for their progress need not have it

    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                each.kill()
        time.sleep(0.001)


def work(notebook: Notebook, folder: str, channel: socket.socket) -> None:
    """What a notebook's process does: guard itself, read, and judge what each line of JSON asks for."""
    path, named, lesson = notebook
    try:
        os.environ |= {answers.FOLDER: f"{folder}/answers", "TMPDIR": folder, "TRITON_CACHE_DIR": folder}
        tempfile.tempdir = None
        os.chdir(folder)
        os.symlink(LESSONS / "weights", "weights")  # what a notebook reads, it reads from there
        guard.limit()
        guard.lock(folder)
        found = read(path, named)
    except BaseException as problem:
        why = f"{type(problem).__name__}: {said(problem)}".removesuffix(": ")
        found = {"lesson": named, "why": f"cannot be read here ({why})"}
    pieces = {name: answer.pop("pieces") for name, answer in found.get("answers", {}).items()}
    for line in channel.makefile("rb"):
        job, reply = json.loads(line), found
        if lesson and "name" in job:
            reply = mark(lesson, job["name"], pieces[job["name"]], job["standing_in"], job["seconds"])
        channel.sendall(json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
