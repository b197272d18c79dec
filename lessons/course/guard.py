"""What somebody else's code may not do in this process: write outside a folder, start processes, reach the network.

It is a guard against accidents and pranks, not a prison: Python tells of what it is about to do (`sys.addaudithook`),
and this refuses. Code in C that Python does not know of is not seen.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None

GIGABYTES = 3.0  # of memory, beyond what the process has
LARGEST_FILE = 64_000_000  # bytes
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
    "sqlite3.connect": ((0, None),),
}
NAMES = {  # the same, for what is done to a name in a folder, wherever it leads if it is a link
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
}
PROCESSES = {
    *("os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system", "os.startfile"),
    *("subprocess.Popen", "pty.spawn"),
}
OTHERS = {"os.kill", "os.killpg"}
NETWORK = {
    *("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"),
    *("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"),
}
FOREIGN = {"ctypes.dlopen", "ctypes.dlsym", "ctypes.dlsym/handle"}


def guard(folder: Path, foreign: bool = False) -> None:
    """From now on this process writes only into `folder`. With `foreign` it may load libraries of C.

    `beside` may start its process all the same, which guards itself.
    """
    inside = os.path.realpath(folder)
    os.environ[FOLDER] = inside

    def refuse(what: str) -> None:
        raise PermissionError(f"what is graded may not {what}")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            # os.open may mean a path that is relative to another folder, and does not say so
            if flags & WRITING and not (_within(path, inside) and (mode is not None or _absolute(path))):
                refuse("write outside its own folder")
        elif event in CHANGES or event in NAMES:
            for place, at in CHANGES.get(event) or NAMES[event]:
                if not _within(arguments[place], inside, -1 if at is None else arguments[at], event in CHANGES):
                    refuse("change files outside its own folder")
        elif event in PROCESSES:
            if not _is_beside():
                refuse("start processes")
        elif event in OTHERS:
            if arguments[0] != os.getpid() and not _is_beside():
                refuse("send signals to other processes")
        elif event in NETWORK:
            refuse("use the network")
        elif event in FOREIGN and not foreign and not _is_beside():
            refuse("call C by itself")

    _watch_forks(refuse)
    sys.addaudithook(hook)


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
    """Whether a path lies in the folder, or is a file that is open already; with `follow`, where its link leads."""
    if isinstance(path, int):
        return True
    path = os.fsdecode(path)
    if path == os.devnull:
        return True
    if relative_to not in (-1, None) and not os.path.isabs(path):
        try:
            path = os.path.join(os.readlink(f"/proc/self/fd/{relative_to}"), path)
        except OSError:
            return False
    head, name = os.path.split(path.rstrip(os.sep))
    place = os.path.realpath(path) if follow or name in ("", ".", "..") else os.path.join(os.path.realpath(head), name)
    return (place + os.sep).startswith(folder + os.sep)


def _absolute(path: Any) -> bool:
    return isinstance(path, int) or os.path.isabs(os.fsdecode(path))


def _is_beside() -> bool:
    """Whether it is `beside` that does this."""
    beside = getattr(sys.modules.get("course.beside"), "beside", None)
    frame = sys._getframe()
    while beside is not None and frame is not None:
        if frame.f_code is beside.__code__:
            return True
        frame = frame.f_back
    return False


def _watch_forks(refuse: Any) -> None:
    """`multiprocessing` starts processes by a function of which Python does not tell."""
    try:
        import _posixsubprocess
    except ModuleNotFoundError:  # on Windows
        return
    start = _posixsubprocess.fork_exec

    def fork_exec(*arguments: Any) -> int:
        if not _is_beside():
            refuse("start processes")
        return start(*arguments)

    _posixsubprocess.fork_exec = fork_exec
