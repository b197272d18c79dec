"""Checkpoints: one safetensors file each, with a checksum over every byte.

A file holds the weights under their own names, without padding, tied ones once; Adam's moments as
`optimizer/m.<name>` and `optimizer/v.<name>`; weights in few bits as `quantized/<name>.packed`, `….scales` and
`….zeros`; and, as JSON under one metadata key, a description. The same state gives
the same bytes. The description holds the version of the format and

    step        a whole number
    config      an object: the model's configuration, which the model itself checks
    tokenizer   text or null
    state       an object; in it `settings`, `data`, `tuning` (what is trained) and `objective` (for which reward, or on
                which pairs) are objects, `tokens` is a whole number, `languages` two names or null, `averaged_steps` a
                list of whole numbers, `origin` text or null: what another library's folder held beside the weights;
                `bits` is 8 or 4, for a model in few bits; each may be missing

A checkpoint from a stranger can't do harm. Nothing is unpickled, so it can't run code. Its content is checked, so that
its readers may rely on types. A model is made only if the file holds all of its weights, so it is no larger than the
file. Objects are nested a few levels deep and integers fit into 64 bits, so that nothing is expensive to handle.

safetensors does not notice a flipped bit, so the metadata begins with a SHA-256 of the whole file, computed while
its own 64 digits are zeros. It always stands at the same place, by which a checkpoint is also recognised:

    8 bytes: length of the header | {"__metadata__":{"minitransformer":"{\\"sha256\\": \\"<64 digits> ... | arrays
"""

import errno
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ..data.sentence_pairs import is_language
from ..models import DEFAULT_KIND, Model, ModelConfig, Tuning, build_model, config_from_dict, is_adapter
from ..ops import Ops, Quantized, numpy_ops
from ..system.atomic import atomic_write
from ..system.tensor_file import TYPES, Tensor, file_parts, read_header

VERSION = 2
OPTIMIZER_PREFIX, QUANTIZED_PREFIX = "optimizer/", "quantized/"
DEEPEST = 8
"""A description may have this many levels of nested objects and lists; four are needed."""

_BLANK_DIGEST = b"0" * 64
_HEADER_START = b'{"__metadata__":{"minitransformer":"{\\"sha256\\": \\"'
_DIGEST_START = 8 + len(_HEADER_START)
_DIGEST_END = _DIGEST_START + len(_BLANK_DIGEST)


class CheckpointError(ValueError):
    """A file that is not a checkpoint, is damaged, or does not fit what it is loaded into."""


