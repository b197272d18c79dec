"""Whole models, built from layers."""

from ..layers import IGNORED
from .baselines import ConvolutionalConfig, ConvolutionalTranslator, RecurrentConfig, RecurrentTranslator
from .bert import BERT, BERTConfig
from .captioner import Captioner, CaptionerConfig
from .clip import CLIP, CLIPConfig
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
from .tuning import Tuning, is_adapter
from .vit import ViT, ViTConfig

__all__ = [
    "BERT", "CLIP", "DEFAULT_KIND", "GPT", "IGNORED", "KINDS", "PRESETS", "BERTConfig", "CLIPConfig", "Captioner",
    "CaptionerConfig", "ConvolutionalConfig", "ConvolutionalTranslator", "Decoding", "EncoderDecoder", "GPTConfig",
    "MarianConfig", "Model", "ModelConfig", "RecurrentConfig", "RecurrentTranslator", "StacksConfig", "T5Config",
    "TextConfig", "Transformer", "TransformerConfig", "TranslationConfig", "Tuning", "ViT", "ViTConfig", "build_model",
    "config_from_dict", "is_adapter", "most_tokens",
]  # fmt: skip
