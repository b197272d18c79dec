"""Cross-entropy with label smoothing."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from minitransformer.ops.cross_entropy import check_all_count

from ..checks import check_loss_options, check_out, check_z_loss
from ..weights import balanced, flat_weights, weighted
from .linear import add_product
from .softmax import log_softmax, widened

BLOCK_LOGITS = 1 << 24
"""The logits that the fused op computes at a time."""


@weighted
def cross_entropy_forward(
    logits: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    z_loss: float = 0.0,
    *,
    weights: Tensor | None = None,
) -> tuple[Tensor, tuple]:
    """`−Σ_v q_v log softmax(logits)_v`, averaged over the targets that count, `q = (1 − ε)·onehot + ε/V`.

    logits `(..., V)`, targets `(...)` or probabilities `(..., V)` → a scalar, float32 if logits are narrower; 0 if no
    target counts. A z_loss adds `z_loss · (log Σ_v exp logits_v)²` to the loss of each target. Weights `(...)` multiply
    the losses, and not their number.
    """
    losses, cache = each_loss_forward(logits, targets, label_smoothing, ignore_index, z_loss)
    weights = flat_weights(weights, targets, ignore_index, losses.dtype)
    count = cache.counted.sum().clamp(min=1).to(losses.dtype)  # a number divided by integers would be float32
    return weighted_sum(losses.reshape(-1), weights) / count, cache._replace(num_targets=count, weights=weights)


def cross_entropy_backward(dloss: Tensor | float, cache: "Losses") -> Tensor:
    """`dlogits = dloss · w (softmax(logits) − q) / N` for N targets that count; zero where a target is ignored."""
    log_probs, targets, counted, *options = cache[:6]
    if targets.is_floating_point():
        drows = log_probs.exp() * targets.sum(-1, keepdim=True) - targets
    else:
        drows = _dlogits(log_probs, targets, counted, *options)
    drows *= _dlosses(dloss, cache.num_targets, cache.weights)
    return drows.reshape(cache.shape).to(cache.dtype)


class Losses(NamedTuple):
    """The cache, of N rows: ids `(N,)` or q `(N, V)`, which targets count, and how the losses are added up."""

    log_probs: Tensor
    targets: Tensor
    counted: Tensor
    label_smoothing: float
    z_loss: float
    log_sum: Tensor | None
    shape: torch.Size
    dtype: torch.dtype
    num_targets: Tensor | int = 1
    weights: Tensor | None = None


def each_loss_forward(
    logits: Tensor, targets: Tensor, label_smoothing: float, ignore_index: int | None, z_loss: float
) -> tuple[Tensor, Losses]:
    """Return the loss of each target `(...)`, 0 for one that does not count, and a cache of their sum."""
    z_loss = check_z_loss(z_loss, targets)
    rows = logits.reshape(-1, logits.shape[-1])  # (N, V)
    if targets.is_floating_point():
        check_loss_options(label_smoothing, ignore_index)
        check_all_count(ignore_index)
        q = (1 - label_smoothing) * widened(targets.reshape(rows.shape)) + label_smoothing / rows.shape[1]
        counted, log_probs, log_sum = torch.ones_like(rows[:, 0], dtype=torch.bool), log_softmax(rows), None
        losses = -torch.where(q == 0, 0, q * log_probs).sum(-1)  # 0 · −inf is NaN: a token that is ruled out
    else:
        q, counted = _targets(targets, rows.shape[1], label_smoothing, ignore_index)  # (N,)
        losses, log_probs, log_sum = _losses(rows, q, counted, label_smoothing, z_loss)
    cache = Losses(log_probs, q, counted, label_smoothing, z_loss, log_sum, logits.shape, logits.dtype)
    return losses.reshape(logits.shape[:-1]), cache


def each_loss_backward(dlosses: Tensor, cache: Losses) -> Tensor:
    """`dlogits = dlosses · (softmax(logits) − q)`: the gradient of a sum with weights dlosses."""
    return cross_entropy_backward(1.0, cache._replace(weights=dlosses.reshape(-1)))


@weighted
def linear_cross_entropy_forward(
    x: Tensor,
    table: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    with_grad: bool = True,
    z_loss: float = 0.0,
    *,
    weights: Tensor | None = None,
) -> tuple[Tensor, tuple | None]:
    """`cross_entropy(x @ tableᵀ, targets)`, a block of rows at a time; x `(N, C)`, table `(V, C)`, targets `(N,)`."""
    ids, counted = _targets(targets, len(table), label_smoothing, ignore_index)
    z_loss = check_z_loss(z_loss, targets)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    count, weights = counted.sum().clamp(min=1).to(wide), flat_weights(weights, targets, ignore_index, wide)
    shares, largest = balanced(x, weights)
    loss = torch.zeros((), dtype=wide, device=x.device)
    dx = torch.empty_like(x) if with_grad else None
    dtable = torch.zeros(table.shape, dtype=wide, device=x.device) if with_grad else None
    step = max(1, BLOCK_LOGITS // len(table))
    for start in range(0, len(x), step):
        block = slice(start, start + step)
        part = ids[block], counted[block], label_smoothing, z_loss
        losses, log_probs, log_sum = _losses(x[block] @ table.mT, *part)
        loss += weighted_sum(losses, None if weights is None else weights[block])
        if dx is not None and dtable is not None:
            with torch.no_grad():  # these gradients are for our backward; autograd computes its own from the loss
                dlogits = _dlogits(log_probs, *part, log_sum).to(x.dtype)
                dx[block] = dlogits @ table  # logits = x @ tableᵀ
                add_product(dtable, dlogits.mT, shares[block])
    if dx is None or dtable is None:
        return loss / count, None
    return loss / count, (dx, dtable if largest is None else dtable * largest, count, table.dtype, weights)


def linear_cross_entropy_backward(
    dloss: Tensor | float, cache: tuple | None, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients `(dx, dtable)`: the forward's times dloss; `out=` adds dtable into this tensor and returns it."""
    if cache is None:
        raise ValueError("the forward was called with with_grad=False and kept no gradient")
    dx, dtable, count, dtype, weights = cache
    # Not in the forward: a 25,000th of most probabilities is 0 in float16.
    dx, dtable = (widened(dx) * _dlosses(dloss, count, weights)).to(dx.dtype), dtable * (dloss / count)
    if out is None:
        return dx, dtable.to(dtype)
    return dx, check_out("out", out, dtable.shape, dtype, dtable.device).add_(dtable)


