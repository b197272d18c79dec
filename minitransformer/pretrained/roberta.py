"""RoBERTa's files, and those of XLM-RoBERTa and CamemBERT: a BERT's encoder whose positions begin at a later row."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..models import BERTConfig
from .bert import BERT, CLASSES, KEYS, OPTIONS, classifier, encoder, read_head, read_marks, write_head
from .names import (
    Architecture,
    Row,
    Shape,
    array,
    linear,
    norm,
    read_options,
    require_options,
    require_ours,
    write_options,
)

TOP = "roberta."


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> BERTConfig:
    """Return our configuration; the first position is the row after that of padding."""
    if "lm_head.bias" in shapes:
        require_options(values, hidden_act="gelu")  # the head has this one in any case
        head: dict[str, Any] = {"head": "masked"}
    else:
        classes = "classes" if "classifier.out_proj.weight" in shapes else "tokens"
        pooled = any(name.endswith("pooler.dense.weight") for name in shapes)
        head = read_head(values, shapes, TOP, classes, "none" if pooled else "hidden")
    shared, marks = read_options(values, OPTIONS), read_marks(values, 1)
    shared["max_length"] -= marks["pad_id"] + 1
    return BERTConfig(**shared, **marks, first_position=marks["pad_id"] + 1, **head)


def table(config: BERTConfig) -> list[Row]:
    """Return the rows of a RoBERTa with its head."""
    width, top = config.d_model, "" if config.head in ("none", "hidden") else TOP
    rows = encoder(config, top)
    if config.head == "masked":
        rows += linear("head.transform", "lm_head.dense", width, width)
        rows += norm("head.norm", "lm_head.layer_norm", width)
        rows.append(array("head.bias", "lm_head.bias", config.vocab_size))
    if config.head in ("classes", "none"):
        rows += linear("head.pooler", "classifier.dense" if config.head == "classes" else "pooler.dense", width, width)
    return rows + classifier(config, "classifier.out_proj")


def _named(name: str, title: str) -> Architecture:
    """Return RoBERTa's architecture for the classes whose names begin with `title`."""

    def to_config(config: BERTConfig) -> dict[str, Any]:
        """Return their configuration. Raises PretrainedError for a model with parts that RoBERTa does not have."""
        require_ours(config, title, first_position=config.pad_id + 1, pooler_activation="tanh")
        if config.head == "masked":
            require_ours(config, title, activation="gelu")
        values = write_options(config, OPTIONS)
        values["max_position_embeddings"] += config.first_position
        return {**write_head(config, name, title), **values}

    return replace(
        BERT,
        name=name,
        from_config=from_config,
        to_config=to_config,
        table=table,
        keys=replace(KEYS, idle=KEYS.idle),
        heads=tuple(dict.fromkeys(f"{title}{each}" for each in CLASSES.values())),
        top=TOP,
        copies=(
            (r"lm_head\.decoder\.weight", f"{TOP}embeddings.word_embeddings.weight"),
            (r"lm_head\.decoder\.bias", "lm_head.bias"),
        ),
        ignored=r"(roberta\.)?embeddings\.position_ids|roberta\.pooler\.dense\.(weight|bias)",
        holds=lambda config: config.first_position > 0,
    )


ROBERTA = _named("roberta", "Roberta")
XLM_ROBERTA = _named("xlm-roberta", "XLMRoberta")
CAMEMBERT = _named("camembert", "Camembert")
