"""The models before the Transformer, to compare it with: recurrent and convolutional encoder–decoders."""

from .convolutional import ConvolutionalConfig, ConvolutionalTranslator
from .recurrent import RecurrentConfig, RecurrentTranslator

__all__ = ["ConvolutionalConfig", "ConvolutionalTranslator", "RecurrentConfig", "RecurrentTranslator"]
