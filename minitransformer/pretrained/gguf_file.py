"""GGUF, the files of llama.cpp: a whole model in one file.

    "GGUF", the version        4 bytes each
    counts                     of the tensors and of the metadata, 8 bytes each
    metadata                   for each: its name, its type, its value; the model's sizes and its tokenizer
    tensors                    for each: its name, its shape, its type, its place
    numbers                    of one tensor after the other; each begins at a multiple of 32 bytes

[`gguf.py`](gguf.py) says what the numbers are.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..system.tensor_file import PIECE, Tensor
from .errors import PretrainedError
from .gguf import OTHERS, PACKINGS, Packing

MAGIC, VERSIONS = b"GGUF", (2, 3)
LONGEST_HEADER, MOST = 100_000_000, 100_000
"""The most bytes before the tensors' numbers, and the most tensors, or entries of metadata."""

MOST_AXES = 4
TEXT, LIST = 8, 9
SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""The types of values in the metadata, by their numbers, as the module struct calls them."""


@dataclass(frozen=True)
class Packed(Tensor):
    """A tensor of blocks. `heads` is that of its rows, if the two halves of each head's rows were shuffled, else 0.

    Llama's rotary positions pair row i of a head with row i + D/2. llama.cpp pairs neighbours, so its files have the
    rows of queries and keys in the order 0, D/2, 1, D/2 + 1, …; here they come back into the order of Llama.
    `added` was added to each number of a folder's: Gemma's norms multiply by 1 + γ, and its files hold that.
    """

    packing: Packing
    heads: int = 0
    added: float = 0.0

    @property
    def readable(self) -> bool:
        """True: other types are refused when the file is opened."""
        return True

    @property
    def nbytes(self) -> int:
        """The bytes of its blocks."""
        return math.prod(self.shape) // self.packing.weights * self.packing.bytes

    def rows(self) -> np.ndarray:
        """Read the bytes of its rows, `(rows, bytes of a row)`."""
        return self._in_order(np.fromfile(self.path, np.uint8, self.nbytes, offset=self.start))

    def _read(self, first: int, stop: int) -> np.ndarray:
        if self.heads:
            return self._in_order(self._blocks(0, math.prod(self.shape))).reshape(-1)[first:stop]
        return self._blocks(first, stop) - np.float32(self.added) if self.added else self._blocks(first, stop)

    def _in_order(self, content: np.ndarray) -> np.ndarray:
        """Return the rows that lie one after the other in an array, in the order of Llama."""
        if not self.heads:
            return content.reshape(self.shape[0], -1)
        rows = content.reshape(self.heads, self.shape[0] // self.heads // 2, 2, -1)
        return rows.swapaxes(1, 2).reshape(self.shape[0], -1)

    def _blocks(self, first: int, stop: int) -> np.ndarray:
        """Read the weights first, …, stop − 1, which are whole blocks, piece by piece."""
        weights, size = self.packing.weights, self.packing.bytes
        found = np.empty(stop - first, np.float32)
        for start in range(first, stop, PIECE):
            count = min(PIECE, stop - start) // weights
            place = self.start + start // weights * size
            blocks = np.fromfile(self.path, np.uint8, count * size, offset=place).reshape(count, size)
            with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale may be infinite
                found[start - first :][: count * weights] = self.packing.read(blocks).reshape(-1)
        return found


class Content(NamedTuple):
    """The metadata of a file, by name, and its tensors, which are not read yet."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Packed]


def is_gguf(path: Path) -> bool:
    """Return True for a file whose name or whose first bytes are those of a GGUF file."""
    if not path.is_file() or path.suffix == ".gguf":
        return path.is_file()
    with open(path, "rb") as file:
        return file.read(4) == MAGIC