@dataclass
class Checkpoint:
    """The content of one checkpoint: arrays by name, and plain data that JSON can hold.

    config      the model's configuration, with the kind of model, as its `to_dict` gives it
    parameters  the weights by name
    quantized   those in few bits by name, if the model has some
    optimizer   the optimiser's arrays by name, as `Adam.state_dict` gives them, or None
    tokenizer   the tokenizer's JSON text, or None
    step        the number of optimiser steps so far
    state       anything else, such as the trainer's settings and the checksum of its data
    """

    config: dict[str, Any]
    parameters: dict[str, np.ndarray]
    optimizer: dict[str, np.ndarray] | None = None
    tokenizer: str | None = None
    step: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    quantized: dict[str, Quantized] = field(default_factory=dict)

    @property
    def languages(self) -> tuple[str, str] | None:
        """The languages that the model translates from and into, if they are known."""
        source, target = self.state.get("languages") or (None, None)
        return (source, target) if source and target else None

    @property
    def tuning(self) -> Tuning | None:
        """What of the model was trained, if not all of it. Raises CheckpointError for what a model can't have."""
        values = self.state.get("tuning")
        try:
            return None if values is None else Tuning.from_dict(values)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint's tuning is none of a model: {error}") from None

    def model_config(self) -> ModelConfig:
        """Return the configuration of the model, after a check that the checkpoint holds all of its weights.

        Raises CheckpointError for an unknown kind of model, for an invalid configuration, and for one whose model has
        more or fewer weights than the checkpoint holds.
        """
        try:
            config = config_from_dict(self.config)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"no model can be made from the checkpoint: {error}") from error
        self.check_floats()
        held = sum(array.size for name, array in self.parameters.items() if not is_adapter(name))
        held += sum(math.prod(weight.shape) for weight in self.quantized.values())
        if held != config.num_parameters or len(self.parameters) < config.num_layers_in_all:
            raise CheckpointError(
                f"the checkpoint holds {held:,} weights in {len(self.parameters):,} arrays, but its configuration is "
                f"of a model of {config.num_parameters:,} in {config.num_layers_in_all:,} layers"
            )
        return config

    def check_floats(self) -> None:
        """Raise CheckpointError, naming it, for a weight that is not of floating-point numbers."""
        for name, array in self.parameters.items():
            if array.dtype.kind != "f":
                raise CheckpointError(f"the checkpoint's {name} is of type {array.dtype}, expected floats")

    def model(self, ops: Ops = numpy_ops, dtype: str = "float32") -> Any:
        """Return the checkpoint's model, with adapters merged, but beside few bits. Raises as `tuned_model` does."""
        model = self.tuned_model(ops, dtype)
        return model.merged() if self.has_adapters and model.bits is None else model

    def tuned_model(self, ops: Ops = numpy_ops, dtype: str = "float32") -> Any:
        """Return the model as it was trained. Raises as `model_config` and `restore` do."""
        config, tuning, bits = self.model_config(), self.tuning, self.state.get("bits")
        if self.has_adapters or (tuning is not None and tuning.rank):
            try:  # before memory is taken for what a file says
                layers = config.model.declared(config, ops, dtype, tuning, bits).named_parameters()
            except ValueError as error:
                raise CheckpointError(f"the checkpoint's tuning is none of its model: {error}") from None
            held = {name: array.shape for name, array in self.parameters.items() if is_adapter(name)}
            if held != {name: each.shape for name, each in layers if is_adapter(name)}:
                raise CheckpointError("the checkpoint's adapters are not those that its tuning names")
        model = build_model(config, ops, dtype, seed=None, tuning=tuning, bits=bits)
        self.restore(model)
        return model

    @property
    def has_adapters(self) -> bool:
        """True if low-rank adapters stand beside the weights."""
        return any(map(is_adapter, self.parameters))

    def restore(self, model: Model) -> None:
        """Copy the weights into `model`. Raises CheckpointError, naming the fields, names or shapes that differ."""
        config = model.config.to_dict()
        ours, theirs = (each.get("kind", DEFAULT_KIND) for each in (self.config, config))
        if ours != theirs:
            raise CheckpointError(f"the checkpoint is of a {ours} model, not of a {theirs} one")
        if differences := _differences(self.config, config):
            raise CheckpointError(f"the checkpoint is of another configuration than the model: {differences}")
        if self.tuning != model.tuning:
            raise CheckpointError("the checkpoint is of a training of other parameters than the model's")
        parameters = model.parameters
        ours = {name: weight.shape for name, weight in self.quantized.items()}
        few = parameters.quantized.items()
        shapes = {name: each.shape[::-1] if each.transposed else each.shape for name, each in few}
        if ours != shapes:
            raise CheckpointError("the checkpoint's weights in few bits are not those of its model")
        parameters.set_quantized(self.quantized)
        try:
            parameters.load_state_dict(self.parameters)
        except ValueError as error:
            raise CheckpointError(f"the checkpoint's weights do not fit its configuration: {error}") from None


def _is_list(value: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(holds, value))


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


