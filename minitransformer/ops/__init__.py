"""The ops that models compute with: functions without state, each backward under its forward, related ones in a file.

`y, cache = name_forward(x, ..., **options)` and `dx, ... = name_backward(dy, cache)`. The cache is whatever the
backward needs; only the pair looks inside it. The lines above them, `@arguments` and `@gradient_of`, check their calls:
see `arguments.py`, or pass over them. `Ops` is the table of all ops, so that another backend can be swapped in.

Shapes: B sentences, T positions (Tq queries, Tk keys; Ts source, Tt target), H heads (Hk of keys and values: as many or
a divisor), D the width of a head's queries and keys (the paper's d_k), Dv of its values (d_v), C the width of the model
(d_model; in an op any width), F of the feed-forward network (d_ff), V the vocabulary, N rows of any kind, K beams (in a
convolution: the positions that it sees), P all parameters.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Generic, TypeVar

import numpy as np

from .adam import adam_step, global_norm
from .additive_attention import additive_attention_backward, additive_attention_forward
from .arguments import Array, unchecked, without_spurious_warnings
from .arrays import activations, asarray, cast, concatenate, cos, sin, take, to_numpy, zeros
from .attention import attention_backward, attention_forward, attention_weights
from .convolution import conv1d_backward, conv1d_forward, patches_backward, patches_forward
from .cross_entropy import (
    cross_entropy_backward,
    cross_entropy_forward,
    linear_cross_entropy_backward,
    linear_cross_entropy_forward,
)
from .dropout import Dropout, dropout_backward, dropout_forward, dropout_key, dropout_mask
from .elementwise import (
    activations_of,
    gated_backward,
    gated_forward,
    gelu_backward,
    gelu_forward,
    relu_backward,
    relu_forward,
    sigmoid_backward,
    sigmoid_forward,
    silu_backward,
    silu_forward,
    tanh_backward,
    tanh_forward,
)
from .embedding import embedding_backward, embedding_forward
from .linear import linear_backward, linear_forward
from .linear_attention import linear_attention_backward, linear_attention_forward, linear_attention_step
from .log_probs import entropy_backward, entropy_forward, log_probs_backward, log_probs_forward
from .norms import (
    add_layernorm_backward,
    add_layernorm_forward,
    add_rmsnorm_backward,
    add_rmsnorm_forward,
    layernorm_backward,
    layernorm_forward,
    rmsnorm_backward,
    rmsnorm_forward,
)
from .pattern import Pattern, attention_mask
from .quantized import (
    Quantized,
    dequantize,
    quantize,
    quantized_linear_backward,
    quantized_linear_forward,
    quantized_rows,
)
from .rope import rope_backward, rope_forward
from .search import log_softmax, topk
from .softmax import softmax_backward, softmax_forward

__all__ = [
    "Array", "Dropout", "Ops", "Pair", "Pattern", "Quantized", "activations", "activations_of", "adam_step",
    "add_layernorm_backward", "add_layernorm_forward", "add_rmsnorm_backward", "add_rmsnorm_forward",
    "additive_attention_backward", "additive_attention_forward", "as_it_is", "asarray", "attention_backward",
    "attention_forward", "attention_mask", "attention_weights", "cast", "concatenate", "conv1d_backward",
    "conv1d_forward", "cos", "cross_entropy_backward", "cross_entropy_forward", "dequantize", "dropout_backward",
    "dropout_forward", "dropout_key", "dropout_mask", "embedding_backward", "embedding_forward", "entries",
    "entropy_backward", "entropy_forward", "gated_backward", "gated_forward", "gelu_backward", "gelu_forward",
    "global_norm", "layernorm_backward", "layernorm_forward", "linear_attention_backward", "linear_attention_forward",
    "linear_attention_step", "linear_backward", "linear_cross_entropy_backward", "linear_cross_entropy_forward",
    "linear_forward", "log_probs_backward", "log_probs_forward", "log_softmax", "numpy_ops", "patches_backward",
    "patches_forward", "quantize", "quantized_linear_backward", "quantized_linear_forward", "quantized_rows",
    "relu_backward", "relu_forward", "rmsnorm_backward", "rmsnorm_forward", "rope_backward", "rope_forward",
    "sigmoid_backward", "sigmoid_forward", "silu_backward", "silu_forward", "sin", "softmax_backward",
    "softmax_forward", "take", "tanh_backward", "tanh_forward", "to_numpy", "topk", "unchecked",
    "without_spurious_warnings", "zeros",
]  # fmt: skip

Forward = TypeVar("Forward", bound=Callable[..., Any], covariant=True)
Backward = TypeVar("Backward", bound=Callable[..., Any], covariant=True)


@dataclass(frozen=True)
class Pair(Generic[Forward, Backward]):
    """An op that can be differentiated: `y, cache = forward(x, …)` and `dx, … = backward(dy, cache)`."""

    forward: Forward
    backward: Backward


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself."""
    return function


