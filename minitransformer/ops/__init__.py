"""Functions without state: each forward above its backward, one concept a file.

`y, cache = name_forward(x, ..., **options)` and `dx, ... = name_backward(dy, cache)`. The cache is whatever the
backward needs; nobody but the pair looks inside it. `Ops` is the set of them as a table, so that another backend can be
swapped in.

Shapes: B sentences, T positions (Tq queries, Tk keys; Ts source, Tt target), H heads, D the width of a head's queries
and keys (the paper's d_k), Dv of its values (d_v), C the width of the model (d_model; in an op any width), F of the
feed-forward network (d_ff), V the vocabulary, N rows of any kind, K beams (of a convolution: the positions that it
sees), P all parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
from .tanh import tanh_backward, tanh_forward
from .topk import topk

Op = Callable[..., Any]


@dataclass(frozen=True)
class Ops:
    """Every op as a field: what layers and models call, and what a faster backend replaces."""

    linear_forward: Op
    linear_backward: Op
    relu_forward: Op
    relu_backward: Op
    softmax_forward: Op
    softmax_backward: Op
    layernorm_forward: Op
    layernorm_backward: Op
    add_layernorm_forward: Op
    add_layernorm_backward: Op
    dropout_forward: Op
    dropout_backward: Op
    embedding_forward: Op
    embedding_backward: Op
    attention_forward: Op
    attention_backward: Op
    cross_entropy_forward: Op
    cross_entropy_backward: Op
    linear_cross_entropy_forward: Op
    linear_cross_entropy_backward: Op
    tanh_forward: Op
    tanh_backward: Op
    sigmoid_forward: Op
    sigmoid_backward: Op
    conv1d_forward: Op
    conv1d_backward: Op
    additive_attention_forward: Op
    additive_attention_backward: Op
    attention_weights: Op
    activations: Op
    asarray: Op
    to_numpy: Op
    zeros: Op
    concatenate: Op
    cast: Op
    sin: Op
    cos: Op
    log_softmax: Op
    topk: Op
    take: Op
    adam_step: Op
    global_norm: Op


numpy_ops = Ops(
    linear_forward=linear_forward,
    linear_backward=linear_backward,
    relu_forward=relu_forward,
    relu_backward=relu_backward,
    softmax_forward=softmax_forward,
    softmax_backward=softmax_backward,
    layernorm_forward=layernorm_forward,
    layernorm_backward=layernorm_backward,
    add_layernorm_forward=add_layernorm_forward,
    add_layernorm_backward=add_layernorm_backward,
    dropout_forward=dropout_forward,
    dropout_backward=dropout_backward,
    embedding_forward=embedding_forward,
    embedding_backward=embedding_backward,
    attention_forward=attention_forward,
    attention_backward=attention_backward,
    cross_entropy_forward=cross_entropy_forward,
    cross_entropy_backward=cross_entropy_backward,
    linear_cross_entropy_forward=linear_cross_entropy_forward,
    linear_cross_entropy_backward=linear_cross_entropy_backward,
    tanh_forward=tanh_forward,
    tanh_backward=tanh_backward,
    sigmoid_forward=sigmoid_forward,
    sigmoid_backward=sigmoid_backward,
    conv1d_forward=conv1d_forward,
    conv1d_backward=conv1d_backward,
    additive_attention_forward=additive_attention_forward,
    additive_attention_backward=additive_attention_backward,
    attention_weights=attention_weights,
    activations=activations,
    asarray=asarray,
    to_numpy=to_numpy,
    zeros=zeros,
    concatenate=concatenate,
    cast=cast,
    sin=sin,
    cos=cos,
    log_softmax=log_softmax,
    topk=topk,
    take=take,
    adam_step=adam_step,
    global_norm=global_norm,
)

__all__ = [
    "Array",
    "Dropout",
    "Ops",
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
