"""Folders of weights: `config.json`, the tensors' files, and what says how inputs are made and outputs are used."""

import errno
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ..system.atomic import atomic_write
from ..system.tensor_file import Tensor, file_parts, parse_json, read_header
from . import pickles
from .errors import PretrainedError

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
GENERATION = "generation_config.json"
BESIDE = (
    *("preprocessor_config.json", "modules.json", "sentence_*_config.json", "config_sentence_transformers.json"),
    "*_Pooling/config.json",
)
"""What says how pictures become a model's input, and how hidden states become the vector of a text."""

LONGEST_JSON = 10_000_000
LONG_NAMES = {"F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16"}
"""The types of weights, and their names in a configuration."""


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. Raises FileNotFoundError, or PretrainedError for other content."""
    values = _read_json(path)
    if not isinstance(values, dict):
        raise PretrainedError(f"{path} is not a JSON object")
    return values


def read_beside(folder: Path) -> dict[str, Any]:
    """Return what the files of a folder that BESIDE names hold, by their paths. Raises PretrainedError for no JSON."""
    paths = sorted(path for pattern in BESIDE for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix(): _read_json(path) for path in paths}


def _read_json(path: Path) -> Any:
    if not path.is_file():  # a pipe or a device would never end
        raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
    with open(path, "rb") as file:
        content = file.read(LONGEST_JSON + 1)
    if len(content) > LONGEST_JSON:
        raise PretrainedError(f"{path} has more than {LONGEST_JSON:,} bytes: it is no configuration")
    try:
        return parse_json(content)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{path} is not valid JSON: {error}") from None


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
    try:
        return read_header(path)[1]
    except ValueError as error:
        raise PretrainedError(f"{path}: {error}") from None


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
    with atomic_write(path) as file:
        file.writelines(file_parts(tensors, {"format": "pt"}))


def write_json(path: Path, values: Any) -> None:
    """Write JSON as one file, which appears whole or not at all."""
    with atomic_write(path) as file:
        file.write(json.dumps(values, indent=2).encode() + b"\n")
