"""safetensors files: arrays by name, checked before memory is taken for them.

Such a file is the length of its header (8 bytes), the header (JSON with each tensor's type, shape and place, and texts
under `__metadata__`), and the tensors one after the other. It is read by hand, for bfloat16, which NumPy does not know,
and for places where NumPy is all there is, such as a browser.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np

TYPES = {"I64": "<i8", "F64": "<f8", "F32": "<f4", "I32": "<i4", "BF16": "<u2", "F16": "<f2", "I8": "|i1", "U8": "|u1"}
"""The types of tensors that are read, in the order in which safetensors writes them: wide ones first, so that each is
aligned. Bfloat16 numbers are the upper halves of float32 numbers."""

FLOATS = {"F64", "F32", "BF16", "F16"}
"""The types that weights may have."""

LONGEST_HEADER = 100_000_000
"""Bytes: the limit that safetensors itself sets."""

MOST_AXES = 8
PIECE = 1 << 20


@dataclass(frozen=True)
class Tensor:
    """One tensor in a file, not read yet: its type as safetensors calls it, its shape, and its first byte."""

    path: Path
    type: str
    shape: tuple[int, ...]
    start: int

    @property
    def readable(self) -> bool:
        """True if its numbers can be weights: those of other types, such as integers, can't."""
        return self.type in FLOATS

    @property
    def nbytes(self) -> int:
        """The bytes that its numbers take in the file."""
        return math.prod(self.shape) * np.dtype(TYPES[self.type]).itemsize

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
        array = np.empty(stop - first, kind)
        with open(self.path, "rb") as file:
            file.seek(self.start + first * kind.itemsize)
            if file.readinto(array.data) < array.nbytes:
                raise ValueError("it became shorter while it was read")
        return widened(array)


def widened(array: np.ndarray) -> np.ndarray:
    """Return an array of a file with float16 numbers in float32, and unsigned ones too, which are bfloat16."""
    if array.dtype == np.uint16:
        return np.left_shift(array, 16, dtype=np.uint32).view(np.float32)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a file's metadata and its tensors, after a check that they lie in the file one after the other.

    Raises ValueError, in a clause about the file, for one that is truncated, damaged or no safetensors file.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            raise ValueError("it is truncated or no safetensors file: its header does not fit into it")
        content = file.read(length)
    try:
        header = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no safetensors file: its header is not valid JSON ({error})") from None
    metadata = header.pop("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict):
        raise ValueError("it is no safetensors file: its header is not a JSON object")
    first, places, found = 8 + length, [], {}
    for name, entry in header.items():
        entry = entry if isinstance(entry, dict) else {}
        shape: Any = entry.get("shape")
        offsets: Any = entry.get("data_offsets")
        if not _are_whole(shape) or not _are_whole(offsets) or len(offsets) != 2:
            raise ValueError(f"it is damaged: its header describes {shortened(name)} wrongly")
        kind = str(entry.get("dtype"))
        if kind in TYPES:  # another type is refused only if the tensor is needed, which a buffer of bits is not
            bytes_ = math.prod(shape) * np.dtype(TYPES[kind]).itemsize
            if offsets[1] - offsets[0] != bytes_:
                raise ValueError(f"it is damaged: {shortened(name)} has another size than its shape says")
        places.append((*offsets, name))
        found[name] = Tensor(path, kind, tuple(shape), first + offsets[0])
    stop = 0
    for start, end, name in sorted(places):
        if start != stop or end < start:
            raise ValueError(f"it is damaged: {shortened(name)} does not follow the tensor before it")
        stop = end
    if first + stop != size:
        problem = "is truncated" if first + stop > size else "is damaged"
        raise ValueError(f"it {problem}: it has {size:,} bytes, and its header describes {first + stop:,}")
    return metadata, found


def parse_json(content: bytes) -> Any:
    """Parse a JSON text. Raises ValueError or RecursionError, also for an object with the same key twice."""

    def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
            raise ValueError(f"it has {shortened(name)} twice")
        return values

    return json.loads(content.decode(), object_pairs_hook=no_key_twice)


def _are_whole(values: Any) -> bool:
    """Return True for a list of a few whole numbers, each small enough for a file's size."""
    few = isinstance(values, list) and len(values) <= MOST_AXES
    return few and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def file_parts(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Yield a file's header with its length, then its tensors; uint16 is written as bfloat16.

    The bytes are those that the package safetensors writes.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    kinds, stop = {np.dtype(numpy_type): kind for kind, numpy_type in TYPES.items()}, 0
    order = sorted(tensors.items(), key=lambda item: ([*kinds].index(item[1].dtype), item[0]))
    for name, array in order:
        kind, shape = kinds[array.dtype], list(array.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [stop, stop + array.nbytes]}
        stop += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, array in order:
        yield array.ravel().data
