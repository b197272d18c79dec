"""Llama's files: their rotary positions turn the halves of a head, as ours do by default."""

from collections.abc import Mapping
from typing import Any

from ..layers import RotaryConfig
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
    "bias": ("mlp_bias", False),
    "attention_bias": ("attention_bias", False),
    "tied": ("tie_word_embeddings", False),
    "init_std": ("initializer_range", 0.02),
}

KEYS = Keys(
    obeyed=words(
        "num_key_value_heads head_dim bos_token_id eos_token_id rope_parameters rope_scaling rope_theta "
        "original_max_position_embeddings partial_rotary_factor",
        option_names(OPTIONS),
    ),
    supported={
        "is_causal": True,
        "is_encoder_decoder": False,
        "rope_interleaved": False,
    },
    idle=words("pretraining_tp is_decoder max_sequence_length is_llama_config"),
)


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """Return our configuration; Llama's only dropout is on the attention weights."""
    shared = read_options(values, OPTIONS)
    shared["tied"] = shared["tied"] and OUTPUT not in shapes
    return GPTConfig.llama(
        **shared,
        num_kv_heads=values.get("num_key_value_heads") or shared["num_heads"],
        d_k=values.get("head_dim"),
        bos_id=token(values, "bos_token_id", 1),
        **ends(values, 2),
        rotary=_rotary(values),
    )


def _rotary(values: Mapping[str, Any]) -> RotaryConfig:
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


def to_config(config: GPTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that Llama does not have."""
    require_ours(config, "Llama", positions="rotary", norm="rmsnorm", norm_first=True, gated=True)
    require_ours(config, "Llama", attention="softmax", window=None, sparse=None, softcap=None, embedding_scale=1.0)
    attention, rotary = config.decoder.block.attention, config.rotary or RotaryConfig()
    if rotary.interleaved or (rotary.width or attention.d_k) != attention.d_k:
        raise PretrainedError("rotary positions of neighbours, or of a part of a head, can't be written as Llama")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": rotary.theta}
    if rotary.factor is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": rotary.factor,
            "low_freq_factor": rotary.low_freq_factor,
            "high_freq_factor": rotary.high_freq_factor,
            "original_max_position_embeddings": rotary.original_max_length,
        }
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **write_options(config, OPTIONS),
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.d_k,
        "bos_token_id": config.bos_id,
        "eos_token_id": written_ends(config),
        "rope_parameters": rope,
    }


def table(config: GPTConfig) -> list[Row]:
    """Return the rows of a Llama."""
    width, attention = config.d_model, config.decoder.block.attention
    queries, keys = config.num_heads * attention.d_k, attention.kv_heads * attention.d_k
    rows = [
        array("tokens.table", "model.embed_tokens.weight", config.vocab_size, width),
        *norm("decoder.final_norm", "model.norm", width, bias=False),
    ]
    for ours, theirs in layers("model.layers.{}.", config.num_layers):
        ours = f"decoder.{ours}"
        names = [f"{theirs}self_attn.{each}_proj" for each in "qkv"]
        biases = config.attention_bias
        rows += linear(f"{ours}self_attention.query_key_value", names, width, queries, keys, keys, bias=biases)
        rows += linear(f"{ours}self_attention.output", f"{theirs}self_attn.o_proj", queries, width, bias=biases)
        names = [f"{theirs}mlp.{each}_proj" for each in ("gate", "up")]
        rows += linear(f"{ours}feed_forward.expand", names, width, config.d_ff, config.d_ff, bias=config.bias)
        rows += linear(f"{ours}feed_forward.contract", f"{theirs}mlp.down_proj", config.d_ff, width, bias=config.bias)
        rows += norm(f"{ours}self_attention_norm", f"{theirs}input_layernorm", width, bias=False)
        rows += norm(f"{ours}feed_forward_norm", f"{theirs}post_attention_layernorm", width, bias=False)
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
