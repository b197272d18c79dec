"""How the C library's allocator treats the large arrays that a training step makes and drops."""

import ctypes
import platform

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGEST_MMAP_THRESHOLD = 32 << 20
"""Bytes: glibc takes no more."""


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
