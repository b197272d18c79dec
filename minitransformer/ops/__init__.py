"""Functions without state: each forward above its backward, one concept a file.

`y, cache = name_forward(x, ..., **options)` and `dx, ... = name_backward(dy, cache)`. The cache is whatever the
backward needs; nobody but the pair looks inside it. `Ops` is the set of them as a table, so that another backend can be
swapped in.

Shapes: B sentences, T positions (Tq queries, Tk keys; Ts source, Tt target), H heads, D the width of a head's queries
and keys (the paper's d_k), Dv of its values (d_v), C the width of the model (d_model; in an op any width), F of the
feed-forward network (d_ff), V the vocabulary, N rows of any kind, K beams (of a convolution: the positions that it
sees), P all parameters.
"""

from .adam import adam_step, global_norm
from .additive_attention import additive_attention_backward, additive_attention_forward
from .arrays import Array, activations, asarray, cast, concatenate, cos, sin, take, to_numpy, zeros
from .attention import attention_backward, attention_forward, attention_mask, attention_weights
from .conv1d import conv1d_backward, conv1d_forward
from .cross_entropy import (
    cross_entropy_backward,
    cross_entropy_forward,
    linear_cross_entropy_backward,
    linear_cross_entropy_forward,
)
from .dropout import Dropout, dropout_backward, dropout_forward, dropout_key, dropout_mask
from .embedding import embedding_backward, embedding_forward
from .layernorm import add_layernorm_backward, add_layernorm_forward, layernorm_backward, layernorm_forward
from .linear import linear_backward, linear_forward
from .relu import relu_backward, relu_forward
from .sigmoid import sigmoid_backward, sigmoid_forward
from .softmax import log_softmax, softmax_backward, softmax_forward
from .table import Ops, Pair, numpy_ops
from .tanh import tanh_backward, tanh_forward
from .topk import topk

__all__ = [
    "Array",
    "Dropout",
    "Ops",
    "Pair",
    "activations",
    "adam_step",
    "add_layernorm_backward",
    "add_layernorm_forward",
    "additive_attention_backward",
    "additive_attention_forward",
    "asarray",
    "attention_backward",
    "attention_forward",
    "attention_mask",
    "attention_weights",
    "cast",
    "concatenate",
    "conv1d_backward",
    "conv1d_forward",
    "cos",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "dropout_backward",
    "dropout_forward",
    "dropout_key",
    "dropout_mask",
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
    "numpy_ops",
    "relu_backward",
    "relu_forward",
    "sigmoid_backward",
    "sigmoid_forward",
    "sin",
    "softmax_backward",
    "softmax_forward",
    "take",
    "tanh_backward",
    "tanh_forward",
    "to_numpy",
    "topk",
    "zeros",
]