WHOLE = ("a whole number", _is_whole)
OBJECT = ("an object", lambda value: isinstance(value, dict))
TEXT = ("text or null", lambda value: value is None or isinstance(value, str))
LANGUAGES = ("two languages or null", lambda value: value is None or (_is_list(value, is_language) and len(value) == 2))
STEPS = ("a list of whole numbers", lambda value: _is_list(value, _is_whole))
FIELDS = {"version": WHOLE, "step": WHOLE, "config": OBJECT, "tokenizer": TEXT, "state": OBJECT}
STATE_FIELDS = {"settings": OBJECT, "data": OBJECT, "tokens": WHOLE, "languages": LANGUAGES, "averaged_steps": STEPS}
STATE_FIELDS |= {"tuning": OBJECT, "origin": TEXT, "objective": OBJECT}
STATE_FIELDS |= {"bits": ("8 or 4", lambda value: type(value) is int and value in (4, 8))}
"""For each field the name of its kind, and a function that tells whether a value has it. FIELDS are required."""


def save_checkpoint(path: str | Path, checkpoint: Checkpoint) -> None:
    """Write `checkpoint` to a temporary file and rename it to `path`. Raises OSError, with the reason, if it can't."""
    tensors = checkpoint.parameters | {OPTIMIZER_PREFIX + name: m for name, m in (checkpoint.optimizer or {}).items()}
    for name, weight in checkpoint.quantized.items():
        parts = {part: getattr(weight, part) for part in ("packed", "scales", "zeros")}
        tensors |= {f"{QUANTIZED_PREFIX}{name}.{part}": each for part, each in parts.items() if each is not None}
    description = {
        "sha256": _BLANK_DIGEST.decode(),
        "version": VERSION,
        "step": checkpoint.step,
        "config": checkpoint.config,
        "tokenizer": checkpoint.tokenizer,
        "state": checkpoint.state,
    }
    header, *arrays = file_parts(tensors, {"minitransformer": json.dumps(description)})
    hasher = hashlib.sha256(header)
    for array in arrays:
        hasher.update(array)
    with atomic_write(path) as file:
        file.writelines([header[:_DIGEST_START], hasher.hexdigest().encode(), header[_DIGEST_END:], *arrays])


def load_checkpoint(path: str | Path, with_optimizer: bool = True) -> Checkpoint:
    """Read and verify the checkpoint at `path`; without the optimiser's arrays it takes a third of the memory.

    Raises FileNotFoundError, or CheckpointError if the file is not a checkpoint, is truncated, has a single byte
    changed, was written in another version of the format, or has invalid content.
    """
    path = Path(path)
    _verify(path)
    try:
        return _read(path, with_optimizer)
    except ValueError as error:
        raise CheckpointError(f"{path} is not a checkpoint that this program can use: {error}") from None


def _read(path: Path, with_optimizer: bool) -> Checkpoint:
    """Read a file whose checksum is right. Raises ValueError if its content is not a checkpoint's."""
    metadata, tensors = read_header(path)
    description = _described(metadata["minitransformer"])
    parameters, optimizer, quantized = {}, {}, {}
    for name, tensor in tensors.items():
        if tensor.type not in TYPES:
            raise ValueError(f"{shortened(name)} is of type {tensor.type}, expected one of {', '.join(TYPES)}")
        if name.startswith(QUANTIZED_PREFIX):
            quantized[name.removeprefix(QUANTIZED_PREFIX)] = _finite(tensor, name)
        elif not name.startswith(OPTIMIZER_PREFIX):
            parameters[name] = _finite(tensor, name)
        elif with_optimizer:
            optimizer[name.removeprefix(OPTIMIZER_PREFIX)] = _finite(tensor, name)
    config, tokenizer, step, state = (description[name] for name in ("config", "tokenizer", "step", "state"))
    return Checkpoint(config, parameters, optimizer or None, tokenizer, step, state, _in_few_bits(quantized))


