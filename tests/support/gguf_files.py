"""GGUF files: those that the package gguf writes of a small model, and those with any byte that a test asks for."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from minitransformer.pretrained.gguf import PACKINGS

KINDS = {packing.name: gguf.GGMLQuantizationType(number) for number, packing in PACKINGS.items()}
SCALARS = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}


def packed(weights: np.ndarray, kind: str) -> np.ndarray:
    """Weights in a type that the package can write."""
    return gguf.quants.quantize(np.ascontiguousarray(weights), KINDS[kind])


def shuffled(weights: np.ndarray, heads: int) -> np.ndarray:
    """The rows of queries or keys as llama.cpp's converter puts them: those of a head's halves in turn."""
    halves = weights.reshape(heads, 2, len(weights) // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(weights.shape)


def write_gguf(
    path: Path,
    model: Any,
    kind: str = "F32",
    more: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Write a Llama, a Qwen or a Gemma of `transformers` as llama.cpp's converter does, matrices in this type.

    Those of the modules that `kinds` names are in others, vectors in float32.
    """
    config, family = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if family == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
        writer.add_sliding_window(config.sliding_window)
    for name, value in (more or {}).items():
        add(writer, name, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        array = tensor.float().numpy()
        array = shuffled(array, heads) if heads and family == "llama" else array
        array = array + np.float32(1) if family.startswith("gemma") and name.endswith("norm.weight") else array
        which = (kinds or {}).get(name.split(".")[-2], kind) if array.ndim > 1 else "F32"
        theirs: Any = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(theirs, packed(array, which), raw_dtype=KINDS[which])
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, np.array(values, np.float32))
    finish(writer)


def add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    """Add an entry of metadata, in the type that llama.cpp's converter takes for such a value."""
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, value)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def text(value: str | bytes) -> bytes:
    """A text: its length and its bytes."""
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def entry(name: str, value: Any) -> bytes:
    """An entry of metadata; bytes stand for a type and a value as they are in the file."""
    if isinstance(value, bytes):
        return text(name) + value
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    kind, letter = SCALARS[type(value)]
    return text(name) + struct.pack(f"<I{letter}", kind, value)


def tensor(name: str, shape: tuple[int, ...] = (4,), kind: int = 0, start: int = 0, axes: int | None = None) -> bytes:
    """The description of a tensor."""
    count = len(shape) if axes is None else axes
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", count, *reversed(shape), kind, start)


def whole(
    entries: Mapping[str, Any],
    tensors: tuple[bytes, ...] = (),
    numbers: bytes = b"",
    *,
    begin: bytes = b"GGUF\3\0\0\0",
    counts: tuple[int, int] | None = None,
    step: int = 32,
) -> bytes:
    """A file of such parts."""
    header = begin + struct.pack("<QQ", *(counts or (len(tensors), len(entries))))
    header += b"".join(entry(name, value) for name, value in entries.items()) + b"".join(tensors)
    return header + bytes(-len(header) % step) + numbers
