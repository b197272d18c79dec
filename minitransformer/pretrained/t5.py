"""T5's files, versions 1.0 and 1.1, and mT5's: the relative bias stands in the first block of each stack."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..models import T5Config
from .files import PretrainedError
from .keys import Keys, words
from .names import (
    ACTIVATION_NAMES,
    NEEDED,
    OUTPUT,
    Architecture,
    Row,
    Shape,
    activation,
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
    "num_heads": ("num_heads", NEEDED),
    "d_ff": ("d_ff", NEEDED),
    "num_layers": ("num_layers", NEEDED),
    "num_decoder_layers": ("num_decoder_layers", None),
    "d_k": ("d_kv", 64),
    "buckets": ("relative_attention_num_buckets", 32),
    "max_distance": ("relative_attention_max_distance", 128),
    "max_length": ("n_positions", 512),
    "dropout": ("dropout_rate", 0.1),
    "norm_eps": ("layer_norm_epsilon", 1e-6),
}

KEYS = Keys(
    obeyed=words(
        "feed_forward_proj dense_act_fn is_gated_act tie_word_embeddings scale_decoder_outputs pad_token_id "
        "decoder_start_token_id eos_token_id",
        option_names(OPTIONS),
    ),
    supported={"is_encoder_decoder": True, "is_decoder": False, "is_causal": True},
    idle=words("initializer_factor"),
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
)


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> T5Config:
    """Return our configuration; the tensors show a tied output layer, since transformers 5 calls every T5 tied."""
    form = values.get("feed_forward_proj", "relu")
    name = str(form).removeprefix("gated-")
    gated = name != form
    name = "gelu_new" if form == "gated-gelu" else name
    require_options(values, dense_act_fn=name, is_gated_act=gated)
    pad = required({"pad_token_id": 0, **values}, "pad_token_id")
    scaled = values.get("scale_decoder_outputs", values.get("tie_word_embeddings") is not False)
    return T5Config(
        **read_options(values, OPTIONS),
        activation=activation({"feed_forward_proj": name}, "feed_forward_proj", "relu"),
        gated=gated,
        tied=OUTPUT not in shapes,
        scale_output=scaled,
        pad_id=pad,
        bos_id=values.get("decoder_start_token_id", pad),
        **ends(values, 1, needed=True),
    )


def mt5_from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> T5Config:
    """Return our configuration of an mT5, which is T5's version 1.1 without a factor of the decoder's output."""
    return from_config({"feed_forward_proj": "gated-gelu", **values, "scale_decoder_outputs": False}, shapes)


def mt5_to_config(config: T5Config) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that mT5 does not have."""
    require_ours(config, "mT5", scale_output=False)
    values = {**to_config(config), "model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"]}
    return {name: value for name, value in values.items() if name != "scale_decoder_outputs"}


def to_config(config: T5Config) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a gate with the exact gelu, which T5 lacks."""
    form = ACTIVATION_NAMES[config.activation]
    if config.gated:
        if config.activation == "gelu":
            raise PretrainedError("activation 'gelu' with a gate can't be written as T5, whose gates approximate it")
        form = "gated-" + form.replace("gelu_new", "gelu")
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **write_options(config, OPTIONS) | {"num_decoder_layers": config.decoder_layers},
        "feed_forward_proj": form,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.scale_output,
        "pad_token_id": config.pad_id,
        "decoder_start_token_id": config.bos_id,
        "eos_token_id": written_ends(config),
    }


def table(config: T5Config) -> list[Row]:
    """Return the rows of a T5; the output layer's is last."""
    rows = [array("tokens.table", "shared.weight", config.vocab_size, config.d_model)]
    rows += _stack(config, "encoder", config.num_layers) + _stack(config, "decoder", config.decoder_layers)
    return rows + [array("output.table", OUTPUT, config.vocab_size, config.d_model)] * (not config.tied)


def _stack(config: T5Config, stack: str, count: int) -> list[Row]:
    width, inner = config.d_model, config.num_heads * config.d_k
    rows = norm(f"{stack}.final_norm", f"{stack}.final_layer_norm", width, bias=False)
    bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    rows.append(array(f"{stack}.layers.0.self_attention.relative.table", bias, config.buckets, config.num_heads))
    for ours, theirs in layers(f"{stack}.block.{{}}.layer.", count):
        ours = f"{stack}.{ours}"
        own, cross, last = f"{theirs}0.SelfAttention.", f"{theirs}1.EncDecAttention.", 2 if stack == "decoder" else 1
        names = [own + each for each in "qkv"]
        rows += linear(f"{ours}self_attention.query_key_value", names, width, inner, inner, inner, bias=False)
        rows += linear(f"{ours}self_attention.output", f"{own}o", inner, width, bias=False)
        rows += norm(f"{ours}self_attention_norm", f"{theirs}0.layer_norm", width, bias=False)
        if stack == "decoder":
            rows += linear(f"{ours}cross_attention.query", f"{cross}q", width, inner, bias=False)
            names = [cross + each for each in "kv"]
            rows += linear(f"{ours}cross_attention.key_value", names, width, inner, inner, bias=False)
            rows += linear(f"{ours}cross_attention.output", f"{cross}o", inner, width, bias=False)
            rows += norm(f"{ours}cross_attention_norm", f"{theirs}1.layer_norm", width, bias=False)
        inside = f"{theirs}{last}.DenseReluDense."
        names = [f"{inside}wi_0", f"{inside}wi_1"] if config.gated else [f"{inside}wi"]
        rows += linear(f"{ours}feed_forward.expand", names, width, *[config.d_ff] * len(names), bias=False)
        rows += linear(f"{ours}feed_forward.contract", f"{inside}wo", config.d_ff, width, bias=False)
        rows += norm(f"{ours}feed_forward_norm", f"{theirs}{last}.layer_norm", width, bias=False)
    return rows


def with_small_queries(named: Mapping[str, np.ndarray], config: T5Config) -> dict[str, np.ndarray]:
    """Return parameters for scores without a factor: the maps to queries are multiplied by the factor 1/√d_k."""
    inner, small = config.num_heads * config.d_k, {}
    for name, weight in named.items():
        if name.endswith(("query.weight", "query_key_value.weight")):
            weight = np.concatenate(
                (weight[:, :inner] * config.d_k**-0.5, weight[:, inner:]), axis=1, dtype=weight.dtype
            )
        small[name] = weight
    return small


T5 = Architecture(
    "t5",
    ("t5",),
    from_config,
    to_config,
    table,
    KEYS,
    heads=("T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model"),
    copies=((r"(encoder|decoder)\.embed_tokens\.weight", "shared.weight"), (OUTPUT, "shared.weight")),
    unties=True,
    ignored=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
)

MT5 = replace(
    T5,
    name="mt5",
    from_config=mt5_from_config,
    to_config=mt5_to_config,
    keys=replace(KEYS, obeyed=KEYS.obeyed - {"scale_decoder_outputs"}),
    heads=("MT5ForConditionalGeneration", "MT5Model"),
    holds=lambda config: False,  # T5's files hold every one
)
