"""Settings of the C library's allocator for the large arrays of a step, and the memory that the process may use."""

import ctypes
import os
import platform
import sys
from pathlib import Path

try:
    import resource
except ImportError:  # Windows has none
    resource = None

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGEST_MMAP_THRESHOLD = 32 << 20
"""In bytes: the largest threshold that glibc accepts."""

CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files in which Linux states the memory limit of a container."""


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next step; return True if that worked, False on other systems.

    By default glibc returns large freed blocks to the system, which must then provide zeroed pages again for the next
    arrays. With this setting the process keeps the memory of its peak. The peak itself is lower, because all threads
    share one arena: memory that one thread frees can be used by another.
    """
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    one_arena, large_blocks = mallopt(M_ARENA_MAX, 1), mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
    return all((one_arena, large_blocks, mallopt(M_TRIM_THRESHOLD, 2**31 - 1)))


def memory_limit() -> int | None:
    """Return the bytes that this process may use: the machine's memory or a limit of the system; None if unknown."""
    limits = []
    if hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if resource is not None:
        limits.append(resource.getrlimit(resource.RLIMIT_AS)[0])  # negative: no limit
    for path in CONTROL_GROUPS:
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min((limit for limit in limits if limit > 0), default=None)
