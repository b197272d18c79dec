"""DistilBERT's files: a BERT with half of the layers, without types of tokens, and with names of its own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..models import BERTConfig
from .bert import BERT, CLASSES, classifier, read_head, read_marks, write_head
from .keys import Keys, words
from .names import (
    NEEDED,
    Row,
    Shape,
    array,
    layers,
    linear,
    norm,
    option_names,
    read_options,
    require_ours,
    write_options,
)

TOP = "distilbert."

OPTIONS = {
    "vocab_size": ("vocab_size", NEEDED),
    "d_model": ("dim", NEEDED),
    "num_heads": ("n_heads", NEEDED),
    "d_ff": ("hidden_dim", NEEDED),
    "num_layers": ("n_layers", NEEDED),
    "max_length": ("max_position_embeddings", 512),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.1),
    "activation": ("activation", "gelu"),
    "init_std": ("initializer_range", 0.02),
}

KEYS = Keys(
    obeyed=words("pad_token_id mask_token_id id2label num_labels", option_names(OPTIONS)),
    supported={"is_decoder": False, "is_encoder_decoder": False, "tie_word_embeddings": True},
    idle=words("sinusoidal_pos_embds qa_dropout seq_classif_dropout tie_weights_ is_causal"),
    aliases={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
)


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> BERTConfig:
    """Return our configuration; the tensors' names tell the model's head."""
    head: dict[str, Any] = {"head": "masked"}
    if "vocab_projector.bias" not in shapes:
        classes = "classes" if "pre_classifier.weight" in shapes else "tokens"
        head = read_head(values, shapes, TOP, classes, "hidden")
    fixed: dict[str, Any] = {"norm_eps": 1e-12, "token_types": 0, "pooler_activation": "relu"}
    return BERTConfig(**read_options(values, OPTIONS), **read_marks(values, 0), **fixed, **head)


def to_config(config: BERTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that DistilBERT does not have."""
    require_ours(config, "DistilBERT", norm_eps=1e-12, token_types=0, first_position=0)
    if config.head == "none":
        require_ours(config, "DistilBERT", head="hidden")
    if config.head == "classes":
        require_ours(config, "DistilBERT", pooler_activation="relu")
    return {**write_head(config, "distilbert", "DistilBert"), **write_options(config, OPTIONS)}


def table(config: BERTConfig) -> list[Row]:
    """Return the rows of a DistilBERT with its head."""
    width, top = config.d_model, "" if config.head == "hidden" else TOP
    inside, ours = f"{top}embeddings.", "encoder.embedding."
    rows = [
        array("tokens.table", f"{inside}word_embeddings.weight", config.vocab_size, width),
        array(f"{ours}positions.table", f"{inside}position_embeddings.weight", config.max_length, width),
        *norm(f"{ours}norm", f"{inside}LayerNorm", width),
    ]
    for ours, theirs in layers(f"{top}transformer.layer.{{}}.", config.num_layers):
        ours = f"encoder.{ours}"
        names = [f"{theirs}attention.{each}_lin" for each in "qkv"]
        rows += linear(f"{ours}self_attention.query_key_value", names, width, width, width, width)
        rows += linear(f"{ours}self_attention.output", f"{theirs}attention.out_lin", width, width)
        rows += norm(f"{ours}self_attention_norm", f"{theirs}sa_layer_norm", width)
        rows += linear(f"{ours}feed_forward.expand", f"{theirs}ffn.lin1", width, config.d_ff)
        rows += linear(f"{ours}feed_forward.contract", f"{theirs}ffn.lin2", config.d_ff, width)
        rows += norm(f"{ours}feed_forward_norm", f"{theirs}output_layer_norm", width)
    if config.head == "masked":
        rows += linear("head.transform", "vocab_transform", width, width)
        rows += norm("head.norm", "vocab_layer_norm", width)
        rows.append(array("head.bias", "vocab_projector.bias", config.vocab_size))
    if config.head == "classes":
        rows += linear("head.pooler", "pre_classifier", width, width)
    return rows + classifier(config, "classifier")


DISTILBERT = replace(
    BERT,
    name="distilbert",
    from_config=from_config,
    to_config=to_config,
    table=table,
    keys=KEYS,
    heads=tuple(dict.fromkeys(f"DistilBert{each}" for each in CLASSES.values())),
    top=TOP,
    copies=((r"vocab_projector\.weight", f"{TOP}embeddings.word_embeddings.weight"),),
    ignored=r"(distilbert\.)?embeddings\.position_ids",
    holds=lambda config: config.token_types == 0,
)
