"""What somebody else's code may not do in this process: write outside a folder, start processes, reach the network.

It is a guard against accidents and pranks, not a prison: Python tells of what it is about to do (`sys.addaudithook`),
and this refuses. Code in C that Python does not know of is not seen, but Linux lets it write nowhere else.
"""

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None

GIGABYTES = 3.0  # of memory, beyond what the process has
LARGEST_FILE = 16_000_000  # bytes
MOST_CHANGES = 500  # of files and folders; so few can neither fill a disk nor be nested too deep to be removed
FOLDER = "COURSE_GUARD"  # names the folder that the process beside may write into

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {  # of each event, where its paths stand among the arguments, each with the folder that it is relative to
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.chflags": ((0, None),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
}
NAMES = {  # the same, for what is done to a name in a folder, wherever it leads if it is a link
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
}
PROCESSES = "start processes"
SIGNALS = "send signals to other processes"
NETWORK = "use the network"
FOREIGN = "call C by itself"
LIMITS = "change its limits"
REFUSED = {  # events, and what they are about
    **dict.fromkeys(("os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system"), PROCESSES),
    **dict.fromkeys(("os.startfile", "subprocess.Popen", "pty.spawn"), PROCESSES),
    **dict.fromkeys(("os.kill", "os.killpg"), SIGNALS),
    **dict.fromkeys(("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"), NETWORK),
    **dict.fromkeys(("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"), NETWORK),
    **dict.fromkeys(("ctypes.dlopen", "ctypes.dlsym", "ctypes.dlsym/handle"), FOREIGN),
    **dict.fromkeys(("resource.setrlimit", "resource.prlimit"), LIMITS),
}
SILENT = {  # functions of which Python does not tell
    ("_posixsubprocess", "fork_exec"): PROCESSES,  # which `multiprocessing` calls
    ("subprocess", "_fork_exec"): PROCESSES,
    ("signal", "pidfd_send_signal"): SIGNALS,
}

CREATE_RULESET, ADD_RULE, RESTRICT_SELF, NO_NEW_PRIVILEGES = 444, 445, 446, 38  # Linux's numbers, for Landlock
MAY_WRITE, MAY_CHANGE = 1 << 1, 0b1_1111_1111 << 4 | 1 << 1  # to remove and to make whatever a folder can hold
MAY_MOVE, MAY_CUT = 1 << 13, 1 << 14  # known to later versions


def guard(folder: Path) -> list[str]:
    """From now on this process writes only into `folder`. What it tries to do to files outside is put into the list.

    `beside` may start its process all the same, which guards itself.
    """
    inside, changes, tried = os.path.realpath(folder), 0, list[str]()
    os.environ[FOLDER] = inside

    def refuse(what: str) -> None:
        raise PermissionError(f"what is graded may not {what}")

    def outside(what: str) -> None:
        tried.append(what)
        refuse(what)

    def count() -> None:
        nonlocal changes
        changes += 1
        if changes > MOST_CHANGES:
            refuse(f"change more than {MOST_CHANGES} files")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if not flags & WRITING or isinstance(path, int) or os.fsdecode(path) == os.devnull:
                return
            # os.open may mean a path that is relative to another folder, and does not say so
            if (mode is None and not os.path.isabs(os.fsdecode(path))) or not _within(path, inside):
                outside("write outside its own folder")
            count()
        elif event in CHANGES or event in NAMES:
            for place, at in CHANGES.get(event) or NAMES[event]:
                if not _within(arguments[place], inside, -1 if at is None else arguments[at], event in CHANGES):
                    outside("change files outside its own folder")
            count()
        elif event in REFUSED:
            what = REFUSED[event]
            allowed = (what is SIGNALS and arguments[0] == os.getpid()) or (what is FOREIGN and not _is_learners())
            if not allowed and not _is_beside():
                refuse(what)

    def refused(what: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if not _is_beside():
                refuse(what)
            return function(*arguments, **options)

        return call

    for (name, function), what in SILENT.items():
        with contextlib.suppress(ImportError, AttributeError):  # some systems have not all of them
            module = import_module(name)
            setattr(module, function, refused(what, getattr(module, function)))
    _lock(inside)
    sys.addaudithook(hook)
    return tried


def _lock(folder: str) -> None:
    """Where the system is a Linux that has Landlock, its kernel refuses all writing outside the folder."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    version = libc.syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:
        return
    bits = MAY_CHANGE | MAY_MOVE * (version >= 2) | MAY_CUT * (version >= 3)
    rules = libc.syscall(CREATE_RULESET, struct.pack("Q", bits), 8, 0)
    for path, allowed in ((folder, bits), (os.devnull, MAY_WRITE)):
        place = os.open(path, os.O_PATH)
        libc.syscall(ADD_RULE, rules, 1, struct.pack("=Qi", allowed, place), 0)
        os.close(place)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    libc.syscall(RESTRICT_SELF, rules, 0)
    os.close(rules)


def limit(seconds: float) -> None:
    """Bound the memory, the files and, as a last resort, the processor's time of this process."""
    if resource is None:
        return
    memory = _virtual_bytes()
    bounds = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
        resource.RLIMIT_CPU: int(2 * seconds) + 60,
        **({resource.RLIMIT_AS: memory + int(GIGABYTES * 1e9)} if memory else {}),
    }
    for kind, bound in bounds.items():
        with contextlib.suppress(OSError, ValueError):  # a stricter bound is there already
            resource.setrlimit(kind, (bound, bound))


def _virtual_bytes() -> int:
    """The memory that this process has mapped; 0 where that is not told."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _within(path: Any, folder: str, relative_to: Any = -1, follow: bool = True) -> bool:
    """Whether a path lies in the folder, or is a file that is open already; with `follow`, where its link leads, which
    may be the folder itself: a temporary file without a name is made by opening it.
    """
    if isinstance(path, int):
        return True
    path = os.fsdecode(path)
    if relative_to not in (-1, None) and not os.path.isabs(path):
        try:
            path = os.path.join(os.readlink(f"/proc/self/fd/{relative_to}"), path)
        except OSError:
            return False
    head, name = os.path.split(path.rstrip(os.sep))
    place = os.path.realpath(path) if follow or name in ("", ".", "..") else os.path.join(os.path.realpath(head), name)
    return place.startswith(folder + os.sep) or (follow and place == folder)


def _is_beside() -> bool:
    """Whether it is `beside` that does this."""
    beside = getattr(sys.modules.get("course.beside"), "beside", None)
    return beside is not None and any(code is beside.__code__ for code in _callers())


def _is_learners() -> bool:
    """Whether code that has no file, as that of a cell, calls a library of C; a package such as PyTorch may."""
    calling = (code.co_filename for code in _callers() if code.co_filename not in (__file__, ctypes.__file__))
    return next(calling, "").startswith("<")


def _callers() -> Iterator[CodeType]:
    """The code that is running, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back
