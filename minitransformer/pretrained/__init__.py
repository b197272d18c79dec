"""Weights from and to the files of other libraries: `load(folder)` and `save(model, folder)`.

    model, tokenizer = load("gpt2")
    logits, _ = model.forward([tokenizer.encode("Once upon a time")])

A folder is what Hugging Face's `save_pretrained` writes, for one of ARCHITECTURES. llama.cpp's GGUF file stands for
such a folder. Both may come from a stranger: they hold data, no code of theirs runs, and all sizes are checked before
memory is taken.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from ..layers import QuantizedParameter
from ..models import BERTConfig, Model, ModelConfig, T5Config, TransformerConfig
from ..ops import Ops, Quantized, numpy_ops
from ..ops.quantized import side_by_side
from ..system.allocator import memory_limit
from ..system.tensor_file import Tensor, parse_json
from . import marian, t5, unused
from .adapters import write_adapter
from .bert import BERT
from .distilbert import DISTILBERT
from .download import folder_of
from .errors import PretrainedError
from .files import (
    BESIDE,
    CONFIG,
    GENERATION,
    LONG_NAMES,
    WEIGHTS,
    find_tensors,
    narrowed,
    read_beside,
    read_json,
    some,
    write_json,
    write_tensors,
)
from .gemma import GEMMA, GEMMA2, GEMMA3
from .gguf import QUANTIZED, from_blocks
from .gguf_file import Packed, is_gguf
from .gguf_model import FAMILIES, folder_like
from .gpt2 import GPT2
from .llama import LLAMA
from .llama_relatives import MISTRAL, QWEN2, QWEN3
from .names import OUTPUT, Architecture, Row
from .roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from .tokenizers import (
    TOKENIZER_FILES,
    PretrainedTokenizer,
    load_tokenizer,
    save_tokenizer,
    tokenizer_from_json,
    tokenizer_in,
)
from .vit import DEIT, VIT

__all__ = [
    "ARCHITECTURES",
    "Origin",
    "PretrainedError",
    "PretrainedTokenizer",
    "labelled",
    "load",
    "save",
    "save_adapter",
    "tokenizer_from_json",
]

ARCHITECTURES = {
    each.name: each
    for each in (
        *(GPT2, MISTRAL, QWEN2, QWEN3, GEMMA, GEMMA2, GEMMA3, LLAMA),
        *(BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT),
        *(t5.T5, t5.MT5, marian.MARIAN, VIT, DEIT),
    )
}
"""By `model_type` of a folder's `config.json`; each says which kinds of model of `models.KINDS` it holds.

