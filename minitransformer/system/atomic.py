"""Files that appear whole or not at all, even if the program is killed while it writes."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TextIO

from . import WEBASSEMBLY

SUFFIX = ".tmp"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that becomes `path` once the block has ended and every byte is on disk.

    It is written under a temporary name in the folder of `path`, which is made if it is missing, and then renamed. A
    symbolic link stays, and the file that it leads to is replaced. A device, a FIFO and this process's own standard
    output are not replaced: they get all bytes at the end of the block. An error inside the block leaves `path` as it
    was and removes the unfinished file; after a kill at worst a `*.tmp` file remains. Raises OSError, naming `path` and
    the reason.
    """
    path = Path(path)
    try:
        target = _target(path)
        with _kept(path) if target is None else _replaced(target) as file:
            yield file
    except OSError as error:
        raise OSError(error.errno, f"cannot write {path}: {error.strerror}") from error


def remove_unfinished(folder: Path, names: str) -> None:
    """Remove the files of killed processes that `unfinished` finds."""
    for path in unfinished(folder, names):
        path.unlink(missing_ok=True)


def unfinished(folder: Path, names: str) -> list[Path]:
    """Return the unfinished files of ended processes in `folder`; `names` is a regular expression of their names."""
    pattern = re.compile(rf"(?:{names})\.(?P<process>\d+){re.escape(SUFFIX)}")
    found = ((path, pattern.fullmatch(path.name)) for path in (folder.iterdir() if folder.is_dir() else ()))
    return [path for path, match in found if match and not _is_running(int(match["process"]))]


def unfinished_name(name: str) -> str:
    """Return a file's temporary name until it is complete; the number of this process is part of it."""
    return f"{name}.{os.getpid()}{SUFFIX}"


def _target(path: Path) -> Path | None:
    """Return the file to replace, or the one that a link leads to; None for a device, a FIFO, a standard stream."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    try:
        os.stat(path)
    except FileNotFoundError:
        return target
    return target if target.is_file() and _standard_stream(path) is None else None


@contextmanager
def _replaced(path: Path) -> Iterator[BinaryIO]:
    beside = path.with_name(unfinished_name(path.name))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


@contextmanager
def _kept(path: Path) -> Iterator[BinaryIO]:
    content = BytesIO()
    yield content
    stream = _standard_stream(path)
    if stream is not None:
        stream.flush()
    # A standard stream is duplicated: if it is a file, opening it again would overwrite it from its beginning.
    with open(path if stream is None else os.dup(stream.fileno()), "wb") as file:
        file.write(content.getbuffer())


def _standard_stream(path: Path) -> TextIO | None:
    """Return the standard stream of this process that `path` leads to, as /dev/stdout does, or None."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(OSError, ValueError):  # the stream is closed
            if stream is not None and os.path.samestat(os.stat(path), os.fstat(stream.fileno())):
                return stream
    return None


def _is_running(process: int) -> bool:
    """Return True if another process has this number. Windows can't tell, but keeps others from removing open files."""
    if os.name != "posix" or process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _sync_folder(folder: Path) -> None:
    """Force a rename to disk. Only POSIX systems can; elsewhere the system decides when."""
    if os.name == "posix" and not WEBASSEMBLY:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
