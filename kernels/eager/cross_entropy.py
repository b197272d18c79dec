"""Cross-entropy with label smoothing."""

from typing import NamedTuple

import torch
from torch import Tensor

from minitransformer.ops.cross_entropy import check_all_count

from ..checks import check_loss_options, check_out, check_z_loss, declared
from .linear import add_product
from .softmax import log_softmax, widened

BLOCK_LOGITS = 1 << 24
"""The logits that the fused op computes at a time."""


@declared
def cross_entropy_forward(
    logits: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    z_loss: float = 0.0,
) -> tuple[Tensor, tuple]:
    """`−Σ_v q_v log softmax(logits)_v`, averaged over the targets that count, `q = (1 − ε)·onehot + ε/V`.

    logits `(..., V)`, targets `(...)` or probabilities `(..., V)` → a scalar, float32 if logits are narrower; 0 if no
    target counts. A z_loss adds `z_loss · (log Σ_v exp logits_v)²` to the loss of each target.
    """
    z_loss = check_z_loss(z_loss, targets)
    if targets.is_floating_point():
        return towards_probabilities(logits, targets, label_smoothing, ignore_index)
    ids, counted = _targets(targets, logits.shape[-1], label_smoothing, ignore_index)  # (N,)
    rows = logits.reshape(-1, logits.shape[-1])  # (N, V)
    loss, log_probs, log_sum = _losses(rows, ids, counted, label_smoothing, z_loss)
    count = counted.sum().clamp(min=1).to(loss.dtype)  # a number divided by an integer tensor would be float32
    shape = logits.shape
    return loss / count, (log_probs, ids, counted, count, shape, logits.dtype, label_smoothing, z_loss, log_sum)


def cross_entropy_backward(dloss: Tensor | float, cache: tuple) -> Tensor:
    """`dlogits = dloss · (softmax(logits) − q) / N` for N targets that count; zero where a target is ignored."""
    if isinstance(cache, TowardsProbabilities):
        return (cache.dlogits * dloss).to(cache.dtype)
    log_probs, ids, counted, count, shape, dtype, label_smoothing, z_loss, log_sum = cache
    drows = _dlogits(log_probs, ids, counted, label_smoothing, z_loss, log_sum)
    drows *= dloss / count
    return drows.reshape(shape).to(dtype)


class TowardsProbabilities(NamedTuple):
    """The cache if targets are probabilities: dlogits for a dloss of 1, and the dtype of the logits."""

    dlogits: Tensor
    dtype: torch.dtype


def towards_probabilities(
    logits: Tensor, targets: Tensor, label_smoothing: float, ignore_index: int | None
) -> tuple[Tensor, TowardsProbabilities]:
    """Return the loss for targets that are probabilities `(..., V)`, all of which count."""
    check_loss_options(label_smoothing, ignore_index)
    check_all_count(ignore_index)
    q = (1 - label_smoothing) * widened(targets) + label_smoothing / logits.shape[-1]
    log_probs = log_softmax(logits)
    count = max(1, logits.shape[:-1].numel())
    loss = -torch.where(q == 0, 0, q * log_probs).sum() / count  # 0 · −inf is NaN: a token that is ruled out
    dlogits = (log_probs.exp() * q.sum(-1, keepdim=True) - q) / count
    return loss, TowardsProbabilities(dlogits, logits.dtype)


@declared
def linear_cross_entropy_forward(
    x: Tensor,
    table: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    with_grad: bool = True,
    z_loss: float = 0.0,
) -> tuple[Tensor, tuple | None]:
    """`cross_entropy(x @ tableᵀ, targets)`, a block of rows at a time; x `(N, C)`, table `(V, C)`, targets `(N,)`."""
    ids, counted = _targets(targets, len(table), label_smoothing, ignore_index)
    z_loss = check_z_loss(z_loss, targets)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    count = counted.sum().clamp(min=1).to(wide)
    loss = torch.zeros((), dtype=wide, device=x.device)
    dx = torch.empty_like(x) if with_grad else None
    dtable = torch.zeros(table.shape, dtype=wide, device=x.device) if with_grad else None
    step = max(1, BLOCK_LOGITS // len(table))
    for start in range(0, len(x), step):
        block = slice(start, start + step)
        part = ids[block], counted[block], label_smoothing, z_loss
        block_loss, log_probs, log_sum = _losses(x[block] @ table.mT, *part)
        loss += block_loss
        if dx is not None and dtable is not None:
            with torch.no_grad():  # these gradients are for our backward; autograd computes its own from the loss
                dlogits = _dlogits(log_probs, *part, log_sum).to(x.dtype)
                dx[block] = dlogits @ table  # logits = x @ tableᵀ
                add_product(dtable, dlogits.mT, x[block])
    return loss / count, None if dx is None else (dx, dtable, count, table.dtype)


def linear_cross_entropy_backward(
    dloss: Tensor | float, cache: tuple | None, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients `(dx, dtable)`: the forward's times dloss; `out=` adds dtable into this tensor and returns it."""
    if cache is None:
        raise ValueError("the forward was called with with_grad=False and kept no gradient")
    dx, dtable, count, dtype = cache
    scale = dloss / count  # not in the forward: a 25,000th of most probabilities is 0 in float16
    dx, dtable = (widened(dx) * scale).to(dx.dtype), dtable * scale
    if out is None:
        return dx, dtable.to(dtype)
    return dx, check_out("out", out, dtable.shape, dtype, dtable.device).add_(dtable)


def _losses(
    logits: Tensor, ids: Tensor, counted: Tensor, label_smoothing: float, z_loss: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the sum of the losses of logits `(N, V)`, their log-probabilities, and for a z_loss each `log Σ exp`."""
    log_probs = log_softmax(logits)
    losses = -(1 - label_smoothing) * log_probs.gather(1, ids.clamp(min=0)[:, None])[:, 0]
    if label_smoothing:  # 0 times the −inf of a token that is ruled out would be NaN
        losses -= label_smoothing * log_probs.mean(-1)
    log_sum = widened(logits).logsumexp(-1) if z_loss else None
    if log_sum is not None:
        losses = losses + z_loss * log_sum**2
    losses = losses.masked_fill(ids < 0, torch.nan)
    return torch.where(counted, losses, 0).sum(), log_probs, log_sum


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
