"""The files of Llama's relatives: Mistral's window, Qwen 2's biases, and Qwen 3's norms of queries and keys."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..models import GPTConfig
from .keys import Keys, words
from .llama import LLAMA, READ, SUPPORTED, read, read_layer_types, read_window, write, written_windows
from .names import Architecture, Shape, require_options, require_ours, required

PLAIN: dict[str, Any] = {"norm": "rmsnorm", "bias": False, "softcap": None, "logits_softcap": None}
PLAIN |= {"embedding_scale": 1.0, "scale": None}
"""Our fields that have the same values in all of these."""


def _relative(name: str, title: str, is_own: Callable[[GPTConfig], bool], **parts: Any) -> Architecture:
    """Return Llama's architecture with other parts, for the classes whose names begin with `title`.

    is_own: returns True for what it has and Llama lacks.
    """
    heads = (f"{title}ForCausalLM", f"{title}Model")

    def holds(config: GPTConfig) -> bool:
        return config.positions == "rotary" and config.norm == "rmsnorm" and is_own(config)

    return replace(LLAMA, name=name, heads=heads, holds=holds, **parts)


def _written(config: GPTConfig, name: str, title: str, **fixed: Any) -> dict[str, Any]:
    """Return their configuration, for a model whose other fields have these values."""
    require_ours(config, title, **PLAIN, **fixed)
    return {"model_type": name, "architectures": [f"{title}ForCausalLM"], **write(config, title)}


# --- Mistral --------------------------------------------------------------------------------------------------

MISTRAL_DEFAULTS = {"bos_token_id": 1, "eos_token_id": 2, "num_key_value_heads": 8, "sliding_window": 4096}
MISTRAL_DEFAULTS |= {"max_position_embeddings": 4096 * 32}


def mistral_from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """Return our configuration of a Mistral: all layers have the window."""
    values = {**MISTRAL_DEFAULTS, **values}
    return read(values, shapes, window=None if values["sliding_window"] is None else read_window(values))


def mistral_to_config(config: GPTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that Mistral does not have."""
    values = _written(config, "mistral", "Mistral", extra_norms="none", attention_bias=False, sparse=None)
    return values | {"sliding_window": written_windows(config)["sliding_window"]}


MISTRAL = _relative(
    "mistral",
    "Mistral",
    lambda config: config.window is not None and config.extra_norms == "none" and config.attention_bias is False,
    from_config=mistral_from_config,
    to_config=mistral_to_config,
    keys=Keys(obeyed=READ | {"sliding_window"}, supported=SUPPORTED),
)

# --- Qwen -----------------------------------------------------------------------------------------------------

QWEN_DEFAULTS = {"num_key_value_heads": 32, "max_position_embeddings": 32_768, "max_window_layers": 28}
QWEN_DEFAULTS |= {"sliding_window": 4096}
QWEN_KEYS = READ | words("use_sliding_window sliding_window max_window_layers layer_types")


def _qwen(values: Mapping[str, Any], shapes: Mapping[str, Shape], **more: Any) -> GPTConfig:
    values = {**QWEN_DEFAULTS, **values}
    if not values.get("use_sliding_window"):
        values["sliding_window"] = None
    if values.get("layer_types") is not None:
        more |= read_layer_types(values)
    elif values["sliding_window"] is not None and values["max_window_layers"] < required(values, "num_hidden_layers"):
        require_options(values, max_window_layers=0)
        more["window"] = read_window(values)
    return read(values, shapes, **more)


def _written_qwen(config: GPTConfig, name: str, title: str, **fixed: Any) -> dict[str, Any]:
    values, windows = _written(config, name, title, **fixed), written_windows(config)
    return values | windows | {"use_sliding_window": config.window is not None}


def qwen2_from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """Return our configuration of a Qwen 2, whose queries, keys and values have biases."""
    return _qwen(values, shapes, attention_bias="inputs")


def qwen2_to_config(config: GPTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that Qwen 2 does not have."""
    return _written_qwen(config, "qwen2", "Qwen2", extra_norms="none", attention_bias="inputs")


def qwen3_from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """Return our configuration of a Qwen 3, which normalises the queries and keys of each head."""
    biased = values.get("attention_bias", False)
    return _qwen({"head_dim": 128, **values}, shapes, attention_bias=biased, extra_norms="heads")


def qwen3_to_config(config: GPTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that Qwen 3 does not have."""
    values = _written_qwen(config, "qwen3", "Qwen3", extra_norms="heads")
    if config.attention_bias == "inputs":
        require_ours(config, "Qwen3", attention_bias=True)
    return values | {"attention_bias": config.attention_bias}


QWEN2 = _relative(
    "qwen2",
    "Qwen2",
    lambda config: config.attention_bias == "inputs",
    from_config=qwen2_from_config,
    to_config=qwen2_to_config,
    keys=Keys(obeyed=QWEN_KEYS, supported={**SUPPORTED, "use_mrope": False}),
)
QWEN3 = _relative(
    "qwen3",
    "Qwen3",
    lambda config: config.extra_norms == "heads",
    from_config=qwen3_from_config,
    to_config=qwen3_to_config,
    keys=Keys(obeyed=QWEN_KEYS | {"attention_bias"}, supported=SUPPORTED),
)