def _in_few_bits(arrays: Mapping[str, np.ndarray]) -> dict[str, Quantized]:
    """Return weights in few bits by name. Raises ValueError for arrays that are not those of weights."""
    found, unused = {}, set(arrays)
    for name in sorted({name.rpartition(".")[0] for name in arrays}):
        packed, scales, zeros = (arrays.get(f"{name}.{part}") for part in ("packed", "scales", "zeros"))
        unused -= {f"{name}.{part}" for part in ("packed", "scales", "zeros")}
        sizes = {np.dtype(np.int8): (8, 32), np.dtype(np.uint8): (4, 16)}  # bits, and the bytes of 32 weights
        kind = None if packed is None else sizes.get(packed.dtype)
        if packed is None or kind is None or packed.ndim != 3 or packed.shape[2] != kind[1] or scales is None:
            raise ValueError(f"{shortened(name)} is no weight in few bits")
        levels = [each for each in (scales, zeros) if each is not None]
        if any(each.shape != packed.shape[:2] or each.dtype != np.float32 for each in levels):
            raise ValueError(f"{shortened(name)} has other scales than its numbers need")
        scales, zeros = scales.astype(np.float16), None if zeros is None else zeros.astype(np.float16)  # as in the file
        found[name] = Quantized(packed, scales, zeros, kind[0])
    if unused:
        raise ValueError(f"{shortened(min(unused))} is no part of a weight in few bits")
    return found


def _described(text: str) -> dict[str, Any]:
    """Return the description in a file's metadata, checked. Raises ValueError, saying what is wrong with it."""
    try:
        description = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its description is not valid JSON ({error})") from None
    _check_sizes(description)
    if not isinstance(description, dict):
        raise ValueError("its description is not an object")
    if description.get("version") != VERSION:
        written = shortened(description.get("version"))
        raise ValueError(f"it has version {written} of the checkpoint format; this program reads {VERSION}")
    for values, kinds in ((description, FIELDS), (description.get("state", {}), STATE_FIELDS)):
        for name, (kind, holds) in kinds.items():
            if name not in values and kinds is FIELDS:
                raise ValueError(f"it has no {name}")
            if name in values and not holds(values[name]):
                raise ValueError(f"its {name} is {shortened(values[name])}, expected {kind}")
    return description


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _check_sizes(description: Any) -> None:
    """Raise ValueError for nesting too deep and for integers too long. It does not recurse, so depth can't harm it."""
    level, depth = [description], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"its description is nested more than {DEEPEST} levels deep")
        if any(isinstance(value, int) and abs(value) >= 1 << 63 for value in level):
            raise ValueError("its description holds an integer of more than 64 bits")
        lists = [list(value.values()) if isinstance(value, dict) else value for value in level]
        level = [value for values in lists if isinstance(values, list) for value in values]


def _finite(tensor: Tensor, name: str) -> np.ndarray:
    """Read a tensor. Raises ValueError for infinities and NaN."""
    array = tensor.read()
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds a number that is not finite")
    return array


def average_checkpoints(paths: Sequence[str | Path]) -> Checkpoint:
    """Return the arithmetic mean, taken in float64, of the weights of several checkpoints of one model.

    The paper averages the last 5 checkpoints of its base model and the last 20 of its big one, written every 10 minutes
    (Vaswani 2017, §6.1); here the interval is in steps. The result has the step, tokenizer and languages of the last
    checkpoint and no optimiser state. Raises ValueError without paths, and CheckpointError if configurations,
    tokenizers or shapes differ, or if weights are not floats.
    """
    if not paths:
        raise ValueError("paths is empty: there is no checkpoint to average")
    first = last = load_checkpoint(paths[0], with_optimizer=False)
    first.check_floats()
    if first.has_adapters:  # the mean of products is not the product of the means
        raise CheckpointError(f"{paths[0]} holds adapters, which can't be averaged beside their weights")
    shapes = {name: array.shape for name, array in first.parameters.items()}
    totals = {name: array.astype(np.float64) for name, array in first.parameters.items()}
    steps = [first.step]
    for path in paths[1:]:
        last = load_checkpoint(path, with_optimizer=False)
        last.check_floats()
        differences = (
            _differences(last.config, first.config, "it", "the first")
            or ("" if last.tokenizer == first.tokenizer else "their tokenizers differ")
            or _differences({name: array.shape for name, array in last.parameters.items()}, shapes, "it", "the first")
        )
        if differences:
            raise CheckpointError(f"{path} cannot be averaged with {paths[0]}: {differences}")
        for name, array in last.parameters.items():
            totals[name] += array
        steps.append(last.step)
    mean = {name: (totals[name] / len(paths)).astype(array.dtype) for name, array in first.parameters.items()}
    state = {"averaged_steps": steps, "languages": last.languages}
    state |= {"origin": last.state["origin"]} if "origin" in last.state else {}
    return Checkpoint(first.config, mean, tokenizer=first.tokenizer, step=last.step, state=state)


