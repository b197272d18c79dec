"""Telling errors that the user can mend, which get one line, from bugs, which keep their traceback.

An error is the user's if the system reported it (`OSError`: no such file, no space left; `MemoryError`), or if it is a
ValueError, TrainingDiverged or FloatingPointError from this package itself: a sentence that was written for whoever
reads it. What NumPy raises is a bug of ours, and so is what ops and layers refuse: they speak of arrays, and no array
comes from the command line.
"""

import os
import sys
from types import TracebackType

from ..training import TrainingDiverged

ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # as shells count: 128 + the number of the signal
DELIBERATE = (ValueError, TrainingDiverged, FloatingPointError)
ABOUT_ARRAYS = ("minitransformer.ops", "minitransformer.layers")


def message_of(error: Exception) -> str | None:
    """The line for the user, or None where `error` is a bug."""
    if isinstance(error, OSError):
        return _system_message(error)
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    if isinstance(error, DELIBERATE) and error.__traceback__ is not None and _is_raised_by_us(error.__traceback__):
        return _one_line(str(error))
    return None


def drop_output() -> None:
    """Write what standard output still holds, if that can be done, and send it nowhere from here on.

    Whoever read it may have gone (`| head`), or its disk be full; Python would complain once more as it exits.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _system_message(error: OSError) -> str:
    """What the system said, without its number: `path: reason`."""
    if error.strerror is None:
        return _one_line(str(error))
    if error.filename is None:
        return _one_line(error.strerror)
    return _one_line(f"{os.fsdecode(error.filename)}: {error.strerror}")


def _is_raised_by_us(traceback: TracebackType) -> bool:
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "")
    return module.startswith("minitransformer.") and not module.startswith(ABOUT_ARRAYS)


def _one_line(message: str) -> str:
    return " ".join(message.split())
