"""Gemma's files: a Llama whose norms multiply by 1 + gamma, and whose embeddings are multiplied by √d_model.

Gemma 2 has norms after the sub-layers too, softcaps, and every second layer without a window; Gemma 3 norms of queries
and keys, and a rotation of its own for layers without a window.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..layers import RotaryConfig
from ..models import GPTConfig
from .files import PretrainedError
from .keys import Keys, words
from .llama import LLAMA, READ, SUPPORTED, read, read_layer_types, write, written_windows
from .names import Architecture, Shape, require_options, require_ours, required

DEFAULTS: dict[str, Any] = {"bos_token_id": 2, "eos_token_id": 1, "tie_word_embeddings": True, "head_dim": 256}
DEFAULTS |= {"max_position_embeddings": 8192, "attention_bias": False}


def _gemma(values: Mapping[str, Any], shapes: Mapping[str, Shape], **more: Any) -> GPTConfig:
    norms = {"norm": "rmsnorm1p", "attention_bias": values["attention_bias"]}
    return read(values, shapes, **norms, embedding_scale=required(values, "hidden_size") ** 0.5, **more)


def _written(config: GPTConfig, name: str, title: str, written_rope: Any = None, **fixed: Any) -> dict[str, Any]:
    """Return their configuration, for a model whose other fields have these values."""
    fixed |= {"norm": "rmsnorm1p", "embedding_scale": config.d_model**0.5, "bias": False}
    require_ours(config, title, **fixed)
    if config.attention_bias == "inputs":
        require_ours(config, title, attention_bias=True)
    values = {"model_type": name, "architectures": [f"{title}ForCausalLM"], **write(config, title, written_rope)}
    return values | {"attention_bias": config.attention_bias}


def _architecture(name: str, title: str, extra_norms: str, **parts: Any) -> Architecture:
    heads = f"{title}ForCausalLM", f"{title}Model", f"{title}TextModel"

    def holds(config: GPTConfig) -> bool:
        return config.positions == "rotary" and config.norm == "rmsnorm1p" and config.extra_norms == extra_norms

    return replace(LLAMA, name=name, heads=heads, holds=holds, **parts)


def gemma_from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """Return our configuration of a Gemma. Its "gelu" is the approximation, as `transformers` reads it."""
    values = {**DEFAULTS, "num_key_value_heads": 16, "hidden_act": "gelu_pytorch_tanh", **values}
    if values["hidden_act"] == "gelu":
        values["hidden_act"] = "gelu_pytorch_tanh"
    return _gemma(values, shapes)


def gemma_to_config(config: GPTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that Gemma does not have."""
    plain = {"extra_norms": "none", "window": None, "sparse": None, "softcap": None, "logits_softcap": None}
    values = _written(config, "gemma", "Gemma", scale=None, **plain)
    if config.activation == "gelu":
        require_ours(config, "Gemma", activation="gelu_tanh")
    return values


# --- Gemma 2 and 3 --------------------------------------------------------------------------------------------

NEWER = {**DEFAULTS, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "sliding_window": 4096}
NEWER |= {"hidden_activation": "gelu_pytorch_tanh"}


def _newer(values: Mapping[str, Any], shapes: Mapping[str, Shape], **more: Any) -> GPTConfig:
    values = {**values, "hidden_act": values["hidden_activation"]}
    width = required(values, "query_pre_attn_scalar")
    if type(width) is not int or width < 1:
        raise PretrainedError(f"query_pre_attn_scalar is {width!r}, expected 1 or more")
    more["scale"] = None if width == values["head_dim"] else width**-0.5
    more["softcap"] = values.get("attn_logit_softcapping")
    return _gemma(values, shapes, **more, logits_softcap=values.get("final_logit_softcapping"))


def _written_newer(config: GPTConfig, *names: str, **fixed: Any) -> dict[str, Any]:
    values = _written(config, *names, **fixed)
    width = values["head_dim"] if config.scale is None else round(config.scale**-2)
    if config.scale not in (None, width**-0.5):
        raise PretrainedError(f"scale {config.scale} can't be written as {names[1]}, only that of a whole width")
    windows = written_windows(config)
    windows["sliding_window"] = windows["sliding_window"] or NEWER["sliding_window"]  # layer_types say who has none
    return (
        values
        | windows
        | {
            "hidden_activation": values.pop("hidden_act"),
            "query_pre_attn_scalar": width,
            "attn_logit_softcapping": config.softcap,
            "final_logit_softcapping": config.logits_softcap,
        }
    )


