"""Layers own parameters and compute with ops: `forward(...) -> (out, cache)`, `backward(dout, cache) -> dx, …`."""

from .additive_attention import AdditiveAttention
from .attention import Attention, AttentionConfig
from .block import Block, BlockConfig
from .cache import Cache
from .cells import LSTMCell, State, TanhCell
from .context import PLAIN, Context, DropoutStream
from .convolution import AttendingConvolution, GatedConvolution, ResidualConvolution, StepAttention
from .embedding import InputEmbedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from .feed_forward import FeedForward, FeedForwardConfig
from .linear import Linear
from .norm import LayerNorm, NormConfig, ResidualNorm
from .parameter import FlatParameters, Layer, Parameter
from .recurrent import Recurrent, RecurrentStack
from .stack import Stack, StackConfig

__all__ = [
    "PLAIN",
    "AdditiveAttention",
    "AttendingConvolution",
    "Attention",
    "AttentionConfig",
    "Block",
    "BlockConfig",
    "Cache",
    "Context",
    "DropoutStream",
    "FeedForward",
    "FeedForwardConfig",
    "FlatParameters",
    "GatedConvolution",
    "InputEmbedding",
    "LSTMCell",
    "Layer",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "NormConfig",
    "Parameter",
    "Recurrent",
    "RecurrentStack",
    "ResidualConvolution",
    "ResidualNorm",
    "SinusoidalPositions",
    "Stack",
    "StackConfig",
    "State",
    "StepAttention",
    "TanhCell",
    "TokenEmbedding",
]
