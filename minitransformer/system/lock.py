"""A lock on a folder, so that only one process writes into it; the system releases it when its holder ends.

While the lock is held, the file `minitransformer.lock` in the folder names its holder. A killed process leaves this
file behind, but it locks nothing.
"""

import os
import shlex
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from io import FileIO
from pathlib import Path

LOCK_NAME = "minitransformer.lock"
_MARK = "process "
_holders: dict[tuple[int, int], int] = {}  # the device and number of each locked folder -> the thread that locked it

try:
    import fcntl

    def _lock(file: FileIO) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

except ImportError:  # Windows, or a browser, where there is no second process

    def _lock(file: FileIO) -> None:
        if sys.platform != "win32":
            return
        import msvcrt

        file.seek(1 << 20)  # others can't read a locked byte, but they must be able to read the holder's name
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            raise BlockingIOError(error.errno, error.strerror) from None


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of `folder`, which is made if it is missing and removed again if it stays empty.

    A thread that holds the lock may take it again. Raises BlockingIOError naming the process that holds it, OSError if
    the folder can't be made, FileExistsError if another program's file has the lock's name. On a file system without
    locks a warning says that nothing keeps a second process out.
    """
    folder = Path(folder)
    made = _make(folder)
    status = folder.stat()
    identity = status.st_dev, status.st_ino
    if _holders.get(identity) == threading.get_ident():
        yield
        return
    path = folder / LOCK_NAME
    file = _acquire(path)
    _holders[identity] = threading.get_ident()
    try:
        with suppress(OSError):  # the disk is full: the lock is held nevertheless
            file.truncate(0)
            file.write(_description().encode("utf-8", "replace"))
        yield
    finally:
        del _holders[identity]
        with suppress(OSError):  # removed before the release, after which another may hold it; Windows keeps the file
            path.unlink()
        file.close()
        if made:
            with suppress(OSError):
                folder.rmdir()


def _make(folder: Path) -> bool:
    """Make the folder; return True if it was missing."""
    if folder.is_dir():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(error.errno, f"cannot make the folder {folder}: {error.strerror}") from error
    return True


def _acquire(path: Path) -> FileIO:
    """Open and lock the file."""
    while True:
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 - it stays open while it is locked
        try:
            said = _said(file)
            if said and not said.startswith(_MARK):
                raise FileExistsError(f"{path} is not a lock of this program: move it elsewhere")
            try:
                _lock(file)
            except BlockingIOError:
                holder = said.strip() or "another process"
                raise BlockingIOError(
                    f"{path.parent} is in use by {holder}: wait until it has ended, or choose another folder"
                ) from None
            except OSError as error:
                warnings.warn(f"{path}: {error.strerror}; nothing keeps a second process out", stacklevel=4)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
            file.close()  # its last holder has removed it meanwhile: try again
        except BaseException:
            file.close()
            raise


def _said(file: FileIO) -> str:
    """Return the content of a lock's file, which describes its holder, on one line."""
    file.seek(0)
    text = file.read(1000).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else " " for character in text)


def _description() -> str:
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return f"{_MARK}{os.getpid()} since {datetime.now():%Y-%m-%d %H:%M:%S} ({command})\n"
