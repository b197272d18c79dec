"""Runs commands in forks of this process, which has imported everything: each in a folder of its own, under limits.

A command starts in 0.4 s and its fork in some milliseconds, so that hundreds can be tried in the time of a test. A fork
may not write outside its folder, reach the network or start programs; it has so much memory, processor time and time.
"""

import errno
import faulthandler
import gc
import os
import re
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.processes import in_a_fork

from minitransformer import cli
from paper import command

MEMORY = 4 << 30
"""Bytes of address space that a command may come to need."""

SECONDS, AT_WORK = 90, 20
"""Until a command counts as one without end, on the clock and on the processor: a hundred times what most take."""

FILE_SIZE = 64 << 20
WORKERS = 2
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
OUTSIDE = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
DEVICES = ("/dev/null", "/dev/full", "/dev/stdout", "/dev/stderr")


@dataclass(frozen=True)
class Outcome:
    """The end of a command.

    status   None for one that had to be stopped
    denied   what it may not do, and tried
    changed  the files that were there and are not as they were
    """

    status: int | None
    out: str
    err: str
    denied: list[str]
    changed: list[str]


@dataclass(frozen=True)
class Attack:
    """A command, what it finds, and how to judge what it makes of it.

    judge           says what is wrong with how it ended, or None; it is called in the command's folder
    place           puts more files into its folder
    stdin           what it is given as standard input; None: closed
    stdout, stderr  file, closed or full
    """

    argv: Sequence[str]
    judge: "Callable[[Attack, Outcome], str | None]"
    place: Callable[[Path], None] = lambda folder: None
    stdin: bytes | None = b""
    stdout: str = "file"
    stderr: str = "file"

    def __str__(self) -> str:
        words = " ".join(map(repr, self.argv))
        return f"{words:.2000}\n(stdin {self.stdin!r:.60}, stdout {self.stdout}, stderr {self.stderr})"


def run_all(attacks: Sequence[Attack], world: Path, base: Path) -> Iterator[tuple[int, Outcome, str | None]]:
    """Run every attack in a copy of the folder `world` in the folder `base`, some at a time.

    Yields their numbers, how they ended, and what is wrong with that.
    """
    gc.collect()
    gc.freeze()  # so that no fork writes to what they share
    waiting, running = list(range(len(attacks)))[::-1], dict[int, int]()
    while waiting or running:
        while waiting and len(running) < WORKERS:
            number = waiting.pop()
            folder, attack = base / str(number), attacks[number]
            folder.mkdir()
            running[in_a_fork(lambda attack=attack, folder=folder: _be_the_command(attack, world, folder))] = number
        child, ended = os.wait()
        number = running.pop(child)
        folder, attack = base / str(number), attacks[number]
        outcome = _outcome(folder, os.waitstatus_to_exitcode(ended), world)
        os.chdir(folder / "world")
        yield number, outcome, common_complaint(attack, outcome) or attack.judge(attack, outcome)
        os.chdir(base)
        shutil.rmtree(folder)


def common_complaint(attack: Attack, outcome: Outcome) -> str | None:
    """Return the complaint about how any command ended, whatever it was given, or None."""
    status, err = outcome.status, outcome.err
    if status is None:
        return "it did not end"
    if "Traceback" in err:
        return f"it ended with status {status} and a traceback"
    if status not in (0, 2, 130):
        return f"its status is {status}"
    said = [line for line in re.split("[\r\n]", err) if line and not re.search(r"%\||\[\d\d:\d\d, ", line)]  # bars
    begin = "paper: error: " if attack.argv[:1] == ["paper"] else "minitransformer: error: "
    if status == 2 and attack.stderr == "file" and (len(said) != 1 or not said[0].startswith(begin)):
        return f"its error is not one line but {len(said)}"
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", outcome.out + err.replace("\r", "")):
        return "a control character reached the terminal"
    return None


def _outcome(folder: Path, status: int, world: Path) -> Outcome:
    out, err, denied = ((folder / name).read_text("utf-8", "replace") for name in ("out", "err", "denied"))
    names = [str(path.relative_to(world)) for path in world.rglob("*")]
    changed = [name for name in names if _content(folder / "world" / name) != _content(world / name)]
    return Outcome(None if status < 0 else status, out, err, denied.splitlines(), changed)


def _content(path: Path) -> bytes | str | None:
    if path.is_symlink():
        return os.readlink(path)
    return path.read_bytes() if path.is_file() else None


def _be_the_command(attack: Attack, world: Path, folder: Path) -> int:
    """Its status, as Python would end it; what is killed at a limit says in `err` where it was."""
    shutil.copytree(world, folder / "world", symlinks=True)
    attack.place(folder / "world")
    _take_streams(attack, folder)
    os.chdir(folder / "world")
    traces = open(folder / "err", "ab")  # noqa: SIM115 - until the end
    for number in (signal.SIGXCPU, signal.SIGALRM):
        faulthandler.register(number, file=traces, chain=True)
    signal.alarm(SECONDS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limits = {"AS": taken + MEMORY, "CPU": AT_WORK, "FSIZE": FILE_SIZE, "CORE": 0}
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value + 5))
    _stay_inside(folder / "world", folder / "denied")
    sys.argv = ["minitransformer", *attack.argv]
    try:
        return command.main(attack.argv[1:]) if attack.argv[:1] == ["paper"] else cli.main(attack.argv)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def _take_streams(attack: Attack, folder: Path) -> None:
    (folder / "in").write_bytes(attack.stdin or b"")
    for name in ("out", "err", "denied"):
        (folder / name).touch()
    os.dup2(os.open(folder / "in", os.O_RDONLY), 0)
    os.dup2(os.open("/dev/full" if attack.stdout == "full" else folder / "out", os.O_WRONLY), 1)
    os.dup2(os.open(folder / "err", os.O_WRONLY | os.O_APPEND), 2)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    for name in ("stdin", "stdout", "stderr"):
        if getattr(attack, name) in (None, "closed"):
            getattr(sys, name).close()
            setattr(sys, name, None)  # as Python has it


def _stay_inside(folder: Path, denied: Path) -> None:
    """Refuse, as a system does where rights are missing, what reaches outside the folder; and note it in `denied`."""
    inside, notes = os.path.realpath(folder), os.open(denied, os.O_WRONLY | os.O_APPEND)

    def note(event: str, what: object) -> None:
        os.write(notes, f"{event} {what!r}\n".encode("utf-8", "replace"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            reached = [(path, os.path.realpath)] if flags & WRITES and not isinstance(path, int) else []
        elif event in CHANGES:  # of a link itself, not of what it points to
            reached = [(path, _real_name) for path in arguments[:2] if isinstance(path, str | bytes | os.PathLike)]
        elif event.startswith(OUTSIDE):
            note(event, arguments[-1])
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
        else:
            return
        for path, real in reached:
            target = real(os.fsdecode(path))
            if target != inside and target not in DEVICES and not target.startswith(inside + os.sep):
                note(event, target)
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    sys.addaudithook(hook)


def _real_name(path: str) -> str:
    folder, name = os.path.split(path.rstrip(os.sep))
    return os.path.join(os.path.realpath(folder), name)