The first that can hold a model writes it, unless it came from a folder of another one.
"""

MISSING = {
    "phi3": "its maps to queries, keys and values are one tensor, and so are gate and up",
    "gpt_neox": "attention and feed-forward network read the same input, side by side",
    "gpt_neo": "every second layer has a window, and its scores are not divided by √d_k",
    "opt": "the positions of its decoder begin at row 2 of their table",
    "olmo2": "it has norms of sub-layers' outputs and none before them, and norms over all heads at once",
    "electra": "its head tells replaced tokens from others, and its embedding has another width than its layers",
    "albert": "all its layers are one, and its embedding has another width than its layers",
    "modernbert": "it is a BERT with gates, rotations of two speeds and windows in turn",
    "mpnet": "its attention has relative positions, of T5's kind, beside the learned ones of its embedding",
    "bart": "the positions of its encoder and decoder are learned and begin at row 2 of their tables",
}
"""The parts of other common kinds of model that are missing here, by `model_type`."""

MARKS = ("bos_token_id", "eos_token_id", "decoder_start_token_id")
"""The special tokens for which `generation_config.json` goes before `config.json`."""


@dataclass(frozen=True)
class Origin:
    """The content of a folder beside the weights of its model, for the way back.

    name: that of the folder, as the user wrote it; config: our configuration of it; values and generation: its
    `config.json` and `generation_config.json`; types: those of its tensors, by name, as safetensors calls them; beside:
    the content of its other JSON files, by their paths, which say how pictures become inputs and hidden states the
    vector of a text.
    """

    name: str
    config: ModelConfig
    values: Mapping[str, Any]
    generation: Mapping[str, Any]
    types: Mapping[str, str]
    beside: Mapping[str, Any]

    def to_json(self) -> str:
        """Return all but our configuration as a JSON text, for a checkpoint."""
        return json.dumps([self.values, self.generation, self.types, self.beside, self.name])

    @classmethod
    def from_json(cls, config: ModelConfig, text: str) -> "Origin":
        """Return the origin that `to_json` wrote. Raises PretrainedError for another text."""
        try:
            parts = parse_json(text.encode())
        except (ValueError, RecursionError) as error:
            raise PretrainedError(f"the checkpoint's origin is not valid JSON: {error}") from None
        kinds = list(map(type, parts)) if isinstance(parts, list) else None
        if kinds != [dict, dict, dict, dict, str] or parts[0].get("model_type") not in [*ARCHITECTURES]:
            raise PretrainedError("the checkpoint's origin is not that of a supported model")
        *values, name = parts
        return cls(name, config, *values)


class Source(NamedTuple):
    """A folder or a GGUF file, and what it says of its model.

    config: the file with the configuration, for messages; values, generation and beside: as in `Origin`; tensors and
    tokenizer: functions that find them, the second for a kind of model; metadata: a GGUF file's.
    """

    place: Path
    config: Path
    values: Mapping[str, Any]
    generation: Mapping[str, Any]
    beside: Mapping[str, Any]
    tensors: Callable[[], Mapping[str, Tensor]]
    tokenizer: Callable[[str], Any]
    metadata: Mapping[str, Any] | None = None


class Found(NamedTuple):
    """A model that can be loaded: what holds it, its architecture, our configuration, and its tensors, not read yet.

    rows: how parameters and tensors belong together; types: those of all tensors, by name, as in `Origin`.
    """

    source: Source
    architecture: Architecture
    config: Any
    rows: list[Row]
    tensors: Mapping[str, Tensor]
    types: Mapping[str, str]

    def unused(self) -> dict[str, list[str]]:
        """Return the names of what is there and not used, by where it stands: see `unused`."""
        place, _, values, generation, beside, *_ = self.source
        known = {name for row in self.rows for name in row.theirs}
        if self.source.metadata is None:
            weights = {tensor.path for tensor in self.tensors.values()}
            found = unused.in_folder(place, values, generation, beside, MARKS, self.architecture.keys, weights)
        else:
            found = unused.in_gguf(self.source.metadata)
        return {**found, "tensors": sorted(self.tensors.keys() - known)}


def _source(folder_or_name: str | Path) -> Source:
    """Open a GGUF file, a folder, or the folder of a name."""
    path = Path(folder_or_name)
    if is_gguf(path):
        values, tensors, metadata = folder_like(path)
        found = lambda: tensors, lambda kind: tokenizer_in(path, metadata, values)
        return Source(path, path, values, {}, {}, *found, metadata)
    folder = folder_of(folder_or_name)
    values = read_json(folder / CONFIG)
    generation = read_json(folder / GENERATION) if (folder / GENERATION).is_file() else {}
    find, tokenizer = partial(find_tensors, folder), partial(load_tokenizer, folder, values=values)
    return Source(folder, folder / CONFIG, values, generation, read_beside(folder), find, tokenizer)


def load(
    folder_or_name: str | Path, ops: Ops = numpy_ops, dtype: str = "float32", bits: int | None = None
) -> tuple[Any, Any]:
    """Return the model in a folder or a GGUF file and its tokenizer or `None`; another name is downloaded.

    The tokens that begin and end a text are those of `generation_config.json` where it names some; its other settings,
    which say how to search or to draw, are in `model.origin.generation` and go back with `save`.

    With `bits`, 8 or 4, linear maps are in so many bits and the tables of tokens in 8, each rounded as it is read: the
    model in float is never in memory. What a GGUF file has in so many bits or fewer is taken as it is (Q8_0, Q4_0 and
    Q4_1). Norms, biases and positions stay in `dtype`, and so do matrices whose C_in is no multiple of 32.

    Raises FileNotFoundError for a missing file and PretrainedError for a folder without a model that can be run here:
    damaged files, options or kinds of model that are not supported, tensors that are missing, too many or not the
    copies that they should be.
    """
    source, architecture, config, rows, tensors, types = look(folder_or_name)
    _check_memory(source.place, config, dtype, bits)
    tokenizer = source.tokenizer(architecture.name)
    if isinstance(config, BERTConfig) and config.mask_id is None and tokenizer is not None:
        config = replace(config, mask_id=tokenizer.mask_id)
    model = config.model.blank(config, ops, dtype, bits=bits)
    _fill(model, rows, tensors)
    model.origin = Origin(str(folder_or_name), config, source.values, source.generation, types, source.beside)
    return model, tokenizer


def look(folder_or_name: str | Path) -> Found:
    """Return what `load` would load, without reading the weights. Raises as `load` does, but for too little memory."""
    source = _source(folder_or_name)
    folder, values = source.place, source.values
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        known, missing = ", ".join(ARCHITECTURES), MISSING.get(kind) if isinstance(kind, str) else None
        why = f": {missing}; supported are {known}" if missing else f", only {known}"
        raise PretrainedError(f"{source.config}: model_type {kind!r} is not supported{why}")
    architecture = ARCHITECTURES[kind]
    _check_head(folder, architecture, values.get("architectures"))
    generation = source.generation
    tensors = _canonical(architecture, source.tensors())
    types = {name: tensor.type for name, tensor in tensors.items()}
    tensors = _without_copies(folder, architecture, tensors, values.get("tie_word_embeddings", architecture.tied))
    marks = {name: generation[name] for name in MARKS if generation.get(name) is not None}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    try:
        config = architecture.from_config({**architecture.keys.checked(values), **marks}, shapes)
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise PretrainedError(f"{source.config}: {error}") from None
    _check_constant(folder, architecture, config, tensors)
    if config.num_layers_in_all > len(tensors):
        layers = config.num_layers_in_all
        raise PretrainedError(f"{folder} holds {len(tensors):,} tensors, but its configuration has {layers:,} layers")
    rows = architecture.table(config)
    _check(folder, architecture, config, rows, tensors)
    return Found(source, architecture, config, rows, tensors, types)


def _check_head(folder: Path, architecture: Architecture, classes: Any) -> None:
    """Raise PretrainedError, saying what the folder holds, unless it is of a class whose head is known here."""
    names = [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []
    known = {name.casefold() for name in architecture.heads}
    if names and not known & {name.casefold() for name in names}:
        raise PretrainedError(
            f"{folder} holds a {names[0]}, which is not supported, only {some([*architecture.heads])}"
        )


def _check_constant(folder: Path, architecture: Architecture, config: Any, tensors: Mapping[str, Tensor]) -> None:
    """Raise PretrainedError for an array that a model computes by itself, with other numbers than its own."""
    pattern, computed = architecture.constant
    for name in sorted(each for each in tensors if re.fullmatch(pattern, each)):
        its_own = tensors[name].shape == (config.max_length, config.d_model)
        if its_own and not np.allclose(tensors[name].read(), computed(config), atol=5e-3):  # it may be bfloat16
            raise PretrainedError(f"{folder}: {name} is not what such a model computes")


def _without_copies(
    folder: Path, architecture: Architecture, tensors: Mapping[str, Tensor], tied: Any
) -> dict[str, Tensor]:
    """Return the tensors without those that are copies of another; one whose original is missing takes its place.

    Raises PretrainedError for one that differs, but for an output layer that may have a table of its own.
    """
    kept = dict(tensors)
    for pattern, original in architecture.copies:
        for name in sorted(each for each in tensors if re.fullmatch(pattern, each)):
            may_differ = name == OUTPUT and architecture.unties
            if may_differ and not tied:
                continue
            if original not in kept:
                kept[original] = kept.pop(name)
            elif kept[original].equals(kept[name]):
                del kept[name]
            elif not may_differ:
                raise PretrainedError(f"{folder}: {name} and {original} differ, but they are one array in such a model")
    return kept


def _canonical(architecture: Architecture, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    named = {architecture.canonical(name): tensor for name, tensor in tensors.items()}
    if all(name.startswith(architecture.top) for name in named):  # a model without a head has no name before its parts
        named = {name.removeprefix(architecture.top): tensor for name, tensor in named.items()}
    if len(named) < len(tensors):
        raise PretrainedError("the folder holds one tensor under two names, an old one and a new one")
    return named


def _check(
    folder: Path, architecture: Architecture, config: ModelConfig, rows: list[Row], tensors: Mapping[str, Tensor]
) -> None:
    """Raise PretrainedError unless the tensors are the table's, in name, shape and type."""
    shapes = {name: shape for row in rows for name, shape in zip(row.theirs, row.shapes, strict=True)}
    missing = sorted(shapes.keys() - tensors.keys() - {"final_logits_bias"})
    if missing:
        raise PretrainedError(f"{folder} lacks {len(missing):,} tensors of its model: {some(missing)}")
    surplus = sorted(name for name in tensors.keys() - shapes.keys() if not re.fullmatch(architecture.ignored, name))
    if surplus:
        raise PretrainedError(f"{folder} holds {len(surplus):,} tensors that its model does not have: {some(surplus)}")
    for name, shape in shapes.items():
        tensor = tensors.get(name)
        if tensor is not None and tensor.shape != shape:
            raise PretrainedError(f"{folder}: {name} has shape {tensor.shape}, but its configuration says {shape}")
        if tensor is not None and not tensor.readable:
            known = ", ".join(LONG_NAMES)
            raise PretrainedError(f"{folder}: {name} is of type {tensor.type}, which is not supported, only {known}")


