"""Llama's files, and what its relatives share: rotary positions turn the halves of a head, as ours do by default."""

from collections.abc import Callable, Mapping
from typing import Any

from ..layers import RotaryConfig, SparseConfig
from ..models import GPTConfig
from .files import PretrainedError
from .keys import Keys, words
from .names import (
    NEEDED,
    OUTPUT,
    Architecture,
    Row,
    Shape,
    array,
    ends,
    layers,
    linear,
    norm,
    option_names,
    read_options,
    require_network,
    require_options,
    require_ours,
    required,
    token,
    write_options,
    written_ends,
)

OPTIONS = {
    "vocab_size": ("vocab_size", NEEDED),
    "d_model": ("hidden_size", NEEDED),
    "num_heads": ("num_attention_heads", NEEDED),
    "d_ff": ("intermediate_size", NEEDED),
    "num_layers": ("num_hidden_layers", NEEDED),
    "max_length": ("max_position_embeddings", 2048),
    "attention_dropout": ("attention_dropout", 0.0),
    "norm_eps": ("rms_norm_eps", 1e-6),
    "activation": ("hidden_act", "silu"),
    "tied": ("tie_word_embeddings", False),
    "init_std": ("initializer_range", 0.02),
}
"""The fields that all relatives have."""

OWN = {"bias": ("mlp_bias", False), "attention_bias": ("attention_bias", False)}
"""Llama's own fields beside them."""

READ = words(
    "num_key_value_heads head_dim bos_token_id eos_token_id rope_parameters rope_scaling rope_theta "
    "original_max_position_embeddings partial_rotary_factor",
    option_names(OPTIONS),
)
SUPPORTED = {"is_causal": True, "is_encoder_decoder": False}
KEYS = Keys(
    obeyed=READ.union(option_names(OWN)),
    supported={**SUPPORTED, "rope_interleaved": False},
    idle=words("pretraining_tp is_decoder max_sequence_length is_llama_config"),
)


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """Return our configuration of a Llama."""
    return read({"bos_token_id": 1, "eos_token_id": 2, **values}, shapes, **read_options(values, OWN))


def read(values: Mapping[str, Any], shapes: Mapping[str, Shape], **more: Any) -> GPTConfig:
    """Return our configuration of a relative of Llama's; their only dropout is on the attention weights."""
    shared = read_options(values, OPTIONS)
    shared["tied"] = shared["tied"] and OUTPUT not in shapes
    others = {
        "num_kv_heads": values.get("num_key_value_heads") or shared["num_heads"],
        "d_k": values.get("head_dim"),
        "bos_id": token(values, "bos_token_id"),
        **ends(values),
        "rotary": read_rotary(values),
    }
    return GPTConfig.llama(**shared | others | more)


