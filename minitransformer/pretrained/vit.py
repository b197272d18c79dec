"""ViT's and DeiT's files: their convolution over patches is our linear map of patches, with its kernel flattened."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..models import ViTConfig
from .bert import labels
from .files import PretrainedError
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
    write_options,
)

OPTIONS = {
    "channels": ("num_channels", 3),
    "d_model": ("hidden_size", NEEDED),
    "num_heads": ("num_attention_heads", NEEDED),
    "d_ff": ("intermediate_size", NEEDED),
    "num_layers": ("num_hidden_layers", NEEDED),
    "dropout": ("hidden_dropout_prob", 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.0),
    "activation": ("hidden_act", "gelu"),
    "norm_eps": ("layer_norm_eps", 1e-12),
    "init_std": ("initializer_range", 0.02),
}

KEYS = Keys(
    obeyed=words("image_size patch_size id2label num_labels head_dim", option_names(OPTIONS)),
    supported={"qkv_bias": True, "is_encoder_decoder": False},
    idle=words("encoder_stride pooler_output_size pooler_act is_decoder is_causal vocab_size"),
)


def from_config(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> ViTConfig:
    """Return our configuration; the classifier's tensor tells the number of classes."""
    distillation = "none"
    if values["model_type"] == "deit":
        distillation = "head" if "cls_classifier.weight" in shapes else "token"
    classes = (shapes.get("cls_classifier.weight" if distillation == "head" else "classifier.weight") or (1,))[0]
    require_classes(values, classes)
    config = ViTConfig(
        distillation=distillation,
        num_classes=classes,
        image_size=_side(values, "image_size", 224),
        patch_size=_side(values, "patch_size", 16),
        **read_options(values, OPTIONS),
    )
    if values.get("head_dim") not in (None, config.d_model // config.num_heads):
        raise PretrainedError(f"head_dim {values['head_dim']!r} is not supported, only a head's share of hidden_size")
    return config


def _side(values: Mapping[str, Any], name: str, default: int) -> Any:
    side = values.get(name, default)
    if isinstance(side, list):
        if len(side) != 2 or side[0] != side[1]:
            raise PretrainedError(f"{name} {side!r} is not supported, only squares")
        return side[0]
    return side


def to_config(config: ViTConfig) -> dict[str, Any]:
    """Return their configuration, a ViT's or a DeiT's, one of which every ViT of ours is."""
    name, title = ("vit", "ViT") if config.distillation == "none" else ("deit", "DeiT")
    return {
        "model_type": name,
        "architectures": [f"{title}ForImageClassification{'WithTeacher' * (config.distillation == 'head')}"],
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        **write_options(config, OPTIONS),
        "qkv_bias": True,
        **labels(config.num_classes),
    }


def table(config: ViTConfig) -> list[Row]:
    """Return the rows of a ViT or a DeiT that classifies."""
    top = "vit." if config.distillation == "none" else "deit."
    width, size, inside = config.d_model, config.patch_size, f"{top}embeddings."
    kernel = (width, config.channels, size, size)
    projection = f"{inside}patch_embeddings.projection"
    rows = [
        Row("patches.projection.weight", (f"{projection}.weight",), (kernel,), transposed=True),
        array("patches.projection.bias", f"{projection}.bias", width),
        array("patches.class_token", f"{inside}cls_token", 1, 1, width),
        array("encoder.embedding.positions.table", f"{inside}position_embeddings", 1, config.num_tokens, width),
        *norm("encoder.final_norm", f"{top}layernorm", width),
        *linear(
            "classes", "cls_classifier" if config.distillation == "head" else "classifier", width, config.num_classes
        ),
    ]
    if config.distillation != "none":
        rows.append(array("patches.distillation_token", f"{inside}distillation_token", 1, 1, width))
    if config.distillation == "head":
        rows += linear("distilled_classes", "distillation_classifier", width, config.num_classes)
    for ours, theirs in layers(f"{top}encoder.layer.{{}}.", config.num_layers):
        ours = f"encoder.{ours}"
        names = [f"{theirs}attention.attention.{each}" for each in ("query", "key", "value")]
        rows += linear(f"{ours}self_attention.query_key_value", names, width, width, width, width)
        rows += linear(f"{ours}self_attention.output", f"{theirs}attention.output.dense", width, width)
        rows += linear(f"{ours}feed_forward.expand", f"{theirs}intermediate.dense", width, config.d_ff)
        rows += linear(f"{ours}feed_forward.contract", f"{theirs}output.dense", config.d_ff, width)
        rows += norm(f"{ours}self_attention_norm", f"{theirs}layernorm_before", width)
        rows += norm(f"{ours}feed_forward_norm", f"{theirs}layernorm_after", width)
    return rows


VIT = Architecture(
    "vit",
    ("vit",),
    from_config,
    to_config,
    table,
    KEYS,
    heads=("ViTForImageClassification",),
    rename=(  # the names of transformers 5 in memory, which files do not have
        (r"^(vit|deit)\.layers\.", r"\1.encoder.layer."),
        (r"\.attention\.q_proj\.", ".attention.attention.query."),
        (r"\.attention\.k_proj\.", ".attention.attention.key."),
        (r"\.attention\.v_proj\.", ".attention.attention.value."),
        (r"\.attention\.o_proj\.", ".attention.output.dense."),
        (r"\.mlp\.fc1\.", ".intermediate.dense."),
        (r"\.mlp\.fc2\.", ".output.dense."),
    ),
    ignored=r"(vit|deit)\.pooler\.dense\.(weight|bias)",
    holds=lambda config: config.distillation == "none",
)
DEIT = replace(
    VIT,
    name="deit",
    heads=("DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"),
    holds=lambda config: config.distillation != "none",
)