def _fill(model: Model, rows: list[Row], tensors: Mapping[str, Tensor]) -> None:
    """Copy their tensors into the parameters."""
    for row in rows:
        if row.theirs == ("final_logits_bias",) and row.theirs[0] not in tensors:
            continue  # zeros
        if (few := model.parameters.quantized.get(row.ours)) is not None:
            model.parameters.set_quantized({row.ours: _in_few_bits(few, row, tensors)})
            continue
        parameter = model.parameters.named[row.ours]
        if row.is_as_theirs:
            flat = parameter.data.reshape(-1)
            for part, piece in tensors[row.theirs[0]].pieces():
                flat[part] = model.ops.asarray(piece, model.dtype)
        else:
            columns, start = parameter.data.reshape(-1, parameter.shape[-1]), 0
            for name, width in zip(row.theirs, row.widths, strict=True):  # one at a time in memory
                place = columns[:, start : start + width]
                place[...] = model.ops.asarray(row.to_ours(tensors[name].read(), place.shape), model.dtype)
                start += width
    model.parameters.refresh()


def _in_few_bits(parameter: QuantizedParameter, row: Row, tensors: Mapping[str, Tensor]) -> Quantized:
    """Return the value of a parameter in few bits: as a GGUF file has it, or rounded, one tensor after the other."""
    theirs = [tensors[name] for name in row.theirs]
    kinds = {tensor.type for tensor in theirs}
    if kinds <= {kind for (bits, _), kind in QUANTIZED.items() if bits <= parameter.bits} and len(kinds) == 1:
        parts = [from_blocks(tensor.type, cast(Packed, tensor).rows()) for tensor in theirs]
    else:
        parts = list[Quantized]()
        for tensor, width in zip(theirs, row.widths, strict=True):
            shape = parameter.shape if parameter.transposed else (parameter.shape[0], width)
            parts.append(parameter.rounded(row.to_ours(tensor.read(), shape)))
    return side_by_side(parts)


