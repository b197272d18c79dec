"""Whole models, built from layers."""

from .config import PRESETS, TransformerConfig
from .decoder_state import DecoderState
from .transformer import Transformer

__all__ = ["PRESETS", "DecoderState", "Transformer", "TransformerConfig"]
