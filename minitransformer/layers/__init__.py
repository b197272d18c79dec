"""Layers own parameters and compute with ops: `forward(...) -> (out, cache)`, `backward(dout, cache) -> dx, …`."""

from .additive_attention import AdditiveAttention
from .attention import Attention, AttentionConfig, CrossAttention, SelfAttention
from .block import Block, BlockConfig
from .cache import Cache
from .cells import LSTMCell, State, TanhCell
from .context import PLAIN, Context, DropoutStream
from .convolution import AttendingConvolution, GatedConvolution, ResidualConvolution, StepAttention
from .embedding import InputEmbedding, PatchEmbedding, TokenEmbedding
from .feed_forward import FeedForward, FeedForwardConfig
from .linear import InitConfig, Linear
from .linear_attention import LinearSelfAttention
from .norm import Norm, NormConfig, ResidualNorm
from .output import IGNORED, OutputLayer
from .parameter import FlatParameters, Layer, Parameter
from .positions import BiasConfig, LearnedPositions, RelativeBias, Rotary, RotaryConfig, SinusoidalPositions
from .recurrent import Recurrent, RecurrentStack
from .sparse import SparseConfig
from .stack import Stack, StackConfig

__all__ = [
    "IGNORED",
    "PLAIN",
    "AdditiveAttention",
    "AttendingConvolution",
    "Attention",
    "AttentionConfig",
    "BiasConfig",
    "Block",
    "BlockConfig",
    "Cache",
    "Context",
    "CrossAttention",
    "DropoutStream",
    "FeedForward",
    "FeedForwardConfig",
    "FlatParameters",
    "GatedConvolution",
    "InitConfig",
    "InputEmbedding",
    "LSTMCell",
    "Layer",
    "LearnedPositions",
    "Linear",
    "LinearSelfAttention",
    "Norm",
    "NormConfig",
    "OutputLayer",
    "Parameter",
    "PatchEmbedding",
    "Recurrent",
    "RecurrentStack",
    "RelativeBias",
    "ResidualConvolution",
    "ResidualNorm",
    "Rotary",
    "RotaryConfig",
    "SelfAttention",
    "SinusoidalPositions",
    "SparseConfig",
    "Stack",
    "StackConfig",
    "State",
    "StepAttention",
    "TanhCell",
    "TokenEmbedding",
]
