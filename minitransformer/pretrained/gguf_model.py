"""The models in GGUF files, as the folders that they were converted from: options and names of tensors.

Another architecture is another row in `FAMILIES`, if its folder's `model_type` is in `ARCHITECTURES`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ..layers import RotaryConfig, SparseConfig
from ..system.tensor_file import Tensor
from .errors import PretrainedError
from .gguf_file import Content, opened
from .keys import Keys, words

OPTIONS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "context_length": "max_position_embeddings",
    "vocab_size": "vocab_size",
}
"""The names of options in a GGUF file, after that of the architecture, and in a folder's `config.json`."""

KEYS = Keys(
    obeyed=words("rope.freq_base rope.dimension_count attention.value_length", OPTIONS),
    supported={
        "rope.scaling.type": "none",
        "rope.scaling.factor": 1.0,
        "rope.scale_linear": 1.0,
        "attention.causal": True,
        "attention.sliding_window": 0,
        "expert_count": 0,
        "expert_used_count": 0,
        "tensor_data_layout": "Meta AI original pth",
    },
    idle=words("rope.scaling.original_context_length rope.scaling.finetuned"),
)

MARKS = {"bos_token_id": ["bos"], "eos_token_id": ["eos", "eot", "eom"], "pad_token_id": ["padding"]}
"""Special tokens of a folder, and of a file: a text ends with any of the three in the second line."""

STRETCHED = "rope_freqs.weight"
"""The tensor by which Llama 3.1's slow rotations are divided."""

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""The parts of Llama's names in a file and in a folder."""

HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
"""Those of Qwen 3's own parts."""

MORE_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""Those of Gemma 2's four norms that are named otherwise than Llama's two."""

LARGEST_GEMMA2 = 46
"""The layers of Gemma 2's model of 27 billion parameters, by which llama.cpp knows it: see `_gemma2`."""


@dataclass(frozen=True)
class Family:
    """An architecture of llama.cpp's.

    model_type     that of its folders
    names          the parts of its tensors' names in a file and in a folder
    turned         True if the rows of queries and keys come in pairs (`gguf_file.Packed`)
    biases         names of a folder's options that say whether a linear map has a bias, with such a bias in the file
    added          what a file's norms are more than a folder's
    options        more names of options than `OPTIONS`
    implied        the options of a folder that llama.cpp makes of others
    activation     the only one of ours that its files have
    sparse         the layers without a window, in files that have windows
    """

    model_type: str
    names: Mapping[str, str]
    turned: bool = False
    biases: Mapping[str, str] | None = None
    added: float = 0.0
    options: Mapping[str, str] = field(default_factory=dict)
    implied: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda values: {}
    activation: str = "silu"
    sparse: SparseConfig | None = None

    @property
    def keys(self) -> Keys:
        """The options that are read, after the architecture's name."""
        supported = {name: value for name, value in KEYS.supported.items() if name not in self.options}
        return replace(KEYS, obeyed=KEYS.obeyed | self.options.keys(), supported=supported)


