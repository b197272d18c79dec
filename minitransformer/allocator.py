"""How the C library's allocator treats the large arrays that a step makes and drops, and how much memory there is."""

import ctypes
import os
import platform
from pathlib import Path

try:
    import resource
except ImportError:  # Windows has none
    resource = None

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGEST_MMAP_THRESHOLD = 32 << 20
"""Bytes; glibc accepts no more."""

CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files in which Linux gives the limit of a container."""


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next step; True if that worked, False on other systems.

    By default glibc gives large freed blocks back to the system, which hands them out again page by page, each zeroed
    on first touch. The process then keeps its peak memory; but that peak is lower, since all threads share one arena:
    what one frees another can use.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    one_arena, large_blocks = mallopt(M_ARENA_MAX, 1), mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
    return all((one_arena, large_blocks, mallopt(M_TRIM_THRESHOLD, 2**31 - 1)))


def memory_limit() -> int | None:
    """The bytes that this process may use: the machine's memory, or a limit that the system sets; None if unknown."""
    limits = []
    if hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if resource is not None:
        limits.append(resource.getrlimit(resource.RLIMIT_AS)[0])  # negative: none
    for path in CONTROL_GROUPS:
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min((limit for limit in limits if limit > 0), default=None)