def each_linear_loss(
    x: Tensor, table: Tensor, targets: Tensor, label_smoothing: float, ignore_index: int | None, z_loss: float
) -> Tensor:
    """Return the loss `(N,)` of each target, 0 for one that does not count, a block of rows at a time."""
    ids, counted = _targets(targets, len(table), label_smoothing, ignore_index)
    step = max(1, BLOCK_LOGITS // len(table))
    blocks = zip(x.split(step), ids.split(step), counted.split(step), strict=True)
    return torch.cat([_losses(rows @ table.mT, *wanted, label_smoothing, z_loss)[0] for rows, *wanted in blocks])


def _losses(
    logits: Tensor, ids: Tensor, counted: Tensor, label_smoothing: float, z_loss: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the losses `(N,)` of logits `(N, V)`, their log-probabilities, and for a z_loss each `log Σ exp`."""
    log_probs = log_softmax(logits)
    losses = -(1 - label_smoothing) * log_probs.gather(1, ids.clamp(min=0)[:, None])[:, 0]
    if label_smoothing:  # 0 times the −inf of a token that is ruled out would be NaN
        losses -= label_smoothing * log_probs.mean(-1)
    log_sum = widened(logits).logsumexp(-1) if z_loss else None
    if log_sum is not None:
        losses = losses + z_loss * log_sum**2
    losses = losses.masked_fill(ids < 0, torch.nan)
    return torch.where(counted, losses, 0), log_probs, log_sum


def _dlosses(dloss: Tensor | float, count: Tensor | int, weights: Tensor | None) -> Any:
    """Return the gradient of the losses: one for all, or with weights `(N, 1)`."""
    return dloss / count if weights is None else (dloss / count * weights)[:, None]


def weighted_sum(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return the sum of the losses `(N,)`, each times its weight if there are weights."""
    return losses.sum() if weights is None else (weights * losses).sum()


def _dlogits(
    log_probs: Tensor, ids: Tensor, counted: Tensor, label_smoothing: float, z_loss: float, log_sum: Tensor | None
) -> Tensor:
    """Return `softmax − q`, with softmax times `1 + 2 z_loss log_sum`; zeros in rows that do not count."""
    share = torch.full_like(log_probs[:, :1], label_smoothing / log_probs.shape[1])
    drows = log_probs.exp()
    if log_sum is not None:
        drows *= (1 + 2 * z_loss * log_sum)[:, None]
    drows -= share.masked_fill_(ids[:, None] < 0, torch.nan)
    drows.scatter_add_(1, ids.clamp(min=0)[:, None], torch.full_like(share, label_smoothing - 1))
    return drows.masked_fill_(~counted[:, None], 0)


def _targets(
    targets: Tensor, vocab_size: int, label_smoothing: float, ignore_index: int | None
) -> tuple[Tensor, Tensor]:
    """Return flat targets in int64 for a vocabulary, and True for each that counts.

    A target that does not count becomes 0, since it may lie outside the vocabulary. One that counts but lies outside
    becomes −1: on a GPU the host cannot raise an error for it.
    """
    ignore_index = check_loss_options(label_smoothing, ignore_index)
    flat = targets.reshape(-1).to(torch.int64)
    counted = torch.ones_like(flat, dtype=torch.bool) if ignore_index is None else flat != ignore_index
    ids = torch.where((flat >= 0) & (flat < vocab_size), flat, -1)
    return torch.where(counted, ids, 0), counted
