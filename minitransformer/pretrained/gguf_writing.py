"""GGUF files, written: what `gguf_file.py`, `gguf_model.py` and `gguf_tokenizer.py` read, the other way round."""

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..layers import RotaryConfig
from ..models import GPTConfig, Model
from ..system.atomic import atomic_write
from . import gguf_tokenizer
from .errors import PretrainedError
from .gguf import PACKINGS, as_blocks
from .gguf_file import LIST, MAGIC, SCALARS, TEXT
from .gguf_model import FAMILIES, OPTIONS, STRETCHED, Family
from .names import Row, require_ours
from .tokenizers import PretrainedTokenizer

ALIGN, VERSION = 32, 3
NUMBERS = {packing.name: number for number, packing in PACKINGS.items()}
FILE_TYPES = {"F32": 0, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7}
"""What llama.cpp calls a file by, `general.file_type`: the type of most of its matrices."""

NORMAL, UNUSED = 1, 5
"""Kinds of tokens beside those of `gguf_tokenizer`: ordinary ones, and rows of the table that no token has."""

PROBES = (
    "It's 1234567 o'clock,\n\n  isn't  it?\tYES! ",
    "Größe 3.14 «ça» 日本語 🙂",
    " a  b",
    "x(y)+=1;\r\n\r\n}",
    "",
)
"""Texts by which a tokenizer in a file is compared with the one that was written."""


class Content(NamedTuple):
    """A tensor as a file holds it: its type, its bytes, row by row, and its shape."""

    kind: str
    bytes: np.ndarray
    shape: tuple[int, ...]


def write_model(
    path: Path, model: Model[Any], values: Mapping[str, Any], rows: list[Row], tokenizer: PretrainedTokenizer | None
) -> None:
    """Write a model, in few bits or in float, as one file, which appears whole or not at all.

    values, rows: the `config.json` and the tensors of its folder. Raises PretrainedError, before anything is written,
    for parts and tokenizers that llama.cpp's files can't express.
    """
    config, family = model.config, FAMILIES[values["model_type"]]
    require_ours(config, "a GGUF file", activation=family.activation, sparse=family.sparse)
    if family.sparse is None:
        require_ours(config, "a GGUF file", window=None)
    if family.added:  # a Gemma
        require_ours(config, "a GGUF file", attention_bias=False, tied=True)
    tensors = dict[str, Content]()
    for row in rows:
        tensors |= _tensors(model, row, family, values)
    rotary = config.rotary or RotaryConfig()
    if rotary.factor is not None:
        tensors[STRETCHED] = _plain(_divisors(rotary, values["head_dim"]))
    kinds = [each.kind for each in tensors.values() if len(each.shape) > 1]
    metadata: dict[str, Any] = {
        "general.architecture": values["model_type"],
        "general.type": "model",
        "general.file_type": FILE_TYPES[max(FILE_TYPES, key=kinds.count)],
        "general.quantization_version": 2,
    }
    more = {"rope.freq_base": float(rotary.theta), "rope.dimension_count": values["head_dim"]}
    options = {ours: values[theirs] for ours, theirs in {**OPTIONS, **family.options}.items()} | more
    for name, value in family.implied(values).items():
        if values[name] != value:
            raise PretrainedError(f"{name} {values[name]} can't be written as a GGUF file, only {value}")
    if lacking := [name for name, value in options.items() if value is None]:
        raise PretrainedError(f"a GGUF file needs {', '.join(lacking)}, which the model does not have")
    options["attention.value_length"] = values["head_dim"]
    metadata |= {f"{values['model_type']}.{name}": value for name, value in options.items()}
    _write(path, metadata | _tokens(tokenizer, config), tensors)


def _tensors(model: Model[Any], row: Row, family: Family, values: Mapping[str, Any]) -> dict[str, Content]:
    """Return the file's tensors of one of our parameters."""
    names, found, start = {theirs: ours for ours, theirs in family.names.items()}, dict[str, Content](), 0
    few = model.parameters.quantized.get(row.ours)
    arrays = {} if few else row.to_theirs(model.ops.to_numpy(model.parameters.named[row.ours].data))
    for theirs, shape in zip(row.theirs, row.shapes, strict=True):
        module, _, kind = theirs.rpartition(".")
        layer = re.match(r"model\.layers\.(\d+)\.", module)
        part = names[module[layer.end() :] if layer else module]
        if few is None:
            array = arrays[theirs]
            content = _plain(array + family.added if part.endswith("norm") else array)
        else:
            columns = slice(start, start + shape[0])
            weight = few.value.mapped(lambda each, columns=columns: model.ops.to_numpy(each[columns]))
            content, start = Content(*as_blocks(weight), shape), columns.stop
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(part)
        if family.turned and heads is not None:
            content = content._replace(bytes=_turned(content.bytes, values[heads]))
        found[f"blk.{layer[1]}.{part}.{kind}" if layer else f"{part}.{kind}"] = content
    return found


def _plain(array: Any) -> Content:
    array = np.ascontiguousarray(array, "<f4")
    return Content("F32", array.reshape(len(array), -1).view(np.uint8), array.shape)


