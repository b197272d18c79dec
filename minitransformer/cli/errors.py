"""Errors and standard streams: an error that the user can mend becomes one line, a bug keeps its traceback.

The user can mend what the system reports (`OSError`: no such file, no space left; `MemoryError`), a missing package,
and a ValueError, TrainingDiverged or FloatingPointError from the program's own packages, whose message is written for
the user. An exception from NumPy is a bug of ours, and so is one from ops and layers: it is about arrays, and no array
comes from the command line.
"""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from types import TracebackType
from typing import TextIO

from ..system.visible import visible
from ..training import TrainingDiverged

ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # the last two as in shells: 128 + the number of the signal
DELIBERATE = (ValueError, TrainingDiverged, FloatingPointError, ModuleNotFoundError)
ABOUT_ARRAYS = ("minitransformer.ops", "minitransformer.layers")
LONGEST_LINE = 1000
"""Characters of an error message at most: it may quote a sentence or a list of names as long as a file."""


def message_of(error: Exception, packages: Sequence[str] = ("minitransformer",)) -> str | None:
    """Return the line for the user, None if `error` is a bug; `packages` are those whose messages are for users."""
    if isinstance(error, OSError):
        message = error.strerror or str(error)  # without its number
        if error.strerror and error.filename is not None:
            message = f"{os.fsdecode(error.filename)}: {message}"
    elif isinstance(error, MemoryError):
        message = f"out of memory: {error}" if str(error) else "out of memory"
    elif isinstance(error, DELIBERATE) and _is_raised_in(packages, error.__traceback__):
        message = str(error)
    else:
        return None
    return " ".join(message.split())


def complain(line: str) -> None:
    """Print a line on standard error, if it can be written."""
    line = visible(line)
    if len(line) > LONGEST_LINE:
        line = f"{line[: LONGEST_LINE - 200]} … {line[-200:]}"
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _send_nowhere(sys.stderr)


def prepare_streams() -> None:
    """Make the standard streams ready. Raises ValueError if standard output is closed: the result would be lost.

    A closed descriptor is opened on /dev/null. Otherwise the next file that is opened would get its number, and then
    also everything that a library prints.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")  # the encoding of all the project's files
    if sys.stdout is None:
        raise ValueError("standard output is closed, and what this prints would be lost (>/dev/null throws it away)")


def drop_output() -> None:
    """Flush standard output; if that fails, redirect it to /dev/null, or Python would complain again when it exits.

    It fails if the reader has ended (`| head`) or the disk is full.
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


def _is_raised_in(packages: Sequence[str], traceback: TracebackType | None) -> bool:
    module = ""
    while traceback is not None:
        module, traceback = traceback.tb_frame.f_globals.get("__name__", ""), traceback.tb_next
    return module.partition(".")[0] in packages and not module.startswith(ABOUT_ARRAYS)
