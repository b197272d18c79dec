"""The ops in PyTorch's own arithmetic, without its autograd: on a CPU, a GPU or Apple's, in any floating dtype.

One file for each of `minitransformer.ops`, with the same names, formulas and errors, so that the two can be read side
by side; what the formulas mean is said there. float16 and bfloat16 are widened to float32 wherever a sum is taken.
Autograd is not needed, and not in the way: it follows these functions as it follows all that PyTorch computes.
"""

from .adam import adam_step, global_norm
from .additive_attention import additive_attention_backward, additive_attention_forward
from .attention import attention_backward, attention_forward, attention_from, attention_weights
from .conv1d import conv1d_backward, conv1d_forward
from .cross_entropy import (
    cross_entropy_backward,
    cross_entropy_forward,
    linear_cross_entropy_backward,
    linear_cross_entropy_forward,
)
from .dropout import dropout_backward, dropout_forward
from .embedding import embedding_backward, embedding_forward
from .layernorm import (
    add_layernorm_backward,
    add_layernorm_forward,
    add_layernorm_from,
    layernorm_backward,
    layernorm_forward,
)
from .linear import linear_backward, linear_forward
from .relu import relu_backward, relu_forward
from .sigmoid import sigmoid_backward, sigmoid_forward
from .softmax import log_softmax, softmax_backward, softmax_forward
from .tanh import tanh_backward, tanh_forward

__all__ = [
    "adam_step",
    "add_layernorm_backward",
    "add_layernorm_forward",
    "add_layernorm_from",
    "additive_attention_backward",
    "additive_attention_forward",
    "attention_backward",
    "attention_forward",
    "attention_from",
    "attention_weights",
    "conv1d_backward",
    "conv1d_forward",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "dropout_backward",
    "dropout_forward",
    "embedding_backward",
    "embedding_forward",
    "global_norm",
    "layernorm_backward",
    "layernorm_forward",
    "linear_backward",
    "linear_cross_entropy_backward",
    "linear_cross_entropy_forward",
    "linear_forward",
    "log_softmax",
    "relu_backward",
    "relu_forward",
    "sigmoid_backward",
    "sigmoid_forward",
    "softmax_backward",
    "softmax_forward",
    "tanh_backward",
    "tanh_forward",
]
