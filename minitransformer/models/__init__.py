"""Whole models, built from layers."""

from .baselines import ConvolutionalConfig, ConvolutionalTranslator, RecurrentConfig, RecurrentTranslator
from .config import DEFAULT_KIND, PRESETS, ModelConfig, TransformerConfig
from .encoder_decoder import Decoding, EncoderDecoder
from .kinds import KINDS, build_model, config_from_dict
from .model import Model
from .transformer import Transformer

__all__ = [
    "DEFAULT_KIND",
    "KINDS",
    "PRESETS",
    "ConvolutionalConfig",
    "ConvolutionalTranslator",
    "Decoding",
    "EncoderDecoder",
    "Model",
    "ModelConfig",
    "RecurrentConfig",
    "RecurrentTranslator",
    "Transformer",
    "TransformerConfig",
    "build_model",
    "config_from_dict",
]
