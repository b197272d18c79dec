"""No output takes the place of an input: asked before anything is read."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

STANDARD_INPUT = 0


def check_output(option: str, output: str | Path | None, inputs: Iterable[str | Path | int | None]) -> None:
    """Raise ValueError where `output` is one of the files that are read, whatever name or link leads to it.

    inputs: files, folders of which every file is read, descriptors; None stands for an option that was not given.
    What writing does not replace, such as /dev/null, may be both.
    """
    if output is None:
        return
    for path in (path for each in inputs if each is not None for path in _files(each)):
        if is_same_file(path, output):
            name = "standard input" if path == STANDARD_INPUT else path
            raise ValueError(f"{option} {output} would replace what is read, {name}: choose another name")


def is_same_file(first: str | Path | int, second: str | Path | int) -> bool:
    """Whether two names lead to one file, devices apart; False where one leads to none."""
    try:
        status, other = os.stat(first), os.stat(second)
    except (OSError, ValueError):
        return False
    return os.path.samestat(status, other) and not stat.S_ISCHR(status.st_mode)


def _files(source: str | Path | int) -> list[str | Path | int]:
    if isinstance(source, int) or not os.path.isdir(source):
        return [source]
    return list(Path(source).iterdir())