@dataclass(frozen=True)
class Ops:
    """The table of all ops by name. The defaults are NumPy's; `dataclasses.replace(table, relu=other.relu)` swaps one.

    A pair's type is that of its NumPy functions: an editor follows `ops.relu.forward` to the line below and through it
    to the function, and a type checker sees whether another backend's pair takes the same arguments.

    repeated     prepares a function of a model and a batch for many calls: returns it as it is or, on a GPU, as a
                 CUDA graph
    has_threads  whether the backend itself spreads the work of one call over several threads
    """

    linear: Final = Pair(linear_forward, linear_backward)
    relu: Final = Pair(relu_forward, relu_backward)
    gelu: Final = Pair(gelu_forward, gelu_backward)
    silu: Final = Pair(silu_forward, silu_backward)
    gated: Final = Pair(gated_forward, gated_backward)
    softmax: Final = Pair(softmax_forward, softmax_backward)
    layernorm: Final = Pair(layernorm_forward, layernorm_backward)
    add_layernorm: Final = Pair(add_layernorm_forward, add_layernorm_backward)
    rmsnorm: Final = Pair(rmsnorm_forward, rmsnorm_backward)
    add_rmsnorm: Final = Pair(add_rmsnorm_forward, add_rmsnorm_backward)
    dropout: Final = Pair(dropout_forward, dropout_backward)
    embedding: Final = Pair(embedding_forward, embedding_backward)
    patches: Final = Pair(patches_forward, patches_backward)
    rope: Final = Pair(rope_forward, rope_backward)
    attention: Final = Pair(attention_forward, attention_backward)
    linear_attention: Final = Pair(linear_attention_forward, linear_attention_backward)
    cross_entropy: Final = Pair(cross_entropy_forward, cross_entropy_backward)
    linear_cross_entropy: Final = Pair(linear_cross_entropy_forward, linear_cross_entropy_backward)
    log_probs: Final = Pair(log_probs_forward, log_probs_backward)
    entropy: Final = Pair(entropy_forward, entropy_backward)
    tanh: Final = Pair(tanh_forward, tanh_backward)
    sigmoid: Final = Pair(sigmoid_forward, sigmoid_backward)
    conv1d: Final = Pair(conv1d_forward, conv1d_backward)
    additive_attention: Final = Pair(additive_attention_forward, additive_attention_backward)
    quantized_linear: Final = Pair(quantized_linear_forward, quantized_linear_backward)

    quantized_rows: Callable[[Quantized, Array], Array] = quantized_rows
    attention_weights: Callable[..., Array] = attention_weights
    linear_attention_step: Callable[..., tuple[Array, tuple[Array, Array]]] = linear_attention_step
    log_softmax: Callable[[Array], Array] = log_softmax
    topk: Callable[[Array, int], tuple[Array, Array]] = topk
    adam_step: Callable[..., None] = adam_step
    global_norm: Callable[[Array], Any] = global_norm

    # Making and moving arrays, which NumPy and PyTorch do differently.
    asarray: Callable[..., Array] = asarray
    to_numpy: Callable[[Array], np.ndarray] = to_numpy
    zeros: Callable[..., Array] = zeros
    activations: Callable[[Array], Array] = activations
    cast: Callable[[Array, Any], Array] = cast
    concatenate: Callable[..., Array] = concatenate
    take: Callable[..., Array] = take
    sin: Callable[[Array], Array] = sin
    cos: Callable[[Array], Array] = cos

    # How a backend runs functions of a model.
    repeated: Callable[[Callable[..., Any]], Callable[..., Any]] = as_it_is
    has_threads: bool = False

    def unchecked(self) -> "Ops":
        """Return this table with NumPy's ops as they are without checks of types, shapes and options.

        It is for callers whose arguments can't be wrong: a model checks its input once, where it comes in. Ids, targets
        and label smoothing are still checked. The functions of other backends, and those that a probe watches, stay as
        they are.
        """
        plain: dict[str, Any] = {}
        for name, entry in vars(self).items():
            is_pair = isinstance(entry, Pair)
            plain[name] = Pair(unchecked(entry.forward), unchecked(entry.backward)) if is_pair else unchecked(entry)
        return Ops(**plain)

    def activation_named(self, name: str) -> Pair[Callable[[Array], tuple[Array, Any]], Callable[[Array, Any], Array]]:
        """Return the pair of an activation by the name that configurations give it, such as "gelu_tanh"."""
        pairs = ((each.forward, each.backward) for each in (self.silu, self.gelu, self.relu, self.sigmoid))
        return Pair(*activations_of(*pairs)[name])

    def pairs(self) -> Iterator[tuple[str, Pair]]:
        """Yield the name and the pair of each op of arrays that has a backward; `quantized_linear`'s weight is none."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Pair) and field.name != "quantized_linear":
                yield field.name, value


def entries(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's entries by name: a `Pair` of `name_forward` and `name_backward`, other functions as they are.

    A backend makes its table from a module with it: `Ops(**entries(vars(module)))`.
    """
    found = {}
    for field in fields(Ops):
        if f"{field.name}_forward" in functions:
            found[field.name] = Pair(functions[f"{field.name}_forward"], functions[f"{field.name}_backward"])
        elif field.name in functions:
            found[field.name] = functions[field.name]
    return found


numpy_ops = Ops()
