"""Linear attention: a feature map in the place of the softmax; see `minitransformer.ops.linear_attention`."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import check_gradient, declared
from .scores import fold

CHUNK = 64


@declared
def linear_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    feature_map: str = "elu",
    eps: float = 1e-6,
) -> tuple[Tensor, tuple]:
    """`φ(q) Σ_j φ(k_j)ᵀ v_j / (φ(q) · Σ_j φ(k_j) + eps)`, `φ(x) = elu(x) + 1`, in time and memory that grow as T."""
    features, key_features = F.elu(_wide(query)) + 1, F.elu(_wide(key)) + 1
    if key_mask is not None:
        key_features = key_features * key_mask[:, None, :, None]
    # A column of ones beside the values: its weighted sum is the denominator.
    extended = torch.cat([_wide(value), torch.ones_like(key_features[..., :1])], dim=-1)  # (B, Hk, T, Dv + 1)
    sums = _sums(features, key_features, extended, causal, 0)
    denominator = sums[..., -1:] + eps
    out = sums[..., :-1] / denominator
    return out.to(query.dtype), (query, key, extended, features, key_features, causal, key_mask, denominator, out)


def linear_attention_backward(dout: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients `(dquery, dkey, dvalue)`: the states are summed again, and their gradients from the last chunk on."""
    query, key, extended, features, key_features, causal, key_mask, denominator, out = cache
    check_gradient("dout", dout, out.shape, query.dtype, query.device)
    dnumerator = _wide(dout) / denominator  # out = numerator / denominator
    dsums = torch.cat([dnumerator, -(dnumerator * out).sum(-1, keepdim=True)], dim=-1)  # (B, H, T, Dv + 1)
    dfeatures = torch.empty_like(features)
    dkey_features, dextended = torch.empty_like(key_features), torch.empty_like(extended)
    for part, state in _chunks(key_features, extended, causal):
        d, k = fold(dsums[:, :, part], key), key_features[:, :, part]
        dpart = d @ state.mT  # mixed = q @ state
        if causal:
            dpart = dpart + _past(d @ extended[:, :, part].mT) @ k
        dfeatures[:, :, part] = dpart.reshape(dfeatures[:, :, part].shape)
    dstate = key_features[:, :, :0].mT @ extended[:, :, :0]  # zeros; later the gradient from all later chunks
    for part in reversed(list(_places(key.shape[2], causal))):
        d, q, k = fold(dsums[:, :, part], key), fold(features[:, :, part], key), key_features[:, :, part]
        if not causal:  # one chunk: all queries see all keys
            dstate = q.mT @ d
        dkey_features[:, :, part] = extended[:, :, part] @ dstate.mT  # state = kᵀ @ extended
        dextended[:, :, part] = k @ dstate
        if causal:
            dkey_features[:, :, part] += _past(d @ extended[:, :, part].mT).mT @ q
            dextended[:, :, part] += _past(q @ k.mT).mT @ d
            dstate = dstate + q.mT @ d
    if key_mask is not None:
        dkey_features = dkey_features * key_mask[:, None, :, None]
    dquery = dfeatures * features.clamp(max=1)  # the slope of φ is 1 above 0, and exp(x) = φ(x) below
    dkey = dkey_features * (F.elu(_wide(key)) + 1).clamp(max=1)
    return dquery.to(query.dtype), dkey.to(query.dtype), dextended[..., :-1].to(query.dtype)


@declared
def linear_attention_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: Tensor | None = None,
    total: Tensor | None = None,
    *,
    key_mask: Tensor | None = None,
    feature_map: str = "elu",
    eps: float = 1e-6,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Continue causal linear attention from the sums over earlier keys; return its output and the new sums.

    state `(B, Hk, D, Dv)` and total `(B, Hk, D)` are float32 if the queries are narrower.
    """
    features, key_features = F.elu(_wide(query)) + 1, F.elu(_wide(key)) + 1
    if key_mask is not None:
        key_features = key_features * key_mask[:, None, :, None]
    extended = torch.cat([_wide(value), torch.ones_like(key_features[..., :1])], dim=-1)  # (B, Hk, T, Dv + 1)
    added = key_features.mT @ extended  # (B, Hk, D, Dv + 1)
    before = torch.zeros_like(added)
    if state is not None:
        before[..., :-1] = state
    if total is not None:
        before[..., -1] = total
    sums, after = _sums(features, key_features, extended, True, before), before + added
    out = sums[..., :-1] / (sums[..., -1:] + eps)
    return out.to(query.dtype), (after[..., :-1], after[..., -1])


def _sums(features: Tensor, key_features: Tensor, extended: Tensor, causal: bool, before: Tensor | int) -> Tensor:
    """Return `Σ_j (φ(q)·φ(k_j)) [v_j, 1]` for every query, `(B, H, T, Dv + 1)`; `before` is earlier keys' state."""
    sums = []
    for part, state in _chunks(key_features, extended, causal, before):
        q, k = fold(features[:, :, part], key_features), key_features[:, :, part]
        mixed = q @ state  # (B, Hk, H/Hk·chunk, Dv + 1)
        if causal:
            mixed = mixed + _past(q @ k.mT) @ extended[:, :, part]
        sums.append(mixed.reshape(*features.shape[:2], k.shape[2], extended.shape[3]))
    return torch.cat(sums, dim=2)


def _wide(x: Tensor) -> Tensor:
    """Return x in float32 if it is narrower, since the sums run over all keys."""
    return x if x.dtype == torch.float64 else x.float()


def _places(time: int, causal: bool) -> Iterator[slice]:
    """Yield the chunks: a single one unless attention is causal."""
    step = CHUNK if causal else max(1, time)
    for start in range(0, max(1, time), step):
        yield slice(start, min(start + step, time))


def _chunks(
    key_features: Tensor, extended: Tensor, causal: bool, before: Tensor | int = 0
) -> Iterator[tuple[slice, Tensor]]:
    """Yield each chunk with the state that its queries use: the sum over all keys, or over those before the chunk."""
    state = key_features[:, :, :0].mT @ extended[:, :, :0] + before  # zeros, plus the state before
    for part in _places(key_features.shape[2], causal):
        added = key_features[:, :, part].mT @ extended[:, :, part]
        yield part, state if causal else added
        state = state + added


def _past(weights: Tensor) -> Tensor:
    """Return the weights `(B, Hk, H/Hk·chunk, chunk)` without those of keys after the query."""
    batch, heads, rows, size = weights.shape
    return weights.reshape(batch, heads, rows // max(1, size), size, size).tril().reshape(weights.shape)
