"""Runs a file in a Python like that of a browser: NumPy is its only package, and it has no threads or processes.

    python numpy_alone.py [--with=MODULE,MODULE …] FILE ARGUMENT …

With these modules and all that they import, but no other package.
"""

import runpy
import sys
import threading
from collections.abc import Collection
from importlib import import_module
from typing import Any

OURS = "minitransformer", "course", "support", "kernels", "after", "paper", "study"
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


def like_a_browser(packages: Collection[str]) -> None:
    """Take away from this process what a browser lacks."""
    for name in packages:
        import_module(name)
    for name in BROWSER_LACKS & sys.modules.keys():
        del sys.modules[name]
    finders: list[Any] = sys.meta_path
    finders.insert(0, Refused([*OURS, *(name.partition(".")[0] for name in packages)]))
    setattr(threading.Thread, "start", no_thread)  # noqa: B010
    sys.platform = "emscripten"


if __name__ == "__main__":
    more = sys.argv[1].removeprefix("--with=").split(",") if sys.argv[1].startswith("--with=") else []
    del sys.argv[: 1 + bool(more)]
    like_a_browser(["numpy", *more])
    runpy.run_path(sys.argv[0], run_name="__main__")
