"""PyTorch's own functions behind the arguments of our ops: what the kernels are checked and timed against.

Only the random bits of dropout are ours, where they have to be the same.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from minitransformer.ops import Dropout

from ..attention import attention_naive
from ..eager.attention import attention_mask
from ..eager.dropout import dropout_forward
from ..linear_attention import linear_attention_naive
from ..rope import rope_naive

relu, gelu, silu, softmax = F.relu, F.gelu, F.silu, partial(F.softmax, dim=-1)
linear_attention, rope = linear_attention_naive, rope_naive

ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
}


def gated(gate: Tensor, up: Tensor, activation: str = "silu") -> Tensor:
    """The activation, then the product."""
    return ACTIVATIONS[activation](gate) * up


def dropout(x: Tensor, dropout: Dropout | None) -> Tensor:
    """Our mask and scale, multiplied in."""
    return dropout_forward(x, dropout)[0]


def layernorm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    """Over the last axis, gamma and beta in x's dtype."""
    return F.layer_norm(x, x.shape[-1:], gamma.to(x.dtype), beta.to(x.dtype), eps)


def add_layernorm(
    x: Tensor, sublayer_out: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5, dropout: Dropout | None = None
) -> Tensor:
    """`LayerNorm(x + Dropout(sublayer_out))`, each by itself."""
    return layernorm(x + dropout_forward(sublayer_out, dropout)[0], gamma, beta, eps)


def rmsnorm(x: Tensor, gamma: Tensor, eps: float = 1e-6) -> Tensor:
    """Over the last axis, gamma in x's dtype."""
    return F.rms_norm(x, x.shape[-1:], gamma.to(x.dtype), eps)


def add_rmsnorm(
    x: Tensor, sublayer_out: Tensor, gamma: Tensor, eps: float = 1e-6, dropout: Dropout | None = None
) -> Tensor:
    """`RMSNorm(x + Dropout(sublayer_out))`, each by itself."""
    return rmsnorm(x + dropout_forward(sublayer_out, dropout)[0], gamma, eps)


def embedding(ids: Tensor, table: Tensor, scale: float = 1.0) -> Tensor:
    """Rows of the table, scaled."""
    return F.embedding(ids, table) * scale


def attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None, *, scale: float | None = None, **options
) -> Tensor:
    """`scaled_dot_product_attention`; or its formula in PyTorch's operations, where the function won't do.

    It draws dropout masks of its own, it has no softcap, and its backends disagree about a query that sees nothing.
    """
    if bias is not None or options.keys() - {"causal", "window"}:
        return attention_naive(query, key, value, bias, scale=scale, **options)
    mask = attention_mask(query.shape[2], key.shape[2], query.device, **options)
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped)


def cross_entropy(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, ignore_index: int | None = None
) -> Tensor:
    """The mean over the targets that count."""
    return F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        targets if targets.is_floating_point() else targets.flatten(),
        label_smoothing=label_smoothing,
        ignore_index=-100 if ignore_index is None else ignore_index,
    )


def linear_cross_entropy(
    x: Tensor, table: Tensor, targets: Tensor, label_smoothing: float = 0.0, ignore_index: int | None = None
) -> Tensor:
    """The projection, then the loss."""
    return cross_entropy(F.linear(x, table), targets, label_smoothing, ignore_index)
