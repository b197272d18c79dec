"""PyTorch's own functions behind the arguments of our ops: what the kernels are checked and timed against.

Only the random bits of dropout are ours, where they have to be the same.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from minitransformer.ops.quantized import Quantized

from ..attention import attention_naive
from ..eager.attention import attention_mask
from ..eager.dropout import dropout_forward
from ..eager.quantized import columns
from ..linear_attention import linear_attention_naive
from ..rope import rope_naive

ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
}


def dropped(x: Tensor, dropout: Any = None) -> Tensor:
    """Return x times our mask and scale."""
    return dropout_forward(x, dropout)[0]


def layernorm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    """Return LayerNorm over the last axis, gamma and beta in x's dtype."""
    return F.layer_norm(x, x.shape[-1:], gamma.to(x.dtype), beta.to(x.dtype), eps)


def rmsnorm(x: Tensor, gamma: Tensor, eps: float = 1e-6) -> Tensor:
    """Return RMSNorm over the last axis, gamma in x's dtype."""
    return F.rms_norm(x, x.shape[-1:], gamma.to(x.dtype), eps)


def attention(query: Tensor, key: Tensor, value: Tensor, bias: Any = None, scale: Any = None, **options: Any) -> Tensor:
    """Return `scaled_dot_product_attention`; or its formula in PyTorch's operations, where the function won't do.

    It draws dropout masks of its own, it has no softcap, and its backends disagree about a query that sees nothing.
    """
    if bias is not None or options.keys() - {"causal", "window"}:
        return attention_naive(query, key, value, bias, scale=scale, **options)
    mask = attention_mask(query.shape[2], key.shape[2], query.device, **options)
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped)


def cross_entropy(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, ignore_index: Any = None, weights: Any = None
) -> Tensor:
    """Return the mean over the targets that count; weights multiply the losses, and not their number."""
    rows, targets = logits.reshape(-1, logits.shape[-1]), targets if targets.is_floating_point() else targets.flatten()
    options = {} if ignore_index is None else {"ignore_index": ignore_index}
    loss = partial(F.cross_entropy, rows, targets, label_smoothing=label_smoothing, **options)
    if weights is None:
        return loss()
    count = len(rows) if ignore_index is None else (targets != ignore_index).sum().clamp(min=1)
    return (loss(reduction="none") * weights.flatten()).sum() / count


def quantized_linear(x: Tensor, bias: Tensor, weight: Quantized) -> Tensor:
    """Return the product with the whole weight, unpacked and rounded to x's dtype."""
    whole = torch.cat([rows for _, rows in columns(weight)]).to(x.dtype)
    return F.linear(x, whole, bias)


PEERS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "gated": lambda gate, up, activation="silu": ACTIVATIONS[activation](gate) * up,
    "softmax": partial(F.softmax, dim=-1),
    "dropout": dropped,
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "add_layernorm": lambda x, y, gamma, beta, eps=1e-5, dropout=None: layernorm(
        x + dropped(y, dropout), gamma, beta, eps
    ),
    "add_rmsnorm": lambda x, y, gamma, eps=1e-6, dropout=None: rmsnorm(x + dropped(y, dropout), gamma, eps),
    "embedding": lambda ids, table, scale=1.0: F.embedding(ids, table) * scale,
    "attention": attention,
    "linear_attention": linear_attention_naive,
    "rope": rope_naive,
    "quantized_linear": quantized_linear,
    "cross_entropy": cross_entropy,
    "linear_cross_entropy": lambda x, table, *rest, **options: cross_entropy(F.linear(x, table), *rest, **options),
}
