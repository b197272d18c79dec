"""Marian's files, and the paper's Transformer in them.

Marian is the paper's model with all sines of the positions before all cosines. So a Transformer of ours becomes a
Marian if the channels of d_model change places, the even ones first, in every tensor that reads or writes them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..layers import SinusoidalPositions
from ..models import MarianConfig, TransformerConfig
from ..ops import numpy_ops
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
    write_options,
    written_ends,
)

OPTIONS = {
    "vocab_size": ("vocab_size", NEEDED),
    "d_model": ("d_model", NEEDED),
    "num_heads": ("encoder_attention_heads", NEEDED),
    "num_decoder_heads": ("decoder_attention_heads", NEEDED),
    "d_ff": ("encoder_ffn_dim", NEEDED),
    "d_decoder_ff": ("decoder_ffn_dim", NEEDED),
    "num_layers": ("encoder_layers", NEEDED),
    "num_decoder_layers": ("decoder_layers", NEEDED),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "activation": ("activation_function", "gelu"),
    "max_length": ("max_position_embeddings", 1024),
}

KEYS = Keys(
    obeyed=words(
        "scale_embedding decoder_vocab_size pad_token_id decoder_start_token_id eos_token_id", option_names(OPTIONS)
    ),
    supported={
        "share_encoder_decoder_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": True,
        "do_blenderbot_90_layernorm": False,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "is_decoder": False,
        "is_causal": True,
    },
    idle=words(
        "activation_dropout encoder_layerdrop decoder_layerdrop init_std add_bias_logits extra_pos_embeddings save_step"
    ),
    aliases={
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    },
)


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> MarianConfig:
    """Return our configuration. Raises PretrainedError if source and target have different vocabularies."""
    pad = required(values, "pad_token_id")
    if values.get("decoder_vocab_size") is not None:
        require_options(values, decoder_vocab_size=required(values, "vocab_size"))
    return MarianConfig(
        **read_options(values, OPTIONS),
        embedding_scale=None if values.get("scale_embedding", False) else 1.0,
        pad_id=pad,
        bos_id=values.get("decoder_start_token_id", pad),
        **ends(values, 0, needed=True),
    )


def to_config(config: MarianConfig | TransformerConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model that Marian can't express, such as pre-norm."""
    config = as_marian(config)
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        **write_options(config, OPTIONS),
        "decoder_vocab_size": config.vocab_size,
        "decoder_attention_heads": config.decoder_heads,
        "decoder_ffn_dim": config.decoder_ff,
        "decoder_layers": config.decoder_layers,
        "scale_embedding": config.embedding_scale is None,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "pad_token_id": config.pad_id,
        "decoder_start_token_id": config.bos_id,
        "bos_token_id": None,
        "eos_token_id": written_ends(config),
        "forced_eos_token_id": config.eos_id,
    }


def as_marian(config: MarianConfig | TransformerConfig) -> MarianConfig:
    """Return a Transformer's configuration as Marian's. Raises PretrainedError for one that Marian can't express."""
    if isinstance(config, MarianConfig):
        require_ours(config, "Marian", embedding_scale=None if config.embedding_scale is None else 1.0)
        return config
    require_ours(config, "Marian", norm_first=False, positions="sinusoidal", window=None, layernorm_eps=1e-5)
    for name in ("key_width", "value_width"):
        require_ours(config, "Marian", **{name: config.d_model // config.num_heads})
    return MarianConfig(
        config.vocab_size,
        d_model=config.d_model,
        num_heads=config.num_heads,
        d_ff=config.d_ff,
        num_layers=config.num_layers,
        num_decoder_layers=config.num_decoder_layers,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation="relu",
        max_length=config.max_length,
        pad_id=config.pad_id,
        bos_id=config.bos_id,
        eos_id=config.eos_id,
    )


READ = ("query_key_value.weight", "query.weight", "key_value.weight", "expand.weight")
WRITTEN = ("tokens.table", "output.weight", "output.bias", "contract.weight", "contract.bias", "gamma", "beta")
"""The endings of the names of parameters whose first axis is d_model, and of those whose last axis is."""


def in_halves(state: Mapping[str, np.ndarray], vocab_size: int) -> dict[str, np.ndarray]:
    """Return a Transformer's parameters as Marian's: the even channels of d_model first, and a bias of the logits."""
    moved = {}
    for name, values in state.items():
        axis = 0 if name.endswith(READ) else -1 if name.endswith(WRITTEN) else None
        if axis is not None:
            order = np.arange(values.shape[axis])
            values = np.take(values, np.concatenate([order[::2], order[1::2]]), axis)
        moved[name] = values
    dtype = state["tokens.table"].dtype
    return moved | {"logits_bias": np.zeros(vocab_size, dtype)}


def table(config: MarianConfig | TransformerConfig) -> list[Row]:
    """Return the rows of a Marian, or of a Transformer of ours whose parameters are `in_halves`."""
    config = as_marian(config)
    return [
        array("tokens.table", "model.shared.weight", config.vocab_size, config.d_model),
        array("logits_bias", "final_logits_bias", 1, config.vocab_size),
        *_stack(config.d_model, "encoder", config.num_layers, config.d_ff),
        *_stack(config.d_model, "decoder", config.decoder_layers, config.decoder_ff),
    ]


def _stack(width: int, stack: str, count: int, d_ff: int) -> list[Row]:
    rows = []
    for ours, theirs in layers(f"model.{stack}.layers.{{}}.", count):
        ours = f"{stack}.{ours}"
        names = [f"{theirs}self_attn.{each}_proj" for each in "qkv"]
        rows += linear(f"{ours}self_attention.query_key_value", names, width, width, width, width)
        rows += linear(f"{ours}self_attention.output", f"{theirs}self_attn.out_proj", width, width)
        rows += norm(f"{ours}self_attention_norm", f"{theirs}self_attn_layer_norm", width)
        if stack == "decoder":
            names = [f"{theirs}encoder_attn.{each}_proj" for each in "kv"]
            rows += linear(f"{ours}cross_attention.query", f"{theirs}encoder_attn.q_proj", width, width)
            rows += linear(f"{ours}cross_attention.key_value", names, width, width, width)
            rows += linear(f"{ours}cross_attention.output", f"{theirs}encoder_attn.out_proj", width, width)
            rows += norm(f"{ours}cross_attention_norm", f"{theirs}encoder_attn_layer_norm", width)
        rows += linear(f"{ours}feed_forward.expand", f"{theirs}fc1", width, d_ff)
        rows += linear(f"{ours}feed_forward.contract", f"{theirs}fc2", d_ff, width)
        rows += norm(f"{ours}feed_forward_norm", f"{theirs}final_layer_norm", width)
    return rows


def positions(config: MarianConfig) -> np.ndarray:
    """Return the sinusoids of all positions, which older files hold, `(max_length, d_model)`."""
    layer = SinusoidalPositions(numpy_ops, config.max_length, config.d_model, "float32", halves=True)
    return layer.forward(np.zeros((1, config.max_length, config.d_model), np.float32))[0][0]


MARIAN = Architecture(
    "marian",
    ("marian", "transformer"),
    from_config,
    to_config,
    table,
    KEYS,
    heads=("MarianMTModel", "MarianModel"),
    copies=((rf"model\.(encoder|decoder)\.embed_tokens\.weight|{OUTPUT}", "model.shared.weight"),),
    constant=(r"model\.(encoder|decoder)\.embed_positions\.weight", positions),
    ignored=r"model\.(encoder|decoder)\.embed_positions\.weight",
)
