"""The ops as PyTorch has them, over float64 tensors: what ours must equal, output and gradients (by autograd).

Each is PyTorch's own function, not our formula typed again. Only the random bits of dropout are ours: PyTorch can't
draw the same ones, so the mask is multiplied in.
"""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical

from minitransformer.ops import Dropout, Pattern, dropout_mask

relu = F.relu
tanh = torch.tanh
sigmoid = torch.sigmoid


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear`, which stores its weight transposed, `(C_out, C_in)`."""
    return F.linear(x, weight.T, bias)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """`F.gelu`."""
    return F.gelu(x, approximate=approximate)


silu = F.silu


def gated(gate: Tensor, up: Tensor, activation: str = "silu") -> Tensor:
    """PyTorch's activation of gate times up; with the sigmoid `F.glu`, whose input holds up and then gate."""
    if activation == "sigmoid" and gate.shape[-1]:  # F.glu takes no empty axis
        return F.glu(torch.cat([up, gate], dim=-1), dim=-1)
    activations = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu, "sigmoid": torch.sigmoid}
    return activations.get(activation, lambda x: F.gelu(x, approximate="tanh"))(gate) * up


def softmax(x: Tensor) -> Tensor:
    """`F.softmax` over the last axis."""
    return F.softmax(x, dim=-1)


def log_softmax(x: Tensor) -> Tensor:
    """`F.log_softmax` over the last axis."""
    return F.log_softmax(x, dim=-1)


def layernorm(x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float = 1e-5) -> Tensor:
    """`F.layer_norm` over the last axis."""
    return F.layer_norm(x, x.shape[-1:], gamma, beta, eps)


def rmsnorm(x: Tensor, gamma: Tensor, eps: float = 1e-6) -> Tensor:
    """`F.rms_norm` over the last axis."""
    return F.rms_norm(x, x.shape[-1:], gamma, eps)


def dropped(x: Tensor, dropout: Dropout | None = None) -> Tensor:
    """Our mask and scale, multiplied in."""
    if dropout is None:
        return x
    return x * torch.from_numpy(dropout_mask(tuple(x.shape), dropout)) * dropout.scale


dropout = dropped


def add_layernorm(
    x: Tensor,
    sublayer_out: Tensor,
    gamma: Tensor,
    beta: Tensor | None,
    eps: float = 1e-5,
    dropout: Dropout | None = None,
) -> Tensor:
    """`LayerNorm(x + Dropout(sublayer_out))`, each by itself."""
    return layernorm(x + dropped(sublayer_out, dropout), gamma, beta, eps)


def add_rmsnorm(
    x: Tensor, sublayer_out: Tensor, gamma: Tensor, eps: float = 1e-6, dropout: Dropout | None = None
) -> Tensor:
    """`RMSNorm(x + Dropout(sublayer_out))`, each by itself."""
    return rmsnorm(x + dropped(sublayer_out, dropout), gamma, eps)


def rope(x: Tensor, cos: np.ndarray, sin: np.ndarray, interleaved: bool = False) -> Tensor:
    """Pairs of channels as complex numbers, times cos + i sin: a rotation of the plane."""
    half = cos.shape[1]
    turning, rest = x[..., : 2 * half], x[..., 2 * half :]
    if not turning.numel():  # which has no complex form
        return x.clone()
    pairs = turning.unflatten(-1, (half, 2) if interleaved else (2, half))  # (B, H, T, R/2, 2) or (B, H, T, 2, R/2)
    turn = torch.complex(torch.from_numpy(cos), torch.from_numpy(sin)).to(torch.complex(x, x).dtype)
    turned = torch.view_as_real(torch.complex(*pairs.unbind(-1 if interleaved else -2)) * turn)
    turned = turned if interleaved else turned.transpose(-1, -2)
    return torch.cat([turned.reshape(turning.shape), rest], dim=-1)


def patches(images: Tensor, size: int) -> Tensor:
    """`F.unfold`: what a convolution with windows of size × size and as large a stride sees."""
    if not images.numel():  # F.unfold takes no empty image
        batch, channels, height, width = images.shape
        return images.reshape(batch, (height // size) * (width // size), channels * size**2)
    return F.unfold(images, size, stride=size).transpose(1, 2)


def embedding(ids: Tensor, table: Tensor, scale: float = 1.0) -> Tensor:
    """`F.embedding`, scaled."""
    return F.embedding(ids, table) * scale


Window = int | tuple[int | None, int | None] | None


def may_attend(
    num_queries: int,
    num_keys: int,
    causal: bool = False,
    window: Window = None,
    key_mask: np.ndarray | None = None,
    pattern: Pattern | None = None,
) -> np.ndarray:
    """Return the mask of who may attend to whom, pair by pair: `(B or 1, 1, Tq, Tk)` bool, True = may attend.

    Query i stands at position `Tk − Tq + i`: the last query sees the last key.
    """
    pattern = pattern or Pattern()
    key_mask = pattern.key_mask if key_mask is None else key_mask
    batch = 1 if key_mask is None else len(key_mask)
    mask = np.zeros((batch, 1, num_queries, num_keys), dtype=bool)
    for b, _, i, key in np.ndindex(mask.shape):
        position = num_keys - num_queries + i
        seen = key_mask is None or key_mask[b, key]
        not_future = not (causal or pattern.causal) or key <= position
        reached = in_some_part(position, key, pattern.window if window is None else window, pattern)
        mask[b, 0, i, key] = seen and not_future and reached
    return mask


def in_some_part(query: int, key: int, window: Window, pattern: Pattern) -> bool:
    """Return True if a part of the pattern holds this pair of positions, or it has no parts."""
    parts = []
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window, window)
        parts.append((left is None or query - left <= key) and (right is None or key <= query + right))
    if pattern.block is not None:
        start = next(start for start in range(key, -1, -1) if start % pattern.block == 0)
        parts.append(start <= query < start + pattern.block)
        parts.append(key >= start + pattern.block - pattern.summary)
    if pattern.stride is not None:
        parts.append(abs(query - key) % pattern.stride == 0)
    if pattern.global_tokens:
        parts.append(query in pattern.global_tokens or key in pattern.global_tokens)
    return any(parts) or not parts


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    dropout: Dropout | None = None,
    **seen: Any,
) -> Tensor:
    """`F.scaled_dot_product_attention`, to which a bias is a mask of numbers; `seen` is who may attend to whom.

    Its weights, to be dropped, are its output for an identity as value. It knows no softcap: scores that are capped are
    the mask of queries of 0.
    """
    allowed = torch.from_numpy(may_attend(query.shape[2], key.shape[2], **seen))
    mask = allowed
    if bias is not None or softcap is not None:
        numbers = torch.zeros((), dtype=query.dtype) if bias is None else bias
        if softcap is not None:
            spread = key.repeat_interleave(query.shape[1] // max(1, key.shape[1]), dim=1)
            scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
            numbers = numbers + softcap * torch.tanh(query @ spread.mT * scale / softcap)
            query, key = torch.zeros_like(query), torch.zeros_like(key)
        mask = torch.where(allowed, numbers, -torch.inf)
    if dropout is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)
    identity = torch.eye(key.shape[2], dtype=key.dtype).expand(*key.shape[:2], -1, -1)
    weights = F.scaled_dot_product_attention(query, key, identity, attn_mask=mask, scale=scale, enable_gqa=True)
    return dropped(weights, dropout) @ value.repeat_interleave(query.shape[1] // max(1, value.shape[1]), dim=1)


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    key_mask: np.ndarray | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """Every weight by itself, from `F.elu`; each head of keys and values as often as it has queries."""
    key, value = (x.repeat_interleave(query.shape[1] // max(1, x.shape[1]), dim=1) for x in (key, value))
    allowed = torch.from_numpy(may_attend(query.shape[2], key.shape[2], causal, key_mask=key_mask))
    weights = torch.einsum("bhid,bhjd->bhij", F.elu(query) + 1, F.elu(key) + 1) * allowed
    return weights / (weights.sum(-1, keepdim=True) + eps) @ value


def conv1d(x: Tensor, weight: Tensor, bias: Tensor | None, *, padding: str = "causal") -> Tensor:
    """`F.conv1d`, which has the channels before the positions and stores its weight `(C_out, C_in, K)`."""
    left, right = {"causal": (len(weight) - 1, 0), "same": (len(weight) // 2,) * 2, "valid": (0, 0)}[padding]
    if not x.shape[1]:  # F.conv1d takes no empty sequence
        return F.linear(x, weight[0].T, bias)
    return F.conv1d(F.pad(x.transpose(1, 2), (left, right)), weight.permute(2, 1, 0), bias).transpose(1, 2)


def additive_attention(
    query: Tensor, key: Tensor, value: Tensor, score_weight: Tensor, *, key_mask: np.ndarray | None = None
) -> Tensor:
    """Every score by itself, then `F.scaled_dot_product_attention` of queries of 0, to whose scores ours are added."""
    batch, num_queries, num_keys = len(query), query.shape[1], key.shape[1]
    scores = F.linear(torch.tanh(query.unsqueeze(2) + key.unsqueeze(1)), score_weight[None]).squeeze(3)
    mask = torch.from_numpy(may_attend(num_queries, num_keys, key_mask=key_mask))[:, 0].expand_as(scores)
    if not mask.any(2).all() or not scores.numel():  # a query with nothing to attend to: PyTorch makes NaN of it
        zeros = torch.zeros_like(scores)
        weights = torch.where(mask, F.softmax(torch.where(mask, scores, -1e300), dim=2), zeros) if num_keys else zeros
        return weights @ value
    scores = scores.masked_fill(~mask, -torch.inf)
    nothing = query.new_zeros(batch, num_queries, 1), key.new_zeros(batch, num_keys, 1)
    return F.scaled_dot_product_attention(*nothing, value, attn_mask=scores)


def cross_entropy(
    logits: Tensor,
    targets: Tensor | np.ndarray,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    weights: np.ndarray | None = None,
) -> Tensor:
    """`F.cross_entropy`, but 0 (not 0/0) where no target counts. Probabilities and weights come as arrays."""
    rows, ignored = logits.reshape(-1, logits.shape[-1]), -100 if ignore_index is None else ignore_index
    if isinstance(targets, np.ndarray):
        wanted, count = torch.from_numpy(np.array(targets)).to(logits.dtype).reshape(rows.shape), len(rows)
    else:
        wanted = targets.reshape(-1).long()
        count = int((wanted != ignored).sum())
    if not count:
        return 0.0 * logits.sum()
    loss = partial(F.cross_entropy, rows, wanted, label_smoothing=label_smoothing, ignore_index=ignored)
    if weights is None:
        return loss()
    return (torch.from_numpy(np.array(weights)).to(logits.dtype).reshape(-1) * loss(reduction="none")).sum() / count


def linear_cross_entropy(x: Tensor, table: Tensor, targets: Tensor, *args: Any, **options: Any) -> Tensor:
    """The two steps that the fused op is made of."""
    return cross_entropy(F.linear(x, table), targets, *args, **options)


def log_probs(logits: Tensor, ids: Tensor) -> Tensor:
    """What PyTorch's distribution of these logits says of the ids."""
    return Categorical(logits=logits, validate_args=False).log_prob(ids)


def entropy(logits: Tensor) -> Tensor:
    """The entropy of PyTorch's distribution of these logits."""
    return Categorical(logits=logits, validate_args=False).entropy()
