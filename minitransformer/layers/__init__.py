"""What owns parameters, built from ops: `forward(...) -> (out, cache)`, `backward(dout, cache) -> input gradients`."""

from .additive_attention import AdditiveAttention
from .attention import CrossAttention, SelfAttention
from .blocks import BlockConfig, DecoderLayer, EncoderLayer
from .cells import LSTMCell, State, TanhCell
from .convolution import AttendingConvolution, GatedConvolution, ResidualConvolution, StepAttention
from .dropout import DropoutStream
from .embedding import InputEmbedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from .linear import FeedForward, Linear
from .norm import LayerNorm, Residual
from .parameter import FlatParameters, Layer, Parameter
from .recurrent import Recurrent, RecurrentStack

__all__ = [
    "AdditiveAttention",
    "AttendingConvolution",
    "BlockConfig",
    "CrossAttention",
    "DecoderLayer",
    "DropoutStream",
    "EncoderLayer",
    "FeedForward",
    "FlatParameters",
    "GatedConvolution",
    "InputEmbedding",
    "LSTMCell",
    "Layer",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "Parameter",
    "Recurrent",
    "RecurrentStack",
    "Residual",
    "ResidualConvolution",
    "SelfAttention",
    "SinusoidalPositions",
    "State",
    "StepAttention",
    "TanhCell",
    "TokenEmbedding",
]
