"""The training log: one JSON object a line, one line a step, no line twice."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..atomic import atomic_write

LOG_NAME = "log.jsonl"


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The records of a log, in order; a last line that a kill cut short is left out.

    Raises ValueError naming the first line that is no record.
    """
    return [record for _, record in _lines(Path(path))]


def _lines(path: Path, last_step: float = math.inf) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each complete line with what it says, up to that of `last_step`; what comes after it is not looked at."""
    step = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if step >= last_step or not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
                step = int(record["step"])
            except (ValueError, TypeError, KeyError):
                raise ValueError(f"{path}, line {number} is damaged: it is no record of a step") from None
            if step <= last_step:
                yield line, record


class TrainingLog:
    """Appends records to a file. Opening it for a training that stands at `step` drops whatever follows that line.

    Those are lines that a killed training wrote after its last checkpoint, and garbage that a power cut left: their
    steps are about to be taken again. `seconds` is the training time that the lines so far report. Without a path
    nothing is written. Raises ValueError naming a damaged line before that of `step`.
    """

    def __init__(self, path: Path | None, step: int = 0) -> None:
        self.path, self.seconds = path, 0.0
        if path is not None and path.exists():
            with atomic_write(path) as file:
                for line, record in _lines(path, step):
                    file.write(line)
                    self.seconds = record["seconds"]

    def write(self, record: dict[str, Any]) -> None:
        """Append one record; no kill can undo it once this returns. Raises OSError naming the file and the reason."""
        if self.path is None:
            return
        try:
            with open(self.path, "ab") as file:
                file.write(json.dumps(record).encode() + b"\n")
        except OSError as error:
            raise OSError(error.errno, f"cannot write {self.path}: {error.strerror}") from error

    def sync(self) -> None:
        """Put all lines on disk, so that no checkpoint is ahead of its log, even after a power cut."""
        if self.path is not None:
            with open(self.path, "ab") as file:
                os.fsync(file.fileno())
