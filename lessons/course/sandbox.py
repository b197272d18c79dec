"""A sandbox for learners' code: no writing outside a folder, no signals to other processes, no network.

Python cannot confine Python code, but Linux can: with Landlock, which a process applies to itself for good, and with
bubblewrap, a program that starts others in namespaces of their own. `lessons/teaching.md` says what each prevents.
"""

import ctypes
import os
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

GIGABYTES = 3.0  # of memory, in addition to the process's own when the limit is set
LARGEST_FILE = 16_000_000  # bytes
PROCESSES = 500  # and threads, in addition to the whole system's: the user may start programs meanwhile

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the kernel's numbers, as in linux/landlock.h
NO_NEW_PRIVILEGES, SUBREAPER, DEATH_SIGNAL = 38, 36, 1  # as in linux/prctl.h
WRITE, CHANGE, MOVE, TRUNCATE = 1 << 1, 0b1_1111_1111 << 4 | 1 << 1, 1 << 13, 1 << 14  # CHANGE: a folder's contents
BIND_AND_CONNECT, ABSTRACT_SOCKETS_AND_SIGNALS = 0b11, 0b11


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; 0 for none."""
    return max(0, ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, 1)) if sys.platform == "linux" else 0


def restrict_writes(folder: str) -> None:
    """Let this process and its children write only into `folder`, from now on, if the kernel has Landlock.

    TCP (from version 4) and signals to processes outside (from version 6) are forbidden too. Raises `OSError`.
    """
    if not (version := landlock_version()):
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def called(*arguments: object) -> int:
        if (result := libc.syscall(*arguments)) < 0:
            raise OSError(ctypes.get_errno(), "Landlock refuses a rule")
        return result

    change = CHANGE | MOVE * (version >= 2) | TRUNCATE * (version >= 3)
    handled = change, BIND_AND_CONNECT * (version >= 4), ABSTRACT_SOCKETS_AND_SIGNALS * (version >= 6)
    rules = called(CREATE_RULESET, struct.pack("3Q", *handled), 24, 0)
    for path, allowed in ((folder, change), (os.devnull, WRITE)):
        called(ADD_RULE, rules, 1, struct.pack("=Qi", allowed, os.open(path, os.O_PATH)), 0)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    called(RESTRICT_SELF, rules, 0)


def find_sandbox(folder: str) -> tuple[list[str], str]:
    """Return the prefix of a command that runs in the best sandbox here, and the sandbox's name.

    The prefix starts bubblewrap, and is empty if that may not run: then the name is that of Landlock with what it
    holds, or empty if the kernel has none.
    """
    front = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", folder, folder]
    front += ["--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--"]
    with suppress(OSError, subprocess.TimeoutExpired):
        if subprocess.run([*front, "true"], capture_output=True, timeout=10).returncode == 0:
            return front, "bubblewrap"  # some systems and containers forbid it
    version = landlock_version()
    held = ["files", *["TCP"] * (version >= 4), *["signals"] * (version >= 6)]
    return [], f"Landlock ({', '.join(held)})" if version else ""


def limit_resources() -> None:
    """Limit the memory, file sizes and processes of this process, and let it die with its parent.

    The limit on processes has no effect for root on Linux.
    """
    import resource  # here: Windows, where nothing is graded, has none

    bounds = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: LARGEST_FILE}
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        running = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
        bounds[resource.RLIMIT_AS] = pages * resource.getpagesize() + int(GIGABYTES * 1e9)
        bounds[resource.RLIMIT_NPROC] = running + PROCESSES
    for kind, bound in bounds.items():
        with suppress(ValueError):  # a stricter bound is there already
            resource.setrlimit(kind, (bound, bound))


def become_subreaper() -> None:
    """On Linux, make this process the parent of its orphaned descendants."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
