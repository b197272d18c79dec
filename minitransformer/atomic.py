"""Files that appear whole or not at all, whatever kills the program while it writes."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

SUFFIX = ".tmp"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file beside `path` that takes its name once the block has ended and every byte is on disk.

    The folder is made where it is missing. An error inside the block leaves `path` as it was and removes the
    unfinished file; a kill leaves at worst a `*.tmp` beside it. Raises OSError, naming `path` and the reason.
    """
    path = Path(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(unfinished, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, f"cannot write {path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Put a rename on disk. Only POSIX opens folders; elsewhere the system decides when."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
