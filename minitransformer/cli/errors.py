"""Errors that the user can mend, which get one line, bugs, which keep their traceback, and standard streams.

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
"""Characters of an error message: a sentence or a list of names in it may be as long as a file."""


def message_of(error: Exception, packages: Sequence[str] = ("minitransformer",)) -> str | None:
    """The line for the user, or None where `error` is a bug: not raised by a module of these packages."""
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
    """Flush standard output, and where that fails send it nowhere, since Python would complain once more as it exits.

    Its reader may have gone (`| head`), or its disk may be full.
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
