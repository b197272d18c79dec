"""What owns parameters, built from ops: `forward(...) -> (out, cache)`, `backward(dout, cache) -> input gradients`."""

from .attention import CrossAttention, SelfAttention
from .blocks import BlockConfig, DecoderLayer, EncoderLayer
from .dropout import DropoutStream
from .embedding import InputEmbedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from .linear import FeedForward, Linear
from .norm import LayerNorm, Residual
from .parameter import FlatParameters, Layer, Parameter

__all__ = [
    "BlockConfig",
    "CrossAttention",
    "DecoderLayer",
    "DropoutStream",
    "EncoderLayer",
    "FeedForward",
    "FlatParameters",
    "InputEmbedding",
    "Layer",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "Parameter",
    "Residual",
    "SelfAttention",
    "SinusoidalPositions",
    "TokenEmbedding",
]
