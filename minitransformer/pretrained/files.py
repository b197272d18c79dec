"""Folders of weights: `config.json` and safetensors files."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ..system.atomic import atomic_write
from ..system.tensor_file import Tensor, file_parts, parse_json, read_header
from ..system.visible import visible

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
GENERATION = "generation_config.json"
LONGEST_JSON = 10_000_000
LONGEST_MESSAGE = 1000
LONG_NAMES = {"F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16"}
"""The types of weights, and their names in a configuration."""


class PretrainedError(ValueError):
    """A folder without a model that this program can run, or a model that another library's files can't express.

    Names from the folder can't break the message: it is one line of at most LONGEST_MESSAGE characters, with control
    characters escaped.
    """

    def __init__(self, message: str) -> None:
        message = visible(message)
        most = LONGEST_MESSAGE - 3
        super().__init__(message if len(message) <= most else f"{message[: most - 200]} … {message[-200:]}")


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. Raises FileNotFoundError, or PretrainedError for other content."""
    if not path.is_file():  # a pipe or a device would never end
        raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
    with open(path, "rb") as file:
        content = file.read(LONGEST_JSON + 1)
    if len(content) > LONGEST_JSON:
        raise PretrainedError(f"{path} has more than {LONGEST_JSON:,} bytes: it is no configuration")
    try:
        values = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise PretrainedError(f"{path} is not a JSON object")
    return values


def find_tensors(folder: Path) -> dict[str, Tensor]:
    """Find every tensor of a folder by name, in one file or in several with an index.

    Raises FileNotFoundError, or PretrainedError for files that are damaged or that run code when they are opened.
    """
    if (folder / WEIGHTS).is_file():
        return _tensors_of(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _sharded(folder)
    for path in sorted(folder.glob("pytorch_model*.bin*")):
        raise PretrainedError(
            f"{path} is refused: it is a pickle, which runs code when it is opened, and there is no {WEIGHTS} beside it"
        )
    raise FileNotFoundError(errno.ENOENT, "No such file", str(folder / WEIGHTS))


def _sharded(folder: Path) -> dict[str, Tensor]:
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise PretrainedError(f"{folder / INDEX} has no weight_map of names of files")
    found: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise PretrainedError(f"{folder / INDEX} names {shortened(name)}, expected a safetensors file beside it")
        if not (folder / name).is_file():
            raise FileNotFoundError(errno.ENOENT, "No such file", str(folder / name))
        promised, held = {each for each, place in places.items() if place == name}, _tensors_of(folder / name)
        for wrong, verb in ((promised - held.keys(), "lacks"), (held.keys() - promised, "also holds")):
            if wrong:
                raise PretrainedError(f"{folder / name} is not what {INDEX} says: it {verb} {some(sorted(wrong))}")
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


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object as one file, which appears whole or not at all."""
    with atomic_write(path) as file:
        file.write(json.dumps(dict(values), indent=2).encode() + b"\n")
