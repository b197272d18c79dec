"""Whole models, built from layers."""

from .config import PRESETS, TransformerConfig
from .convolutional import ConvolutionalConfig, ConvolutionalTranslator
from .decoder_state import BeamState, DecoderState, RowState
from .kinds import KINDS, build_model, config_from_dict
from .model import Model
from .model_config import DEFAULT_KIND, ModelConfig
from .recurrent import RecurrentConfig, RecurrentTranslator
from .transformer import Transformer

__all__ = [
    "DEFAULT_KIND",
    "KINDS",
    "PRESETS",
    "BeamState",
    "ConvolutionalConfig",
    "ConvolutionalTranslator",
    "DecoderState",
    "Model",
    "ModelConfig",
    "RecurrentConfig",
    "RecurrentTranslator",
    "RowState",
    "Transformer",
    "TransformerConfig",
    "build_model",
    "config_from_dict",
]