def checkpoint_path(folder: str | Path, step: int) -> Path:
    """Return the trainer's file for the checkpoint of `step`, such as `folder/step-00004000.safetensors`."""
    return Path(folder) / f"step-{step:08d}.safetensors"


def list_checkpoints(folder: str | Path) -> list[Path]:
    """Return the trainer's checkpoints in `folder`, the oldest first; an empty list if the folder does not exist."""
    paths = ((step_of(path), path) for path in Path(folder).glob("step-*"))
    return [path for _, path in sorted((step, path) for step, path in paths if step is not None)]


def step_of(path: Path) -> int | None:
    """Return the step in the name of a trainer's checkpoint; None for a file with another kind of name."""
    match = re.fullmatch(r"step-(\d+)\.safetensors", path.name)
    return int(match[1]) if match else None


def latest(folder: str | Path) -> Path | None:
    """Return the checkpoint of the highest step in `folder`, or None."""
    return (list_checkpoints(folder) or [None])[-1]


def prune_checkpoints(
    folder: str | Path, keep: int, interval: int, is_own: Callable[[Path], bool] = lambda path: True
) -> None:
    """Keep the last `keep` checkpoints at multiples of `interval` steps, and the last of all; remove the others.

    So a checkpoint that an interrupted training left between two multiples goes when the next one is written. A file
    for which `is_own` is false, which this training did not write, is never removed.
    """
    paths = list_checkpoints(folder)
    regular = [path for path in paths if (step_of(path) or 0) % interval == 0]
    for path in set(paths) - {*regular[-keep:], *paths[-1:]}:
        if is_own(path):
            path.unlink()


def description_of(path: Path) -> dict[str, Any]:
    """Return a checkpoint's description, read without any check or array; empty if the file is not a checkpoint."""
    if not path.is_file():
        return {}
    try:
        description = json.loads(read_header(path)[0]["minitransformer"])
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        return {}
    return description if isinstance(description, dict) else {}


def _verify(path: Path) -> None:
    """Compare the file with its own checksum, a block at a time."""
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder, not a checkpoint file")
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, f"there is no checkpoint {path}")
    if not path.is_file():
        raise CheckpointError(f"{path} is a device or a pipe, not a checkpoint file")
    with open(path, "rb") as file:
        start = file.read(_DIGEST_END)
        if start[8:_DIGEST_START] != _HEADER_START:
            what = "is empty" if not start else "does not begin like one"
            raise CheckpointError(f"{path} is not a minitransformer checkpoint: it {what}")
        hasher = hashlib.sha256(start[:_DIGEST_START] + _BLANK_DIGEST)
        while block := file.read(1 << 20):
            hasher.update(block)
    if hasher.hexdigest().encode() != start[_DIGEST_START:]:
        size = path.stat().st_size
        raise CheckpointError(f"{path} is truncated or damaged: its {size} bytes do not match the checksum in it")


def _differences(
    left: Mapping[str, Any], right: Mapping[str, Any], left_name: str = "the checkpoint", right_name: str = "the model"
) -> str:
    """Return a text that names the keys under which two mappings differ, with both values; empty if they are equal."""
    keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
    return ", ".join(
        f"{key} is {left.get(key)!r} in {left_name} and {right.get(key)!r} in {right_name}" for key in keys
    )
