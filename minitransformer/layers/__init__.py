"""Layers own parameters and compute with ops: `forward(...) -> (out, cache)`, `backward(dout, cache) -> dx, …`.

Shapes are written in the letters that `minitransformer.ops` explains.
"""

from .additive_attention import AdditiveAttention
from .attention import Attention, AttentionConfig, CrossAttention, SelfAttention
from .block import Block, BlockConfig
from .cache import ByteCache, Cache
from .cells import LSTMCell, State, TanhCell
from .context import PLAIN, Context, DropoutStream
from .convolution import AttendingConvolution, GatedConvolution, ResidualConvolution, StepAttention
from .embedding import IGNORED, InputEmbedding, OutputLayer, TokenEmbedding
from .feed_forward import FeedForward, FeedForwardConfig
from .linear import InitConfig, Linear
from .linear_attention import LinearSelfAttention
from .lora import AdaptedLinear, LoRA
from .norm import Norm, NormConfig, ResidualNorm
from .parameter import FlatParameters, Layer, Parameter, QuantizedParameter
from .patches import PatchEmbedding
from .positions import LearnedPositions, SinusoidalPositions
from .quantized import QuantizedEmbedding, QuantizedLinear, QuantizedOutput, quantized_layers
from .recurrent import Recurrent, RecurrentStack
from .relative_positions import BiasConfig, RelativeBias, Rotary, RotaryConfig
from .sparse import SparseConfig
from .stack import Stack, StackConfig

__all__ = [
    "IGNORED", "PLAIN", "AdaptedLinear", "AdditiveAttention", "AttendingConvolution", "Attention", "AttentionConfig",
    "BiasConfig", "Block", "BlockConfig", "ByteCache", "Cache", "Context", "CrossAttention", "DropoutStream",
    "FeedForward", "FeedForwardConfig", "FlatParameters", "GatedConvolution", "InitConfig", "InputEmbedding",
    "LSTMCell", "Layer", "LearnedPositions", "Linear", "LinearSelfAttention", "LoRA", "Norm", "NormConfig",
    "OutputLayer", "Parameter", "PatchEmbedding", "QuantizedEmbedding", "QuantizedLinear", "QuantizedOutput",
    "QuantizedParameter", "Recurrent", "RecurrentStack", "RelativeBias", "ResidualConvolution", "ResidualNorm",
    "Rotary", "RotaryConfig", "SelfAttention", "SinusoidalPositions", "SparseConfig", "Stack", "StackConfig", "State",
    "StepAttention", "TanhCell", "TokenEmbedding", "quantized_layers",
]  # fmt: skip
