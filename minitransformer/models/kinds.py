"""The kinds of model, by the name that a configuration's file gives them."""

from collections.abc import Mapping
from typing import Any

from ..ops import Ops, numpy_ops
from .baselines import ConvolutionalConfig, ConvolutionalTranslator, RecurrentConfig, RecurrentTranslator
from .bert import BERT, BERTConfig
from .config import DEFAULT_KIND, ModelConfig, TransformerConfig
from .gpt import GPT, GPTConfig
from .marian import MarianConfig
from .model import Model
from .t5 import T5Config
from .transformer import Transformer
from .vit import ViT, ViTConfig

KINDS: dict[str, tuple[type[ModelConfig], type[Model]]] = {
    TransformerConfig.kind: (TransformerConfig, Transformer),
    GPTConfig.kind: (GPTConfig, GPT),
    BERTConfig.kind: (BERTConfig, BERT),
    T5Config.kind: (T5Config, Transformer),
    MarianConfig.kind: (MarianConfig, Transformer),
    ViTConfig.kind: (ViTConfig, ViT),
    RecurrentConfig.kind: (RecurrentConfig, RecurrentTranslator),
    ConvolutionalConfig.kind: (ConvolutionalConfig, ConvolutionalTranslator),
}


def config_from_dict(values: Mapping[str, Any]) -> ModelConfig:
    """The configuration that `to_dict` wrote, of any kind of model; values without a kind are a Transformer's.

    Raises `ValueError` for an unknown kind, and what the `from_dict` of the kind raises.
    """
    kind = values.get("kind", DEFAULT_KIND)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"the model is of kind {kind!r}, which this program does not know: it has {', '.join(KINDS)}")
    return KINDS[kind][0].from_dict(values)


def build_model(config: ModelConfig, ops: Ops = numpy_ops, dtype: str = "float32", seed: int = 0) -> Any:
    """A new model of the configuration's kind."""
    return KINDS[config.kind][1](config, ops, dtype, seed)
