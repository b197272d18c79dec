"""The training log: one JSON object a line, one line a step, no line twice."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minitransformer.atomic import atomic_write


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The records of a log, in order; a last line that a kill cut short is left out."""
    return [record for _, record in _lines(Path(path))]


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each complete line with what it says."""
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line, json.loads(line)


class TrainingLog:
    """Appends records to a file. Opening it for a training that stands at `step` drops the lines of later steps.

    Those are lines that a killed training wrote after its last checkpoint: their steps are about to be taken again.
    `seconds` is the training time that the lines so far report. Without a path nothing is written.
    """

    def __init__(self, path: Path | None, step: int = 0) -> None:
        self.path, self.seconds = path, 0.0
        if path is not None and path.exists():
            kept = [(line, record) for line, record in _lines(path) if record["step"] <= step]
            with atomic_write(path) as file:
                file.writelines(line for line, _ in kept)
            self.seconds = kept[-1][1]["seconds"] if kept else 0.0

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
