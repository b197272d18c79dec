"""PyTorch's own functions behind the arguments of our ops: what the kernels are checked and timed against.

Only the random bits of dropout are ours, where they have to be the same.
"""

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from minitransformer.ops import Dropout

from ..attention import attention_naive
from ..eager.attention import attention_mask
from ..eager.dropout import dropout_forward

relu, softmax = F.relu, partial(F.softmax, dim=-1)


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


def embedding(ids: Tensor, table: Tensor, scale: float = 1.0) -> Tensor:
    """Rows of the table, scaled."""
    return F.embedding(ids, table) * scale


def attention(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: Dropout | None = None, **seen
) -> Tensor:
    """`scaled_dot_product_attention`; or its formula in PyTorch's operations, where the function won't do.

    It draws dropout masks of its own, and its backends disagree about a query that sees nothing.
    """
    if dropout is not None or seen.get("key_mask") is not None:
        return attention_naive(query, key, value, scale=scale, dropout=dropout, **seen)
    mask = attention_mask(query.shape[2], key.shape[2], query.device, **seen)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def cross_entropy(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, ignore_index: int | None = None
) -> Tensor:
    """The mean over the targets that count."""
    return F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        targets.flatten(),
        label_smoothing=label_smoothing,
        ignore_index=-100 if ignore_index is None else ignore_index,
    )


def linear_cross_entropy(
    x: Tensor, table: Tensor, targets: Tensor, label_smoothing: float = 0.0, ignore_index: int | None = None
) -> Tensor:
    """The projection, then the loss."""
    return cross_entropy(F.linear(x, table), targets, label_smoothing, ignore_index)
