"""BERT's files: the masked language model, a classifier, or the bare encoder with its pooler."""

from collections.abc import Mapping
from typing import Any

from ..models import BERTConfig
from .files import PretrainedError, some
from .keys import Keys, words
from .names import (
    NEEDED,
    Architecture,
    Row,
    Shape,
    array,
    layers,
    linear,
    norm,
    option_names,
    read_options,
    require_classes,
    token,
    write_options,
)

CLASSES = {"masked": "BertForMaskedLM", "classes": "BertForSequenceClassification", "none": "BertModel"}

OPTIONS = {
    "vocab_size": ("vocab_size", NEEDED),
    "d_model": ("hidden_size", NEEDED),
    "num_heads": ("num_attention_heads", NEEDED),
    "d_ff": ("intermediate_size", NEEDED),
    "num_layers": ("num_hidden_layers", NEEDED),
    "max_length": ("max_position_embeddings", 512),
    "token_types": ("type_vocab_size", 2),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "activation": ("hidden_act", "gelu"),
    "norm_eps": ("layer_norm_eps", 1e-12),
    "init_std": ("initializer_range", 0.02),
}

KEYS = Keys(
    obeyed=words("pad_token_id mask_token_id id2label num_labels", option_names(OPTIONS)),
    supported={
        "is_decoder": False,
        "is_encoder_decoder": False,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    },
    idle=words(
        "is_causal directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head "
        "pooler_type sbert_ce_default_activation_function"
    ),
)


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> BERTConfig:
    """Return our configuration; the tensors' names tell the model's head."""
    head = "masked" if "cls.predictions.bias" in shapes else "classes" if "classifier.weight" in shapes else "none"
    other = [name for name in shapes if not name.startswith("bert.")]
    if head == "none" and len(other) < len(shapes):
        raise PretrainedError(f"its head is not supported: it is made of {some(other)}")
    if head == "classes" and "bert.pooler.dense.weight" not in shapes:
        raise PretrainedError("its head, a classifier of tokens, is not supported: it has no bert.pooler.dense.weight")
    classes: dict[str, Any] = {"num_classes": (shapes["classifier.weight"] or (0,))[0]} if head == "classes" else {}
    if classes:
        require_classes(values, classes["num_classes"])
    return BERTConfig(
        **read_options(values, OPTIONS),
        pad_id=values.get("pad_token_id") or 0,
        mask_id=token(values, "mask_token_id"),
        head=head,
        **classes,
    )


def to_config(config: BERTConfig) -> dict[str, Any]:
    """Return their configuration, which every BERT of ours has."""
    values = {
        "model_type": "bert",
        "architectures": [CLASSES[config.head]],
        **write_options(config, OPTIONS),
        "pad_token_id": config.pad_id,
        "mask_token_id": config.mask_id,
    }
    return values | (labels(config.num_classes) if config.head == "classes" else {})


def labels(count: int) -> dict[str, Any]:
    """Return names of classes, which give their configuration the number of classes."""
    names = {str(i): f"LABEL_{i}" for i in range(count)}
    return {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}


def table(config: BERTConfig) -> list[Row]:
    """Return the rows of a BERT with its head."""
    width, top = config.d_model, "bert." if config.head != "none" else ""
    inside, ours = f"{top}embeddings.", "encoder.embedding."
    rows = [
        array("tokens.table", f"{inside}word_embeddings.weight", config.vocab_size, width),
        array(f"{ours}positions.table", f"{inside}position_embeddings.weight", config.max_length, width),
        array(f"{ours}types.table", f"{inside}token_type_embeddings.weight", config.token_types, width),
        *norm(f"{ours}norm", f"{inside}LayerNorm", width),
    ]
    for ours, theirs in layers(f"{top}encoder.layer.{{}}.", config.num_layers):
        ours = f"encoder.{ours}"
        names = [f"{theirs}attention.self.{each}" for each in ("query", "key", "value")]
        rows += linear(f"{ours}self_attention.query_key_value", names, width, width, width, width)
        rows += linear(f"{ours}self_attention.output", f"{theirs}attention.output.dense", width, width)
        rows += norm(f"{ours}self_attention_norm", f"{theirs}attention.output.LayerNorm", width)
        rows += linear(f"{ours}feed_forward.expand", f"{theirs}intermediate.dense", width, config.d_ff)
        rows += linear(f"{ours}feed_forward.contract", f"{theirs}output.dense", config.d_ff, width)
        rows += norm(f"{ours}feed_forward_norm", f"{theirs}output.LayerNorm", width)
    if config.head == "masked":
        rows += linear("head.transform", "cls.predictions.transform.dense", width, width)
        rows += norm("head.norm", "cls.predictions.transform.LayerNorm", width)
        return [*rows, array("head.bias", "cls.predictions.bias", config.vocab_size)]
    rows += linear("head.pooler", f"{top}pooler.dense", width, width)
    return rows + (linear("head.classes", "classifier", width, config.num_classes) if config.head == "classes" else [])


BERT = Architecture(
    "bert",
    ("bert",),
    from_config,
    to_config,
    table,
    KEYS,
    heads=("BertForMaskedLM", "BertForPreTraining", "BertLMHeadModel", "BertForSequenceClassification", "BertModel"),
    rename=((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias")),
    # BertForPreTraining has both of BERT's pre-training heads: only the masked one is read, which needs no pooler.
    top="bert.",
    copies=(
        (r"cls\.predictions\.decoder\.weight", "bert.embeddings.word_embeddings.weight"),
        (r"cls\.predictions\.decoder\.bias", "cls.predictions.bias"),
    ),
    ignored=r"(bert\.)?embeddings\.position_ids|cls\.seq_relationship\..*"
    r"|bert\.pooler\.dense\.(weight|bias)",
)
