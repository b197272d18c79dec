"""Folders of weights: `config.json` and the tensors' files, checked before memory is taken for the tensors they name.

A safetensors file is the length of its header (8 bytes), the header (JSON with each tensor's type, shape and place),
and the tensors one after the other. It is read here by hand, because NumPy knows no bfloat16.
"""

import errno
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ..system.atomic import atomic_write
from . import pickles
from .tensors import MOST_AXES, TYPES, PretrainedError, Tensor

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
GENERATION = "generation_config.json"
LONGEST_HEADER = 100_000_000
"""Bytes: the limit that safetensors itself sets."""

LONGEST_JSON = 10_000_000
LONG_NAMES = {"F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16"}
"""The types' names in a configuration."""


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. Raises FileNotFoundError, or PretrainedError for other content."""
    if not path.is_file():  # a pipe or a device would never end
        raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
    with open(path, "rb") as file:
        content = file.read(LONGEST_JSON + 1)
    if len(content) > LONGEST_JSON:
        raise PretrainedError(f"{path} has more than {LONGEST_JSON:,} bytes: it is no configuration")
    try:
        values = _parsed(content)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise PretrainedError(f"{path} is not a JSON object")
    return values


def _parsed(content: bytes) -> Any:
    """Parse a JSON text. Raises ValueError or RecursionError, also for an object with the same key twice."""

    def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
            raise ValueError(f"it has {shortened(name)} twice")
        return values

    return json.loads(content.decode(), object_pairs_hook=no_key_twice)


def find_tensors(folder: Path) -> dict[str, Tensor]:
    """Find every tensor of a folder by name, in one file or in several with an index; safetensors before pickles.

    Raises FileNotFoundError, or PretrainedError for files that are damaged or that hold anything but tensors.
    """
    for weights, index, tensors_of in ((WEIGHTS, INDEX, _tensors_of), (PICKLE, PICKLE_INDEX, pickles.tensors_of)):
        if (folder / weights).is_file():
            return tensors_of(folder / weights)
        if (folder / index).is_file():
            return _sharded(folder, index, tensors_of)
    raise FileNotFoundError(errno.ENOENT, "No such file", str(folder / WEIGHTS))


def _sharded(folder: Path, index: str, tensors_of: Callable[[Path], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tensors of all files that an index names, each from the file where the index sees it."""
    places, ending = read_json(folder / index).get("weight_map"), Path(index.removesuffix(".index.json")).suffix
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise PretrainedError(f"{folder / index} has no weight_map of names of files")
    found: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or not name.endswith(ending):
            raise PretrainedError(f"{folder / index} names {shortened(name)}, expected a {ending} file beside it")
        if not (folder / name).is_file():
            raise FileNotFoundError(errno.ENOENT, "No such file", str(folder / name))
        promised, held = {each for each, place in places.items() if place == name}, tensors_of(folder / name)
        for wrong, verb in ((promised - held.keys(), "lacks"), (held.keys() - promised, "also holds")):
            if wrong:
                raise PretrainedError(f"{folder / name} is not what {index} says: it {verb} {some(sorted(wrong))}")
        found |= held
    return found


def _tensors_of(path: Path) -> dict[str, Tensor]:
    """Return the tensors that a file's header names, after a check that they lie in the file one after the other."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            raise PretrainedError(f"{path} is truncated or no safetensors file: its header does not fit into it")
        content = file.read(length)
    try:
        header = _parsed(content)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{path} is no safetensors file: its header is not valid JSON ({error})") from None
    if not isinstance(header, dict):
        raise PretrainedError(f"{path} is no safetensors file: its header is not a JSON object")
    header.pop("__metadata__", None)
    first, places, found = 8 + length, [], {}
    for name, entry in header.items():
        entry = entry if isinstance(entry, dict) else {}
        shape: Any = entry.get("shape")
        offsets: Any = entry.get("data_offsets")
        if not _are_whole(shape) or not _are_whole(offsets) or len(offsets) != 2:
            raise PretrainedError(f"{path} is damaged: its header describes {shortened(name)} wrongly")
        kind = str(entry.get("dtype"))
        if kind in TYPES:  # another type is refused only if the tensor is needed, which a buffer of integers is not
            bytes_ = math.prod(shape) * np.dtype(TYPES[kind]).itemsize
            if offsets[1] - offsets[0] != bytes_:
                raise PretrainedError(f"{path} is damaged: {shortened(name)} has another size than its shape says")
        places.append((*offsets, name))
        found[name] = Tensor(path, kind, tuple(shape), first + offsets[0])
    stop = 0
    for start, end, name in sorted(places):
        if start != stop or end < start:
            raise PretrainedError(f"{path} is damaged: {shortened(name)} does not follow the tensor before it")
        stop = end
    if first + stop != size:
        problem = "is truncated" if first + stop > size else "is damaged"
        raise PretrainedError(f"{path} {problem}: it has {size:,} bytes, and its header describes {first + stop:,}")
    return found


def _are_whole(values: Any) -> bool:
    """Return True for a list of a few whole numbers, each small enough for a file's size."""
    few = isinstance(values, list) and len(values) <= MOST_AXES
    return few and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def some(names: list[str], most: int = 5) -> str:
    """Return the first of some names, for a message."""
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(name if len(name) < 200 else shortened(name) for name in names[:most]) + rest


def narrowed(tensors: Mapping[str, np.ndarray], types: Mapping[str, str]) -> Mapping[str, np.ndarray] | None:
    """Return arrays in the narrower types that their tensors had; `None` if these can't hold all of them exactly.

    Bfloat16 numbers become unsigned integers, the upper halves of float32 numbers.
    """
    if not set(types.values()) & {"BF16", "F16"}:
        return None
    found = {}
    for name, array in tensors.items():
        kind, wide = types.get(name), np.asarray(array, np.float32)
        bits = wide.view(np.uint32)
        with np.errstate(over="ignore"):
            half = wide.astype(np.float16) if kind == "F16" else wide
        half = (bits >> 16).astype(np.uint16) if kind == "BF16" else half
        back = bits >> 16 << 16 if kind == "BF16" else np.asarray(half, np.float32).view(np.uint32)
        if not np.array_equal(wide, array, equal_nan=True) or not np.array_equal(back, bits):
            return None
        found[name] = half
    return found


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write arrays as a safetensors file, which appears whole or not at all; uint16 is bfloat16 (`narrowed`)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    stop = 0
    for name, array in sorted(tensors.items()):
        kind = {"float32": "F32", "float64": "F64", "float16": "F16", "uint16": "BF16"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [stop, stop + array.nbytes]}
        stop += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_write(path) as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, array in sorted(tensors.items()):
            file.write(np.ascontiguousarray(array).data)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object as one file, which appears whole or not at all."""
    with atomic_write(path) as file:
        file.write(json.dumps(dict(values), indent=2).encode() + b"\n")
