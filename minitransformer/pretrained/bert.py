"""BERT's files: the masked language model, classifiers of texts and of tokens, answers, or the bare encoder."""

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
    require_ours,
    token,
    write_options,
)

CLASSES: dict[str, str] = {
    "masked": "ForMaskedLM",
    "classes": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "answer": "ForQuestionAnswering",
    "none": "Model",
    "hidden": "Model",
}
"""The ends of the names of their classes, by our head."""

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
    pooled = "bert.pooler.dense.weight" in shapes or "pooler.dense.weight" in shapes
    if "cls.predictions.bias" in shapes:
        head: dict[str, Any] = {"head": "masked"}
    else:
        of_tokens = not pooled or is_of_class(values, "ForTokenClassification")  # older ones have a pooler too
        head = read_head(values, shapes, "bert.", "tokens" if of_tokens else "classes", "none" if pooled else "hidden")
    return BERTConfig(**read_options(values, OPTIONS), **read_marks(values, 0), **head)


def read_marks(values: Mapping[str, Any], pad_id: int) -> dict[str, Any]:
    """Return our fields for special tokens."""
    given = values.get("pad_token_id")
    return {"pad_id": pad_id if given is None else given, "mask_id": token(values, "mask_token_id")}


def is_of_class(values: Mapping[str, Any], end: str) -> bool:
    """Return True if a folder's class has a name that ends so."""
    names = values.get("architectures")
    return isinstance(names, list) and any(str(name).casefold().endswith(end.casefold()) for name in names)


def read_head(
    values: Mapping[str, Any], shapes: Mapping[str, Shape], top: str, classes: str, bare: str
) -> dict[str, Any]:
    """Return our fields for the head: an answer's, `classes` for a classifier, or `bare` without a head.

    Raises PretrainedError, saying what the head is made of, for another one.
    """
    kinds = {"qa_outputs.weight": "answer", "classifier.weight": classes, "classifier.out_proj.weight": classes}
    found = [name for name in kinds if name in shapes]
    if found:
        count = (shapes[found[0]] or (0,))[0]
        require_classes(values, count)
        return {"head": kinds[found[0]], "num_classes": count}
    other = [name for name in shapes if not name.startswith(top)]
    if len(other) < len(shapes):
        raise PretrainedError(f"its head is not supported: it is made of {some(other)}")
    return {"head": bare}


def to_config(config: BERTConfig) -> dict[str, Any]:
    """Return their configuration. Raises PretrainedError for a model with parts that BERT does not have."""
    require_ours(config, "BERT", first_position=0, pooler_activation="tanh")
    return {**write_head(config, "bert", "Bert"), **write_options(config, OPTIONS)}


def write_head(config: BERTConfig, name: str, title: str) -> dict[str, Any]:
    """Return the part of their configuration that says what kind of model it is, with its special tokens."""
    values = {
        "model_type": name,
        "architectures": [f"{title}{CLASSES[config.head]}"],
        "pad_token_id": config.pad_id,
        "mask_token_id": config.mask_id,
    }
    return values | (labels(config.num_classes) if config.head in ("classes", "tokens") else {})


def labels(count: int) -> dict[str, Any]:
    """Return names of classes, which give their configuration the number of classes."""
    names = {str(i): f"LABEL_{i}" for i in range(count)}
    return {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}


def table(config: BERTConfig) -> list[Row]:
    """Return the rows of a BERT with its head."""
    width, top = config.d_model, "" if config.head in ("none", "hidden") else "bert."
    rows = encoder(config, top)
    if config.head == "masked":
        rows += linear("head.transform", "cls.predictions.transform.dense", width, width)
        rows += norm("head.norm", "cls.predictions.transform.LayerNorm", width)
        rows.append(array("head.bias", "cls.predictions.bias", config.vocab_size))
    if config.head in ("classes", "none"):
        rows += linear("head.pooler", f"{top}pooler.dense", width, width)
    return rows + classifier(config, "classifier")


def classifier(config: BERTConfig, name: str) -> list[Row]:
    """Return the rows of the map to classes, or to both ends of an answer, in a model that has one."""
    if config.head not in ("classes", "tokens", "answer"):
        return []
    name = {"classes": name, "tokens": "classifier", "answer": "qa_outputs"}[config.head]
    return linear("head.classes", name, config.d_model, config.num_classes)


def encoder(config: BERTConfig, top: str) -> list[Row]:
    """Return the rows of the embedding and the layers, whose names begin with `top`."""
    width = config.d_model
    inside, ours = f"{top}embeddings.", "encoder.embedding."
    rows = [
        array("tokens.table", f"{inside}word_embeddings.weight", config.vocab_size, width),
        array(f"{ours}positions.table", f"{inside}position_embeddings.weight", config.encoder.max_length, width),
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
    return rows


BERT = Architecture(
    "bert",
    ("bert",),
    from_config,
    to_config,
    table,
    KEYS,
    heads=(*dict.fromkeys(f"Bert{each}" for each in CLASSES.values()), "BertForPreTraining", "BertLMHeadModel"),
    rename=((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias")),
    # BertForPreTraining has both of BERT's pre-training heads: only the masked one is read, which needs no pooler.
    top="bert.",
    copies=(
        (r"cls\.predictions\.decoder\.weight", "bert.embeddings.word_embeddings.weight"),
        (r"cls\.predictions\.decoder\.bias", "cls.predictions.bias"),
    ),
    ignored=r"(bert\.)?embeddings\.position_ids|cls\.seq_relationship\..*"
    r"|bert\.pooler\.dense\.(weight|bias)",
    holds=lambda config: not config.first_position and config.token_types > 0,
)