def _check_memory(folder: Path, config: ModelConfig, dtype: str, bits: int | None) -> None:
    """Raise PretrainedError if the weights alone are more than this process may hold."""
    needed, limit = config.weight_bytes("float64" if "64" in str(dtype) else "float32", bits), memory_limit()
    if limit is not None and needed > limit:
        raise PretrainedError(f"{folder} needs {needed:,} bytes for its weights, and there are {limit:,}")


def save(model: Model, folder: str | Path, tokenizer: Any = None, bits: int | None = None) -> None:
    """Write a model, and its tokenizer, as `transformers` reads it with `from_pretrained`. Makes the folder.

    A name that ends in `.gguf` is that of one file, which llama.cpp reads, too. There matrices are in few bits where
    the model's are, or in `bits`, 8 (Q8_0) or 4 (Q4_1; tables of tokens: Q8_0), and all else is in float32.

    tokenizer: a `BPETokenizer`, or one that was loaded. A Transformer of the paper's becomes a Marian. A model that was
    loaded goes back as it came: with its folder's settings, and in bfloat16 or float16 if it was in these types and
    they still hold its weights exactly; otherwise in the model's own type. Raises PretrainedError, naming the option,
    for what the other's files can't express, before anything is written, and OSError for files that can't be. The
    configuration is written last: without it no half of a model can be loaded. Adapters are merged into the weights,
    and weights in few bits are written as the numbers that they stand for.
    """
    if Path(folder).suffix == ".gguf":
        _save_gguf(model, Path(folder), tokenizer, bits)
    elif bits is not None:
        raise ValueError(f"bits go into a file whose name ends in .gguf, got {folder}")
    else:
        adapted = model.tuning is not None and model.tuning.rank
        _save_folder(model.merged() if model.bits or adapted else model, Path(folder), tokenizer)


