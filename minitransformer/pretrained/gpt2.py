"""GPT-2's files. Their weights are (in, out), as ours, and queries, keys and values stand side by side."""

from collections.abc import Mapping
from typing import Any

from ..models import GPTConfig
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
    norm,
    option_names,
    read_options,
    require_network,
    require_ours,
    token,
    write_options,
    written_ends,
)

OPTIONS = {
    "vocab_size": ("vocab_size", NEEDED),
    "d_model": ("n_embd", NEEDED),
    "num_heads": ("n_head", NEEDED),
    "num_layers": ("n_layer", NEEDED),
    "max_length": ("n_positions", 1024),
    "dropout": ("resid_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
    "norm_eps": ("layer_norm_epsilon", 1e-5),
    "activation": ("activation_function", "gelu_new"),
    "tied": ("tie_word_embeddings", True),
    "init_std": ("initializer_range", 0.02),
}

KEYS = Keys(
    obeyed=words("n_inner bos_token_id eos_token_id", option_names(OPTIONS)),
    supported={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "is_encoder_decoder": False,
        "is_causal": True,
    },
    idle=words(
        "embd_pdrop n_ctx n_special afn predict_special_tokens is_decoder reorder_and_upcast_attn summary_activation "
        "summary_first_dropout summary_last_dropout summary_proj_to_labels summary_type summary_use_proj"
    ),
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
)


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> GPTConfig:
    """Return our configuration, which has one rate of dropout for embeddings and sub-layers: their sub-layers'."""
    shared = read_options(values, OPTIONS)
    shared["tied"] = shared["tied"] and OUTPUT not in shapes
    inner = values.get("n_inner")
    return GPTConfig(
        **shared,
        d_ff=4 * shared["d_model"] if inner is None else inner,
        bos_id=token(values, "bos_token_id"),
        **ends(values),
    )


def to_config(config: GPTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that GPT-2 does not have."""
    require_ours(config, "GPT-2", positions="learned", norm="layernorm", norm_first=True, norm_bias=True, gated=False)
    require_ours(config, "GPT-2", bias=True, attention_bias=True, attention="softmax")
    require_ours(config, "GPT-2", window=None, sparse=None, softcap=None, embedding_scale=1.0)
    require_ours(config, "GPT-2", extra_norms="none", scale=None, logits_softcap=None)
    require_network(config, "GPT-2")
    attention = config.decoder.block.attention
    if attention.kv_heads != config.num_heads:
        require_ours(config, "GPT-2", num_kv_heads=None)
    if config.num_heads * attention.d_k != config.d_model:
        require_ours(config, "GPT-2", d_k=None)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **write_options(config, OPTIONS),
        "n_inner": config.d_ff,
        "embd_pdrop": config.dropout,
        "bos_token_id": config.bos_id,
        "eos_token_id": written_ends(config),
    }


def table(config: GPTConfig) -> list[Row]:
    """Return the rows of a GPT-2."""
    width, top = config.d_model, "transformer."
    rows = [
        array("tokens.table", f"{top}wte.weight", config.vocab_size, width),
        array("decoder.embedding.positions.table", f"{top}wpe.weight", config.max_length, width),
        *norm("decoder.final_norm", f"{top}ln_f", width),
    ]
    for ours, theirs in layers(f"{top}h.{{}}.", config.num_layers):
        ours = f"decoder.{ours}"
        for name, there, *shape in (
            ("self_attention.query_key_value", "attn.c_attn", width, 3 * width),
            ("self_attention.output", "attn.c_proj", width, width),
            ("feed_forward.expand", "mlp.c_fc", width, config.d_ff),
            ("feed_forward.contract", "mlp.c_proj", config.d_ff, width),
        ):
            rows.append(array(f"{ours}{name}.weight", f"{theirs}{there}.weight", *shape))
            rows.append(array(f"{ours}{name}.bias", f"{theirs}{there}.bias", shape[1]))
        rows += norm(f"{ours}self_attention_norm", f"{theirs}ln_1", width)
        rows += norm(f"{ours}feed_forward_norm", f"{theirs}ln_2", width)
    return rows + [array("output.table", OUTPUT, config.vocab_size, width)] * (not config.tied)


GPT2 = Architecture(
    "gpt2",
    ("gpt",),
    from_config,
    to_config,
    table,
    KEYS,
    heads=("GPT2LMHeadModel", "GPT2Model"),
    rename=((r"^(?=(wte|wpe|h|ln_f)\.)", "transformer."),),
    copies=((OUTPUT, "transformer.wte.weight"),),
    unties=True,
    ignored=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
    holds=lambda config: config.positions != "rotary",
)
