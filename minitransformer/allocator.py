"""How much memory there is, and how the C library's allocator treats the large arrays that a step makes and drops."""

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
"""Bytes: glibc takes no more."""

CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says what a container may have."""


def keep_freed_memory() -> bool:
    """Tells glibc to keep freed memory for the next step; `True` where that worked, `False` on other systems.

    By default glibc gives large freed blocks back to the system, which hands them out again page by page, each zeroed
    on first touch. The process then keeps its peak memory; but that peak is lower, since all threads share one arena:
    what one frees another can use.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    settings = {
        M_ARENA_MAX: 1,
        M_MMAP_THRESHOLD: LARGEST_MMAP_THRESHOLD,
        M_TRIM_THRESHOLD: 2**31 - 1,
    }
    mallopt = ctypes.CDLL(None).mallopt
    accepted = [mallopt(option, value) for option, value in settings.items()]
    return all(accepted)


def memory_limit() -> int | None:
    """Bytes that this process may come to: the machine's, or fewer where the system sets a limit; None if unknown."""
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
