"""The check that no output replaces an input, made before anything is read."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

STANDARD_INPUT, STANDARD_OUTPUT = 0, 1


def check_output(option: str, output: str | Path | int | None, inputs: Iterable[str | Path | int | None]) -> None:
    """Raise ValueError if `output` is one of the files that are read, by whatever name or link.

    inputs: files, folders whose files are all read, or descriptors; None stands for an option that was not given. A
    device such as /dev/null, which writing does not replace, may be both input and output.
    """
    if output is None:
        return
    for path in (path for each in inputs if each is not None for path in _files(each)):
        if is_same_file(path, output):
            name = "standard input" if path == STANDARD_INPUT else path
            if output == STANDARD_OUTPUT:
                raise ValueError(f"{option} goes into what is read, {name}")
            raise ValueError(f"{option} {output} would replace what is read, {name}: choose another name")


def is_same_file(first: str | Path | int, second: str | Path | int) -> bool:
    """Return True if two names lead to one file; False if one leads to no file, or to a device, a pipe or a socket."""
    return any(
        os.path.samestat(one, other) and stat.S_ISREG(one.st_mode)
        for one in _statuses(first)
        for other in _statuses(second)
    )


def _statuses(name: str | Path | int) -> Iterator[os.stat_result]:
    """The file that a name leads to for the system, and for `Path`, which accepts "model/" and "missing/../model"."""
    for each in [name] if isinstance(name, int) else [name, os.path.realpath(Path(name))]:
        with suppress(OSError, ValueError):
            yield os.stat(each)


def _files(source: str | Path | int) -> list[str | Path | int]:
    if isinstance(source, int) or not os.path.isdir(source):
        return [source]
    return list(Path(source).iterdir())
