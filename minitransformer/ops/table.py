"""The table of ops: what layers and models call, and what a faster backend replaces."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Generic, TypeVar

import numpy as np

from .adam import adam_step, global_norm
from .additive_attention import additive_attention_backward, additive_attention_forward
from .arrays import Array, activations, asarray, cast, concatenate, cos, sin, take, to_numpy, zeros
from .attention import attention_backward, attention_forward, attention_weights
from .conv1d import conv1d_backward, conv1d_forward
from .cross_entropy import (
    cross_entropy_backward,
    cross_entropy_forward,
    linear_cross_entropy_backward,
    linear_cross_entropy_forward,
)
from .dropout import dropout_backward, dropout_forward
from .embedding import embedding_backward, embedding_forward
from .layernorm import add_layernorm_backward, add_layernorm_forward, layernorm_backward, layernorm_forward
from .linear import linear_backward, linear_forward
from .relu import relu_backward, relu_forward
from .sigmoid import sigmoid_backward, sigmoid_forward
from .softmax import log_softmax, softmax_backward, softmax_forward
from .tanh import tanh_backward, tanh_forward
from .topk import topk

Forward = TypeVar("Forward", bound=Callable[..., Any], covariant=True)
Backward = TypeVar("Backward", bound=Callable[..., Any], covariant=True)


@dataclass(frozen=True)
class Pair(Generic[Forward, Backward]):
    """An op that can be differentiated: `y, cache = forward(x, …)` and `dx, … = backward(dy, cache)`."""

    forward: Forward
    backward: Backward


Repeated = TypeVar("Repeated", bound=Callable[..., Any])


def as_it_is(function: Repeated) -> Repeated:
    """The function itself."""
    return function


@dataclass(frozen=True)
class Ops:
    """Every op by its name. The defaults are NumPy's; `dataclasses.replace(table, relu=other.relu)` swaps one.

    A pair's type is that of its NumPy functions: an editor follows `ops.relu.forward` to the line below and through it
    to the function, and a type checker sees whether another backend's pair takes the same arguments.

    repeated     a function of a model and a batch in the form in which the backend runs it again and again: itself, or
                 on a GPU a graph of its kernels
    has_threads  whether the backend shares out the work of one call over the machine by itself
    """

    linear: Final = Pair(linear_forward, linear_backward)
    relu: Final = Pair(relu_forward, relu_backward)
    softmax: Final = Pair(softmax_forward, softmax_backward)
    layernorm: Final = Pair(layernorm_forward, layernorm_backward)
    add_layernorm: Final = Pair(add_layernorm_forward, add_layernorm_backward)
    dropout: Final = Pair(dropout_forward, dropout_backward)
    embedding: Final = Pair(embedding_forward, embedding_backward)
    attention: Final = Pair(attention_forward, attention_backward)
    cross_entropy: Final = Pair(cross_entropy_forward, cross_entropy_backward)
    linear_cross_entropy: Final = Pair(linear_cross_entropy_forward, linear_cross_entropy_backward)
    tanh: Final = Pair(tanh_forward, tanh_backward)
    sigmoid: Final = Pair(sigmoid_forward, sigmoid_backward)
    conv1d: Final = Pair(conv1d_forward, conv1d_backward)
    additive_attention: Final = Pair(additive_attention_forward, additive_attention_backward)

    attention_weights: Callable[..., Array] = attention_weights
    log_softmax: Callable[[Array], Array] = log_softmax
    topk: Callable[[Array, int], tuple[Array, Array]] = topk
    adam_step: Callable[..., None] = adam_step
    global_norm: Callable[[Array], Any] = global_norm

    # What NumPy's arrays and tensors do not share: making and moving them.
    asarray: Callable[..., Array] = asarray
    to_numpy: Callable[[Array], np.ndarray] = to_numpy
    zeros: Callable[..., Array] = zeros
    activations: Callable[[Array], Array] = activations
    cast: Callable[[Array, Any], Array] = cast
    concatenate: Callable[..., Array] = concatenate
    take: Callable[..., Array] = take
    sin: Callable[[Array], Array] = sin
    cos: Callable[[Array], Array] = cos

    # What else differs: how a backend computes.
    repeated: Callable[[Callable[..., Any]], Callable[..., Any]] = as_it_is
    has_threads: bool = False

    def pairs(self) -> Iterator[tuple[str, Pair]]:
        """Every op that is a pair, with its name."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Pair):
                yield field.name, value


def entries(functions: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a table in a namespace: a `Pair` of `name_forward` and `name_backward`, the rest as it is.

    How a backend makes its table from its functions: `Ops(**entries(vars(module)))`.
    """
    found = {}
    for field in fields(Ops):
        if f"{field.name}_forward" in functions:
            found[field.name] = Pair(functions[f"{field.name}_forward"], functions[f"{field.name}_backward"])
        elif field.name in functions:
            found[field.name] = functions[field.name]
    return found


numpy_ops = Ops()