def _gemma2(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return by the root of which width scores are divided: a head's, but in the largest model d_model / H."""
    width, heads = values.get("hidden_size"), values.get("num_attention_heads")
    if values.get("num_hidden_layers") == LARGEST_GEMMA2 and isinstance(width, int) and isinstance(heads, int):
        return {"query_pre_attn_scalar": width // max(1, heads)}
    return {"query_pre_attn_scalar": values.get("head_dim")}


FAMILIES = {
    "llama": Family(
        "llama",
        NAMES,
        turned=True,
        biases={"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"},
    ),
    "qwen2": Family("qwen2", NAMES),
    "qwen3": Family("qwen3", NAMES | HEAD_NORMS),
    "gemma": Family("gemma", NAMES, added=1.0, activation="gelu_tanh"),
    "gemma2": Family(
        "gemma2",
        NAMES | MORE_NORMS,
        added=1.0,
        options={
            "attention.sliding_window": "sliding_window",
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        implied=_gemma2,
        activation="gelu_tanh",
        sparse=SparseConfig(full_every=2),
    ),
}
"""By `general.architecture`."""


def folder_like(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], Mapping[str, Any]]:
    """Return what the folder of a file's model would hold: `config.json` and the tensors; and the file's metadata.

    Raises PretrainedError for architectures and options that are not supported.
    """
    content = opened(path)
    metadata = content.metadata
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in FAMILIES:
        raise PretrainedError(
            f"{path}: the architecture {shortened(name)} is not supported, only {', '.join(FAMILIES)}"
        )
    if metadata.get("general.type", "model") != "model" or metadata.get("split.count", 1) not in (0, 1):
        raise PretrainedError(f"{path} is not a whole model: it is an adapter, or one of several parts")
    family = FAMILIES[name]
    options = {key.removeprefix(f"{name}."): each for key, each in metadata.items() if key.startswith(f"{name}.")}
    for key, value in options.items():
        if isinstance(value, list | np.ndarray):
            raise PretrainedError(f"{path}: {name}.{key} is a list, and only layers that are all alike are supported")
    try:
        values = _config(family, family.keys.checked(options), content)
    except PretrainedError as error:
        raise PretrainedError(f"{path}: {error}") from None
    tensors: dict[str, Tensor] = {}
    for theirs, tensor in content.tensors.items():
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(theirs.split(".")[-2:][0])
        if family.turned and heads is not None and theirs.startswith("blk."):
            count = values[heads]
            if type(count) is not int or count < 1 or tensor.shape[0] % (2 * count):
                raise PretrainedError(f"{path}: {theirs} has {tensor.shape[0]} rows, not those of {count} heads")
            tensor = replace(tensor, heads=count)
        if theirs.endswith("norm.weight"):
            tensor = replace(tensor, added=family.added)
        if theirs != STRETCHED:
            tensors[_renamed(theirs, family.names)] = tensor
    return values, tensors, metadata


def _renamed(name: str, names: Mapping[str, str]) -> str:
    """Return a tensor's name in a folder; one that is not known stays."""
    found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name, re.ASCII)
    if found is None or found[2] not in names:
        return name
    layer = "" if found[1] is None else f"model.layers.{int(found[1])}."
    return f"{layer}{names[found[2]]}.{found[3]}"


def _config(family: Family, options: Mapping[str, Any], content: Content) -> dict[str, Any]:
    """Return the `config.json` of a file's model."""
    metadata, tensors = content
    names = {**OPTIONS, **family.options}
    values = {names[name]: value for name, value in options.items() if name in names}
    values.setdefault("num_key_value_heads", values.get("num_attention_heads"))
    width = options.get("rope.dimension_count")
    if width is not None and values.setdefault("head_dim", width) != width:
        raise PretrainedError(
            f"rope.dimension_count {width} is not supported, only all of a head's {values['head_dim']}"
        )
    if options.get("attention.value_length", values.get("head_dim")) != values.get("head_dim"):
        raise PretrainedError(f"attention.value_length {options['attention.value_length']} is not that of the keys")
    if "token_embd.weight" in tensors:
        values.setdefault("vocab_size", tensors["token_embd.weight"].shape[0])
    for name, marks in MARKS.items():
        ids = [metadata[key] for mark in marks if (key := f"tokenizer.ggml.{mark}_token_id") in metadata]
        values |= {name: ids[0] if len(ids) == 1 else sorted(set(ids), key=ids.index)} if ids else {name: None}
    values |= {name: bias in tensors for name, bias in (family.biases or {}).items()}
    return {
        "model_type": family.model_type,
        **values,
        **family.implied(values),
        "tie_word_embeddings": "output.weight" not in tensors,
        "rope_parameters": _rope(options.get("rope.freq_base", 10_000.0), width, content),
    }


def _rope(theta: Any, width: Any, content: Content) -> dict[str, Any]:
    """Return `rope_parameters`; where rotations are stretched, their divisors must be those of Llama 3.1."""
    tensor = content.tensors.get(STRETCHED)
    if tensor is None:
        return {"rope_type": "default", "rope_theta": theta}
    if type(width) is int and tensor.shape == (width // 2,) and width <= 1024:
        divisors = tensor.read().astype(float)
        try:
            plain, llama3 = RotaryConfig(theta=theta), RotaryConfig(theta=theta, factor=float(divisors.max()))
        except (TypeError, ValueError) as error:
            raise PretrainedError(f"{STRETCHED}: {error}") from None
        if np.allclose(np.array(plain.frequencies(width)) / llama3.frequencies(width), divisors, rtol=1e-4):
            lengths = {"original_max_position_embeddings": llama3.original_max_length, "factor": llama3.factor}
            bounds = {"low_freq_factor": llama3.low_freq_factor, "high_freq_factor": llama3.high_freq_factor}
            return {"rope_type": "llama3", "rope_theta": theta, **lengths, **bounds}
    raise PretrainedError(f"{STRETCHED} stretches positions in another way than Llama 3.1, which is not supported")
