"""The training log: one line a step, each a JSON object; no step occurs twice.

Each line ends with a checksum of itself (see `minitransformer.system.sealed_json`), and steps follow each other without
gaps.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..system.atomic import atomic_write
from ..system.sealed_json import is_sealed, seal, unseal

LOG_NAME, PICTURE_NAME = "log.jsonl", "loss.png"
BEGINNING = b'{"step": 1, "epoch": 0, "loss": '


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """Return the records of a log, in order, without a last line that a kill cut short.

    Raises ValueError, naming the line, for one that is not a record, is damaged, or does not follow the one before it.
    """
    return [record for _, record in _lines(Path(path))]


def check_new(folder: Path) -> None:
    """Raise FileExistsError if a new training in `folder` would overwrite a file that no training wrote.

    A log is recognised by its first line, and a picture by the log beside it.
    """
    path, picture = folder / LOG_NAME, folder / PICTURE_NAME
    if path.exists() and not _begins_like_a_log(path):
        raise FileExistsError(f"{path} is not a training's log: move it elsewhere or delete it")
    if picture.exists() and not path.exists():
        raise FileExistsError(f"{picture} is in the way: move it elsewhere or delete it, or choose another folder")


def _begins_like_a_log(path: Path) -> bool:
    """Return True if a file begins with the first line of a log, or with a part of it, which a kill may have left."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        line = file.readline(1 << 16)
    if not line.endswith(b"\n"):
        return BEGINNING.startswith(line[: len(BEGINNING)])
    try:
        return bool(_record(line))
    except ValueError:
        return False


def _lines(path: Path, last_step: float = math.inf) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each complete line and its record, up to `last_step`; later lines are not read."""
    step = None
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if (step or 0) >= last_step:
                return
            if not line.endswith(b"\n") and not is_sealed(line[:-1] + b"\n"):
                return
            try:
                record = _record(line)
                if step is not None and record["step"] != step + 1:
                    raise ValueError(f"it is of step {record['step']}, after that of step {step}")
            except ValueError as error:
                raise ValueError(
                    f"{path}, line {number} is damaged ({error}): delete the file, and the log begins again"
                ) from None
            step = record["step"]
            if step <= last_step:
                yield line, record


def _record(line: bytes) -> dict[str, Any]:
    """Return the record in a line. Raises ValueError if the line is damaged or not the record of a step."""
    record = unseal(line)
    are_numbers = all(type(value) in (int, float) for value in record.values())
    if not are_numbers or type(record.get("step")) is not int or "seconds" not in record:
        raise ValueError("it is not the record of a step")
    return record


class TrainingLog:
    """Appends records to a file. When a training opens it at `step`, it removes every line after this step.

    A killed training wrote such lines after its last checkpoint, or a power cut left garbage; the training repeats
    those steps. `seconds` is the training time up to `step`. Without a path nothing is written. Raises FileExistsError
    for a file that is not a log, and ValueError for a log that is damaged before `step` or ends before it.
    """

    def __init__(self, path: Path | None, step: int = 0) -> None:
        self.path, self.seconds = path, 0.0
        if path is None or not path.exists():
            return
        if step == 0:
            check_new(path.parent)
        with atomic_write(path) as file:
            last = 0
            for line, record in _lines(path, step):
                file.write(line)
                self.seconds, last = record["seconds"], record["step"]
            if 0 < last < step:
                raise ValueError(
                    f"{path} is damaged (it ends with step {last}, but the checkpoint is of step {step}): "
                    "delete the file, and the log begins again"
                )

    def write(self, record: dict[str, Any]) -> None:
        """Append one record; once this returns, it survives a kill. Raises OSError naming the file and the reason."""
        if self.path is None:
            return
        try:
            with open(self.path, "ab") as file:
                file.write(seal(record))
        except OSError as error:
            raise OSError(error.errno, f"cannot write {self.path}: {error.strerror}") from error

    def sync(self) -> None:
        """Force all lines to disk, so that even after a power cut no checkpoint is ahead of its log."""
        if self.path is not None:
            with open(self.path, "ab") as file:
                os.fsync(file.fileno())
