"""The kinds of model that there are, by the name under which a configuration is written down."""

from collections.abc import Mapping
from typing import Any

from ..ops import Ops, numpy_ops
from .baselines import ConvolutionalConfig, ConvolutionalTranslator, RecurrentConfig, RecurrentTranslator
from .config import DEFAULT_KIND, ModelConfig, TransformerConfig
from .encoder_decoder import EncoderDecoder
from .transformer import Transformer

KINDS: dict[str, tuple[type[ModelConfig], type[EncoderDecoder]]] = {
    TransformerConfig.kind: (TransformerConfig, Transformer),
    RecurrentConfig.kind: (RecurrentConfig, RecurrentTranslator),
    ConvolutionalConfig.kind: (ConvolutionalConfig, ConvolutionalTranslator),
}


def config_from_dict(values: Mapping[str, Any]) -> ModelConfig:
    """The configuration that some kind's `to_dict` wrote; without a kind a Transformer's.

    Raises `ValueError` for an unknown kind, and whatever the `from_dict` of that kind raises.
    """
    kind = values.get("kind", DEFAULT_KIND)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"the model is of kind {kind!r}, which this program does not know: it has {', '.join(KINDS)}")
    return KINDS[kind][0].from_dict(values)


def build_model(config: ModelConfig, ops: Ops = numpy_ops, dtype: str = "float32", seed: int = 0) -> EncoderDecoder:
    """A new model of the kind that the configuration is of."""
    return KINDS[config.kind][1](config, ops, dtype, seed)