def read_rotary(values: Mapping[str, Any]) -> RotaryConfig:
    """Read `rope_scaling` with the older `rope_theta`, which `transformers` prefers, or today's `rope_parameters`."""
    name = "rope_scaling" if values.get("rope_scaling") else "rope_parameters"
    rope = values.get(name) or {}
    if not isinstance(rope, dict):
        raise PretrainedError(f"{name} is {rope!r}, expected an object")
    theta = rope.get("rope_theta", values.get("rope_theta", 10_000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    require_options({**values, **rope}, partial_rotary_factor=1.0)
    if kind == "default":
        return RotaryConfig(theta=theta)
    if kind != "llama3":
        raise PretrainedError(f"{name} {kind!r} is not supported, only 'default' and 'llama3'")
    trained, longest = "original_max_position_embeddings", values.get("max_position_embeddings", 2048)
    original = values.get(trained)  # the model's own value comes before the rope's
    return RotaryConfig(
        theta=theta,
        factor=required(rope, "factor"),
        low_freq_factor=required(rope, "low_freq_factor"),
        high_freq_factor=required(rope, "high_freq_factor"),
        original_max_length=rope.get(trained, longest) if original is None else original,
    )


def read_window(values: Mapping[str, Any]) -> int:
    """Return our window: theirs counts the token itself. Raises PretrainedError for none."""
    window = required(values, "sliding_window")
    if type(window) is not int or window < 1:
        raise PretrainedError(f"sliding_window is {window!r}, expected 1 or more")
    return window - 1


def read_layer_types(values: Mapping[str, Any], every: int | None = None) -> dict[str, Any]:
    """Return the fields for a window in all layers but every n-th, from the name of each layer's attention.

    Without names it is `every`. Raises PretrainedError for layers in another order.
    """
    named, full, windowed = values.get("layer_types"), "full_attention", "sliding_attention"
    if named is None:
        return {"window": read_window(values), "sparse": SparseConfig(full_every=every)}
    if not isinstance(named, list) or any(each not in (full, windowed) for each in named):
        raise PretrainedError(f"layer_types is not supported, only a list of {full!r} and {windowed!r}")
    if len(named) != required(values, "num_hidden_layers"):
        raise PretrainedError(f"layer_types names {len(named)} layers, and num_hidden_layers others")
    if windowed not in named:
        return {}
    every = named.index(full) + 1 if full in named else None
    if every and any((name == full) != (i % every == 0) for i, name in enumerate(named, start=1)):
        raise PretrainedError("layer_types is not supported, only with every n-th layer that has no window")
    return {"window": read_window(values), "sparse": SparseConfig(full_every=every) if every else None}


def written_windows(config: GPTConfig) -> dict[str, Any]:
    """Return their keys for windows. Raises PretrainedError for another pattern than windows in turn."""
    every = config.sparse.full_every if config.sparse else None
    if config.sparse not in (None, SparseConfig(full_every=every)):
        raise PretrainedError("sparse attention can't be written in the files of Llama's relatives, only windows")
    full = [config.window is None or bool(every and i % every == 0) for i in range(1, config.num_layers + 1)]
    return {
        "sliding_window": None if config.window is None else config.window + 1,
        "layer_types": ["full_attention" if each else "sliding_attention" for each in full],
    }


def to_config(config: GPTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that Llama does not have."""
    require_ours(config, "Llama", norm="rmsnorm", extra_norms="none", window=None, sparse=None, softcap=None)
    require_ours(config, "Llama", embedding_scale=1.0, scale=None, logits_softcap=None)
    if config.attention_bias == "inputs":
        require_ours(config, "Llama", attention_bias=True)
    names = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    return names | write(config, "Llama") | write_options(config, OWN)


def write(
    config: GPTConfig, target: str, written_rope: Callable[[RotaryConfig], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the part of their configuration that all relatives share. Raises PretrainedError as `to_config`."""
    require_ours(config, target, positions="rotary", norm_first=True, gated=True, attention="softmax")
    require_network(config, target)
    attention, rotary = config.decoder.block.attention, config.rotary or RotaryConfig()
    if rotary.interleaved or (rotary.width or attention.d_k) != attention.d_k:
        raise PretrainedError(f"rotary positions of neighbours, or of a part of a head, can't be written as {target}")
    return {
        **write_options(config, OPTIONS),
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.d_k,
        "bos_token_id": config.bos_id,
        "eos_token_id": written_ends(config),
        "rope_parameters": (written_rope or written_rotary)(rotary),
    }


def written_rotary(rotary: RotaryConfig) -> dict[str, Any]:
    """Return their `rope_parameters`. Raises PretrainedError for two rotations in turn."""
    if rotary.full_theta is not None:
        raise PretrainedError("full_theta can't be written but in Gemma 3's files")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": rotary.theta}
    if rotary.factor is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": rotary.factor,
            "low_freq_factor": rotary.low_freq_factor,
            "high_freq_factor": rotary.high_freq_factor,
            "original_max_position_embeddings": rotary.original_max_length,
        }
    return rope


def table(config: GPTConfig) -> list[Row]:
    """Return the rows of a Llama or a relative."""
    width, attention = config.d_model, config.decoder.block.attention
    queries, keys = config.num_heads * attention.d_k, attention.kv_heads * attention.d_k
    rows = [
        array("tokens.table", "model.embed_tokens.weight", config.vocab_size, width),
        *norm("decoder.final_norm", "model.norm", width, bias=False),
    ]
    for ours, theirs in layers("model.layers.{}.", config.num_layers):
        ours = f"decoder.{ours}"
        names = [f"{theirs}self_attn.{each}_proj" for each in "qkv"]
        biased, inside = config.attention_bias, f"{ours}self_attention."
        rows += linear(f"{inside}query_key_value", names, width, queries, keys, keys, bias=biased is not False)
        rows += linear(f"{inside}output", f"{theirs}self_attn.o_proj", queries, width, bias=biased is True)
        if "heads" in config.extra_norms:
            for i, name in enumerate("qk"):
                rows += norm(f"{inside}head_norms.{i}", f"{theirs}self_attn.{name}_norm", attention.d_k, bias=False)
        names = [f"{theirs}mlp.{each}_proj" for each in ("gate", "up")]
        rows += linear(f"{ours}feed_forward.expand", names, width, config.d_ff, config.d_ff, bias=config.bias)
        rows += linear(f"{ours}feed_forward.contract", f"{theirs}mlp.down_proj", config.d_ff, width, bias=config.bias)
        around = {"self_attention_norm": "input", "feed_forward_norm": "post_attention"}
        if "outputs" in config.extra_norms:
            around = {"self_attention_norm": "input", "self_attention_norm.of_output": "post_attention"}
            around |= {"feed_forward_norm": "pre_feedforward", "feed_forward_norm.of_output": "post_feedforward"}
        for name, there in around.items():
            rows += norm(f"{ours}{name}", f"{theirs}{there}_layernorm", width, bias=False)
    return rows + [array("output.table", OUTPUT, config.vocab_size, width)] * (not config.tied)


LLAMA = Architecture(
    "llama",
    ("gpt",),
    from_config,
    to_config,
    table,
    KEYS,
    heads=("LlamaForCausalLM", "LlamaModel"),
    rename=((r"^(?=(embed_tokens|layers|norm)\.)", "model."),),
    copies=((OUTPUT, "model.embed_tokens.weight"),),
    tied=False,
    unties=True,
    ignored=r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    holds=lambda config: config.positions == "rotary",
)