def opened(path: Path) -> Content:
    """Read a file up to its tensors' numbers, after a check that these lie in it one after the other.

    Raises PretrainedError for a damaged file, another version, and types of tensors that are not read.
    """
    with open(path, "rb") as file:
        header = _Header(path, file)
        magic, version = header.take(4), header.number("I")
        if magic != MAGIC:
            raise PretrainedError(f"{path} is no GGUF file: it begins with {magic!r}")
        if version not in VERSIONS:
            raise PretrainedError(f"{path} is of version {version} of GGUF, only 2 and 3 are supported")
        num_tensors, num_entries = header.count(), header.count()
        metadata: dict[str, Any] = {}
        for _ in range(num_entries):
            name = header.text()
            if name in metadata:
                raise PretrainedError(f"{path} is damaged: it has {shortened(name)} twice")
            metadata[name] = header.value(header.number("I"))
        found: dict[str, Packed] = {}
        for _ in range(num_tensors):
            name = header.text()
            if name in found:
                raise PretrainedError(f"{path} is damaged: it has the tensor {shortened(name)} twice")
            found[name] = header.tensor(name)
        step = metadata.get("general.alignment", 32)
        if type(step) is not int or step not in (1 << power for power in range(17)):
            raise PretrainedError(f"{path} is damaged: general.alignment is {shortened(step)}")
        first = _up(file.tell(), step)
    stop, end, size = first, first, path.stat().st_size
    for name, tensor in found.items():
        if first + tensor.start != stop:
            raise PretrainedError(f"{path} is damaged: {shortened(name)} does not follow the tensor before it")
        end = stop + tensor.nbytes
        stop = _up(end, step)
    if not end <= size <= stop:
        problem = "is truncated" if end > size else "is damaged"
        raise PretrainedError(f"{path} {problem}: it has {size:,} bytes, and its header describes {end:,}")
    return Content(metadata, {n: Packed(path, t.type, t.shape, first + t.start, t.packing) for n, t in found.items()})


def _up(place: int, step: int) -> int:
    """Return the next multiple of a step."""
    return -(-place // step) * step


class _Header:
    """Reads a header; every count and length is compared with what is left of the file before memory is taken."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path, self.file = path, file
        self.left = min(path.stat().st_size, LONGEST_HEADER)

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        if count > self.left:
            raise PretrainedError(f"{self.path} is truncated or damaged: its header does not fit into it")
        self.left -= count
        return self.file.read(count)

    def number(self, kind: str) -> Any:
        """Return the next number."""
        return struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))[0]

    def count(self) -> int:
        """Return how many tensors, or entries of metadata, there are."""
        count = self.number("Q")
        if count > MOST:
            raise PretrainedError(f"{self.path} is damaged: it counts {count:,} tensors or entries of metadata")
        return count

    def text(self) -> str:
        """Return the next text: its length and its bytes."""
        try:
            return self.take(self.number("Q")).decode()
        except UnicodeDecodeError:
            raise PretrainedError(f"{self.path} is damaged: it holds a text that is not UTF-8") from None

    def value(self, kind: int, within: bool = False) -> Any:
        """Return the next value: a number, a text, a list of texts or an array of numbers."""
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            raise PretrainedError(f"{self.path} is damaged: its metadata has a value of the unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner == TEXT:
            if 8 * count > self.left:
                self.take(8 * count)
            return [self.text() for _ in range(count)]
        if inner not in SCALARS:
            raise PretrainedError(f"{self.path}: its metadata has a list of the type {inner}, which is not supported")
        kind_ = np.dtype(SCALARS[inner]).newbyteorder("<")
        return np.frombuffer(self.take(count * kind_.itemsize), kind_)

    def tensor(self, name: str) -> Packed:
        """Return the next tensor, with its place among the numbers; the innermost axis comes first there, here last."""
        axes = self.number("I")
        if axes > MOST_AXES:
            raise PretrainedError(f"{self.path} is damaged: {shortened(name)} has {axes:,} axes")
        shape = tuple(self.number("Q") for _ in range(axes))[::-1]
        kind, start = self.number("I"), self.number("Q")
        if kind not in PACKINGS:
            called, known = OTHERS.get(kind, f"{kind}"), ", ".join(each.name for each in PACKINGS.values())
            message = f"{shortened(name)} is of type {called}, which is not supported, only {known}"
            raise PretrainedError(f"{self.path}: {message}")
        packing = PACKINGS[kind]
        if not shape or shape[-1] % packing.weights:
            message = f"{shortened(name)} of shape {shape} has no whole blocks of {packing.weights} in a row"
            raise PretrainedError(f"{self.path} is damaged: {message}")
        return Packed(self.path, packing.name, shape, start, packing)
