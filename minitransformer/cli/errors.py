"""Telling errors that the user can mend, which get one line, from bugs, which keep their traceback; and streams.

An error is the user's if the system reported it (`OSError`: no such file, no space left; `MemoryError`), or if it is a
ValueError, TrainingDiverged or FloatingPointError from the program's own packages: a sentence that was written for
whoever reads it. What NumPy raises is a bug of ours, and so is what ops and layers refuse: they speak of arrays, and no
array comes from the command line.
"""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from types import TracebackType
from typing import TextIO

from ..training import TrainingDiverged
from ..visible import visible

ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # as shells count: 128 + the number of the signal
DELIBERATE = (ValueError, TrainingDiverged, FloatingPointError)
ABOUT_ARRAYS = ("minitransformer.ops", "minitransformer.layers")
LONGEST_LINE = 1000
"""Characters of an error: a sentence or a list of names in it may be as long as a file."""


def message_of(error: Exception, packages: Sequence[str] = ("minitransformer",)) -> str | None:
    """The line for the user, or None where `error` is a bug: not raised by a module of these packages."""
    if isinstance(error, OSError):
        return _system_message(error)
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    if isinstance(error, DELIBERATE) and _is_raised_in(packages, error.__traceback__):
        return _one_line(str(error))
    return None


def complain(line: str) -> None:
    """Print a line on standard error, if anybody can be told."""
    line = visible(line)
    if len(line) > LONGEST_LINE:
        line = f"{line[: LONGEST_LINE - 200]} … {line[-200:]}"
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _send_nowhere(sys.stderr)


def prepare_streams() -> None:
    """Make the standard streams ready. Raises ValueError where standard output is closed: the result would be lost.

    A descriptor that is closed is taken by /dev/null, or else the next file that is opened would get its number, and
    with it whatever a library prints.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it is there until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")  # as all of the project's files
    if sys.stdout is None:
        raise ValueError("standard output is closed, and what this prints would be lost (>/dev/null throws it away)")


def drop_output() -> None:
    """Write what standard output still holds, if that can be done, and send it nowhere from here on.

    Whoever read it may have gone (`| head`), or its disk be full; Python would complain once more as it exits.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        _send_nowhere(sys.stdout)


def _send_nowhere(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _system_message(error: OSError) -> str:
    """What the system said, without its number: `path: reason`."""
    if error.strerror is None:
        return _one_line(str(error))
    if error.filename is None:
        return _one_line(error.strerror)
    return _one_line(f"{os.fsdecode(error.filename)}: {error.strerror}")


def _is_raised_in(packages: Sequence[str], traceback: TracebackType | None) -> bool:
    if traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "")
    return module.partition(".")[0] in packages and not module.startswith(ABOUT_ARRAYS)


def _one_line(message: str) -> str:
    return " ".join(message.split())
