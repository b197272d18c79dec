"""Tensors in files, before they are read, and the error for files that hold no model."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..system.visible import visible

LONGEST_MESSAGE = 1000
MOST_AXES = 8
PIECE = 1 << 20
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""The types of tensors that are read; bfloat16 numbers are the upper halves of float32 numbers."""


class PretrainedError(ValueError):
    """A folder without a model that this program can run, or a model that another library's files can't express.

    Names from the folder can't break the message: it is one line of at most LONGEST_MESSAGE characters, with control
    characters escaped.
    """

    def __init__(self, message: str) -> None:
        message = visible(message)
        most = LONGEST_MESSAGE - 3
        super().__init__(message if len(message) <= most else f"{message[: most - 200]} … {message[-200:]}")


@dataclass(frozen=True)
class Tensor:
    """One tensor in a file, not read yet: its type as safetensors calls it, its shape, and its first byte."""

    path: Path
    type: str
    shape: tuple[int, ...]
    start: int

    @property
    def readable(self) -> bool:
        """True if its numbers can be read: those of other types, such as integers, are not."""
        return self.type in TYPES

    def equals(self, other: "Tensor") -> bool:
        """Return True if another tensor has the same shape and numbers; they are read piece by piece."""
        if self.shape != other.shape or not (self.readable and other.readable):
            return False
        pairs = zip(self.pieces(), other.pieces(), strict=True)
        return all(np.array_equal(ours, theirs, equal_nan=True) for (_, ours), (_, theirs) in pairs)

    def read(self) -> np.ndarray:
        """Read the tensor; float16 and bfloat16 are widened to float32."""
        return self._read(0, math.prod(self.shape)).reshape(self.shape)

    def pieces(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the entries piece by piece, with their places, so that a large table is not in memory twice."""
        count = math.prod(self.shape)
        for first in range(0, count, PIECE):
            stop = min(first + PIECE, count)
            yield slice(first, stop), self._read(first, stop)

    def _read(self, first: int, stop: int) -> np.ndarray:
        """Read the entries first, …, stop − 1."""
        kind = np.dtype(TYPES[self.type])
        return widened(np.fromfile(self.path, kind, stop - first, offset=self.start + first * kind.itemsize))


def widened(array: np.ndarray) -> np.ndarray:
    """Return numbers of a file in float32, or in float64 if they are; unsigned ones are bfloat16."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if array.dtype == np.float16 else array
