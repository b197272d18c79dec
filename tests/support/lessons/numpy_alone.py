"""Runs a file in a Python like that of a browser: NumPy is its only package, and it has no threads or processes.

    python numpy_alone.py FILE ARGUMENT …

With --pictures before the file, matplotlib and IPython are there too.
"""

import runpy
import sys
import threading
from collections.abc import Collection
from typing import Any

import numpy as np  # noqa: F401 - before anything is refused

OURS = {"numpy", "minitransformer", "course", "support", "kernels", "after", "paper", "study"}
PICTURES = {"matplotlib", "mpl_toolkits", "contourpy", "PIL", "IPython"}
BROWSER_LACKS = {
    *("_multiprocessing", "_posixshmem", "_posixsubprocess", "_ssl", "fcntl", "grp", "msvcrt", "pwd", "resource"),
    *("syslog", "termios"),
}


class Refused:
    """Finds no module but those that are allowed: it stands before the finders of `sys.meta_path`."""

    def __init__(self, allowed: Collection[str]) -> None:
        self.allowed = {*allowed, *sys.stdlib_module_names} - BROWSER_LACKS

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] not in self.allowed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def no_thread(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def like_a_browser(pictures: bool) -> None:
    """Take away from this process what a browser lacks."""
    if pictures:
        import IPython.display  # noqa: F401 - with all that it needs, as the next one
        import matplotlib.pyplot  # noqa: F401
    for name in BROWSER_LACKS & sys.modules.keys():
        del sys.modules[name]
    finders: list[Any] = sys.meta_path
    finders.insert(0, Refused(OURS | PICTURES if pictures else OURS))
    setattr(threading.Thread, "start", no_thread)  # noqa: B010
    sys.platform = "emscripten"


if __name__ == "__main__":
    pictures = sys.argv[1] == "--pictures"
    del sys.argv[: 1 + pictures]
    like_a_browser(pictures)
    runpy.run_path(sys.argv[0], run_name="__main__")
