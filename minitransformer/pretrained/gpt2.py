"""GPT-2's files. Their weights are (in, out), as ours, and queries, keys and values stand side by side."""

from collections.abc import Mapping
from typing import Any

from ..models import GPTConfig
from .names import (
    ACTIVATION_NAMES,
    Architecture,
    Row,
    Shape,
    activation,
    array,
    layers,
    norm,
    require_options,
    require_ours,
    required,
    token,
)


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """One rate of dropout serves both the embeddings and the sub-layers: the sub-layers'."""
    require_options(values, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width = required(values, "n_embd")
    inner = values.get("n_inner")
    return GPTConfig(
        required(values, "vocab_size"),
        d_model=width,
        num_heads=required(values, "n_head"),
        d_ff=4 * width if inner is None else inner,
        num_layers=required(values, "n_layer"),
        max_length=values.get("n_positions", 1024),
        dropout=values.get("resid_pdrop", 0.1),
        attention_dropout=values.get("attn_pdrop", 0.1),
        norm_eps=values.get("layer_norm_epsilon", 1e-5),
        activation=activation(values, "activation_function", "gelu_new"),
        tied=values.get("tie_word_embeddings", True),
        init_std=values.get("initializer_range", 0.02),
        bos_id=token(values, "bos_token_id"),
        eos_id=token(values, "eos_token_id"),
    )


def to_config(config: GPTConfig) -> dict[str, Any]:
    """Raises PretrainedError for a model with parts that GPT-2 does not have."""
    require_ours(config, "GPT-2", positions="learned", norm="layernorm", norm_first=True, norm_bias=True, gated=False)
    require_ours(config, "GPT-2", bias=True, attention_bias=True, attention="softmax")
    require_ours(config, "GPT-2", window=None, sparse=None, softcap=None)
    attention = config.decoder.block.attention
    if attention.kv_heads != config.num_heads:
        require_ours(config, "GPT-2", num_kv_heads=None)
    if config.num_heads * attention.d_k != config.d_model:
        require_ours(config, "GPT-2", d_k=None)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_head": config.num_heads,
        "n_inner": config.d_ff,
        "n_layer": config.num_layers,
        "n_positions": config.max_length,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": ACTIVATION_NAMES[config.activation],
        "tie_word_embeddings": config.tied,
        "initializer_range": config.init_std,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
    }


def table(config: GPTConfig) -> list[Row]:
    """The rows of a GPT-2."""
    width, top = config.d_model, "transformer."
    rows = [
        array("tokens.table", f"{top}wte.weight", config.vocab_size, width),
        array("decoder.embedding.positions.table", f"{top}wpe.weight", config.max_length, width),
        *norm("decoder.final_norm", f"{top}ln_f", width),
    ]
    for ours, theirs in layers(f"{top}h.{{}}.", config.num_layers):
        ours = f"decoder.{ours}"
        for name, there, *ends in (
            ("self_attention.query_key_value", "attn.c_attn", width, 3 * width),
            ("self_attention.output", "attn.c_proj", width, width),
            ("feed_forward.expand", "mlp.c_fc", width, config.d_ff),
            ("feed_forward.contract", "mlp.c_proj", config.d_ff, width),
        ):
            rows.append(array(f"{ours}{name}.weight", f"{theirs}{there}.weight", *ends))
            rows.append(array(f"{ours}{name}.bias", f"{theirs}{there}.bias", ends[1]))
        rows += norm(f"{ours}self_attention_norm", f"{theirs}ln_1", width)
        rows += norm(f"{ours}feed_forward_norm", f"{theirs}ln_2", width)
    return rows + [array("output.table", "lm_head.weight", config.vocab_size, width)] * (not config.tied)


GPT2 = Architecture(
    from_config,
    to_config,
    table,
    rename=((r"^(?=(wte|wpe|h|ln_f)\.)", "transformer."),),
    ignored=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
)