def _turned(rows: np.ndarray, heads: int) -> np.ndarray:
    """Put the rows of each head's two halves in turn, as `gguf_file.Packed` says."""
    return rows.reshape(heads, 2, len(rows) // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def _divisors(rotary: RotaryConfig, width: int) -> list[float]:
    """Return by how much each of Llama 3.1's rotations is slower than without stretching."""
    pairs = zip(RotaryConfig(theta=rotary.theta).frequencies(width), rotary.frequencies(width), strict=True)
    return [plain / stretched for plain, stretched in pairs]


# --- The tokenizer --------------------------------------------------------------------------------------------


def _tokens(tokenizer: PretrainedTokenizer | None, config: GPTConfig) -> dict[str, Any]:
    """Return the metadata of a tokenizer. Raises PretrainedError if no file's tokenizer does the same."""
    ids = [config.eos_id, *config.other_eos_ids]
    if len(ids) > len(("eos", "eot", "eom")):
        raise PretrainedError(f"a GGUF file names three tokens that end a text, and the model has {len(ids)}")
    marks = {"bos": config.bos_id, **dict(zip(("eos", "eot", "eom"), ids, strict=False))}
    if tokenizer is None:
        return {"tokenizer.ggml.model": "none"} | _marked(marks)
    inner = json.loads(tokenizer.inner.to_str())
    added = {each["id"]: each["special"] for each in inner["added_tokens"]}
    named = {**inner["model"]["vocab"], **{each["content"]: each["id"] for each in inner["added_tokens"]}}
    tokens = [f"[UNUSED{i}]" for i in range(config.vocab_size)]
    kinds = np.full(config.vocab_size, UNUSED, np.int32)
    for token, index in named.items():
        kind = gguf_tokenizer.CONTROL if added.get(index) else gguf_tokenizer.USER_DEFINED if index in added else NORMAL
        tokens[index], kinds[index] = token, kind
    marks |= {name: tokenizer.inner.token_to_id(tokenizer.mark(f"{name}_token") or "") for name in ("unk", "pad")}
    marks = {{"unk": "unknown", "pad": "padding"}.get(name, name): index for name, index in marks.items()}
    before, _, after = tokenizer.around("a")
    shared = {"tokens": tokens, "token_type": kinds, "add_bos_token": bool(before), "add_eos_token": bool(after)}
    merges = [each if isinstance(each, str) else " ".join(each) for each in inner["model"].get("merges", [])]
    scores = -np.arange(config.vocab_size, dtype=np.float32)
    ways: list[dict[str, Any]] = [
        {"model": "gpt2", "pre": pre, "merges": merges, "add_space_prefix": False} for pre in gguf_tokenizer.WORDS
    ]
    ways += [{"model": "llama", "scores": scores, "add_space_prefix": prefix} for prefix in (True, False)]
    for way in ways:
        metadata = {f"{gguf_tokenizer.PREFIX}{name}": value for name, value in (shared | way).items()}
        metadata |= _marked(marks)
        if _reads_alike(metadata, tokenizer):
            template = tokenizer.template or tokenizer.options.get("chat_template")
            return metadata | ({"tokenizer.chat_template": template} if isinstance(template, str) else {})
    raise PretrainedError("the tokenizer can't be written in a GGUF file, only byte pairs as GPT-2's or Llama's")


def _marked(marks: Mapping[str, int | None]) -> dict[str, int]:
    return {f"{gguf_tokenizer.PREFIX}{name}_token_id": index for name, index in marks.items() if index is not None}


def _reads_alike(metadata: Mapping[str, Any], tokenizer: PretrainedTokenizer) -> bool:
    """Return True if the tokenizer of this metadata gives some texts the ids that they have."""
    try:
        inner, _ = gguf_tokenizer.tokenizer_of(metadata)
        pairs = [(inner.encode(text).ids, tokenizer.encode(text, special_tokens=True)) for text in PROBES]
    except Exception:  # the package's errors have no type of their own
        return False
    return all(ours == theirs for ours, theirs in pairs)


# --- The file -------------------------------------------------------------------------------------------------


def _write(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Content]) -> None:
    """Write a file: its header, and the tensors' bytes, each at a multiple of ALIGN."""
    header = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    header += [_text(name) + _value(value) for name, value in metadata.items()]
    start = 0
    for name, (kind, content, shape) in tensors.items():
        header.append(_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape)))
        header.append(struct.pack("<IQ", NUMBERS[kind], start))
        start += content.nbytes + -content.nbytes % ALIGN
    whole = b"".join(header)
    with atomic_write(path) as file:
        file.write(whole + bytes(-len(whole) % ALIGN))
        for _, content, _ in tensors.values():
            file.write(np.ascontiguousarray(content).data)
            file.write(bytes(-content.nbytes % ALIGN))


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _value(value: Any) -> bytes:
    """Return a value with its type before it, in the types that llama.cpp's converter chooses."""
    if isinstance(value, str):
        return struct.pack("<I", TEXT) + _text(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", LIST, TEXT, len(value)) + b"".join(map(_text, value))
    numbers = {letter: number for number, letter in SCALARS.items()}
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", LIST, numbers[value.dtype.char], len(value)) + value.tobytes()
    letter = {bool: "?", int: "I", float: "f"}[type(value)]
    return struct.pack(f"<I{letter}", numbers[letter], value)