def _save_folder(model: Model, folder: Path, tokenizer: Any) -> None:
    """Write a model of floats without adapters."""
    architecture = _architecture_of(model)
    values = architecture.to_config(model.config)
    named = {name: model.ops.to_numpy(each.data) for name, each in model.parameters.named.items()}
    if isinstance(model.config, TransformerConfig):
        named = marian.in_halves(named, model.config.vocab_size)
    if isinstance(model.config, T5Config) and model.config.scaled_scores:
        named = t5.with_small_queries(named, model.config)
    tensors = {}
    for row in architecture.table(model.config):
        tensors |= row.to_theirs(named[row.ours])
    origin, dtype, beside = model.origin, model.dtype, dict[str, Any]()
    generation = {name: values[name] for name in (*MARKS, "pad_token_id", "forced_eos_token_id") if name in values}
    generation = generation if values.get("is_encoder_decoder") else {}
    if origin is not None and origin.config == model.config:
        values = {**origin.values, "architectures": values["architectures"]}
        older = values.pop("torch_dtype", None)
        if (half := narrowed(tensors, origin.types)) is not None:
            types = list(origin.types.values())
            tensors, dtype = half, values.get("dtype") or older or LONG_NAMES[max(LONG_NAMES, key=types.count)]
        generation, beside = origin.generation, origin.beside
    for name in (CONFIG, GENERATION, *BESIDE, *(TOKENIZER_FILES if tokenizer is not None else ())):
        for path in folder.glob(name):  # may be another model's
            path.unlink()
    if generation:
        write_json(folder / GENERATION, generation)
    for name, content in beside.items():
        write_json(folder / name, content)
    write_tensors(folder / WEIGHTS, tensors)
    if tokenizer is not None:
        save_tokenizer(tokenizer, folder, model.config)
    write_json(folder / CONFIG, {**values, "dtype": dtype})


def _save_gguf(model: Model, path: Path, tokenizer: Any, bits: int | None) -> None:
    """Write a model as a GGUF file. Raises PretrainedError for one that such a file can't hold."""
    from .gguf_writing import write_model

    if not isinstance(tokenizer, PretrainedTokenizer | None):
        raise PretrainedError(f"a {type(tokenizer).__name__} can't be written in a GGUF file, only one that was loaded")
    if (model.tuning is not None and model.tuning.rank) or bits not in (None, model.bits):
        model = model.merged()
    if bits is not None and model.bits is None:
        model = model.quantized(bits)
    name = _architecture_of(model).name
    if name not in FAMILIES and name != "mistral":  # whose files are Llama's, too
        raise PretrainedError(f"a model as of {name} can't be written in a GGUF file, only {', '.join(FAMILIES)}")
    architecture = ARCHITECTURES[name if name in FAMILIES else "llama"]
    write_model(path, model, architecture.to_config(model.config), architecture.table(model.config), tokenizer)


def save_adapter(model: Model, folder: str | Path) -> None:
    """Write the adapters of a loaded model, which was `tuned`, as the package PEFT reads them. Makes the folder.

    What else of the model is trained, such as a new head, goes with them. Raises as `save` does, and PretrainedError
    for a model without adapters, or one that came from no folder.
    """
    write_adapter(model, Path(folder), _architecture_of(model).table(model.config))


def labelled(model: Model, origin: Origin | None, name: str, labels: Sequence[str]) -> Origin:
    """Return the origin of a model whose head is new, for these labels; it was made from one of this origin, or name.

    Raises PretrainedError for a model that can't be written.
    """
    architecture = _architecture_of(model) if origin is None else ARCHITECTURES[origin.values["model_type"]]
    names = {"id2label": {str(i): each for i, each in enumerate(labels)}}
    names |= {"label2id": {each: i for i, each in enumerate(labels)}}
    values = (dict(origin.values) if origin else {}) | architecture.to_config(model.config) | names
    return Origin(origin.name if origin else name, model.config, values, {}, {}, origin.beside if origin else {})


def _architecture_of(model: Model) -> Architecture:
    """Return the architecture whose files can hold a model: its own. Raises PretrainedError if none can."""
    config, origin = model.config, model.origin
    if origin is not None and origin.config == config:
        return ARCHITECTURES[origin.values["model_type"]]
    for architecture in ARCHITECTURES.values():
        if config.kind in architecture.kinds and architecture.holds(config):
            return architecture
    raise PretrainedError(f"a model of kind {config.kind!r} can't be written in another library's files")
