"""Whole models, built from layers."""
# ruff: noqa: F401 - this is where everybody imports them from

from ..layers import IGNORED
from .baselines import ConvolutionalConfig, ConvolutionalTranslator, RecurrentConfig, RecurrentTranslator
from .bert import BERT, BERTConfig
from .config import (
    DEFAULT_KIND,
    PRESETS,
    ModelConfig,
    StacksConfig,
    TextConfig,
    TransformerConfig,
    TranslationConfig,
    most_tokens,
)
from .decoding import Decoding
from .encoder_decoder import EncoderDecoder
from .gpt import GPT, GPTConfig
from .kinds import KINDS, build_model, config_from_dict
from .marian import MarianConfig
from .model import Model
from .t5 import T5Config
from .transformer import Transformer
from .vit import ViT, ViTConfig