def gemma2_from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """Return our configuration of a Gemma 2."""
    values = {**NEWER, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, **values}
    return _newer(values, shapes, extra_norms="outputs", **read_layer_types(values, every=2))


def gemma2_to_config(config: GPTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that Gemma 2 does not have."""
    return _written_newer(config, "gemma2", "Gemma2", extra_norms="outputs")


def gemma3_from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """Return our configuration of a Gemma 3 that reads texts alone."""
    values = {**NEWER, "max_position_embeddings": 131_072, **values}
    windows = read_layer_types(values, every=values.get("sliding_window_pattern", 6))
    return _newer(values, shapes, extra_norms="heads and outputs", **windows, rotary=_rotary(values, windows))


def _rotary(values: Mapping[str, Any], windows: Mapping[str, Any]) -> RotaryConfig:
    """Read the rotations of both kinds of layers: each has its own today, and older files name the local one apart."""
    given, scaling, thetas = values.get("rope_parameters") or {}, values.get("rope_scaling") or {}, []
    if not isinstance(given, dict) or given.keys() - {"full_attention", "sliding_attention"}:
        raise PretrainedError(f"rope_parameters is {given!r}, expected those of full_attention and sliding_attention")
    older = {"full_attention": ("rope_theta", 1e6), "sliding_attention": ("rope_local_base_freq", 1e4)}
    for name, (theta, default) in older.items():
        rope = {**(given.get(name) or {}), **(scaling if name == "full_attention" else {})}
        kind = rope.get("rope_type", rope.get("type", "default"))
        require_options({**values, **rope, "rope_type": kind}, rope_type="default", partial_rotary_factor=1.0)
        thetas.append(rope.get("rope_theta", values.get(theta, default)))
    if not windows:
        return RotaryConfig(theta=thetas[0])
    return RotaryConfig(theta=thetas[1], full_theta=thetas[0] if windows["sparse"] else None)


def _written_rotary(rotary: RotaryConfig) -> dict[str, Any]:
    if rotary.factor is not None:
        raise PretrainedError("stretched rotary positions can't be written as Gemma3")
    thetas = {"full_attention": rotary.full_theta or rotary.theta, "sliding_attention": rotary.theta}
    return {name: {"rope_type": "default", "rope_theta": theta} for name, theta in thetas.items()}


def gemma3_to_config(config: GPTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that Gemma 3 does not have."""
    fixed = {"extra_norms": "heads and outputs", "softcap": None}
    return _written_newer(config, "gemma3_text", "Gemma3", written_rope=_written_rotary, **fixed)


ONE_WAY = {**SUPPORTED, "use_bidirectional_attention": False}
NEWER_KEYS = (READ - {"hidden_act"}) | words(
    "hidden_activation attention_bias query_pre_attn_scalar sliding_window layer_types attn_logit_softcapping "
    "final_logit_softcapping"
)
UNUSED = words("cache_implementation")

GEMMA = _architecture(
    "gemma",
    "Gemma",
    "none",
    from_config=gemma_from_config,
    to_config=gemma_to_config,
    keys=Keys(READ | {"attention_bias"}, ONE_WAY, UNUSED | {"hidden_activation"}),
)
GEMMA2 = _architecture(
    "gemma2",
    "Gemma2",
    "outputs",
    from_config=gemma2_from_config,
    to_config=gemma2_to_config,
    keys=Keys(NEWER_KEYS, ONE_WAY, UNUSED | {"hidden_act"}),
)
GEMMA3 = _architecture(
    "gemma3_text",
    "Gemma3",
    "heads and outputs",
    from_config=gemma3_from_config,
    to_config=gemma3_to_config,
    keys=Keys(
        NEWER_KEYS | words("rope_local_base_freq sliding_window_pattern"),
        {**ONE_WAY, "attn_logit_softcapping": None},
        UNUSED | words("hidden_act _sliding_window_pattern"),
    ),
)
