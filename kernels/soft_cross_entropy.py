"""Cross-entropy towards probabilities (distillation): `−Σ_v q_v log softmax(z)_v` with `q = (1 − ε)·p + ε/V`.

The number of passes of N·V elements through memory, forward and backward together:

    naive   each step of the formula is a tensor, as in `eager.cross_entropy`: 18 passes, and four tensors beside the
            logits and the probabilities
    here    the forward reads both and keeps two numbers a row; the backward reads both again and writes dlogits: 5

A row is read once: `Σ_v q_v (z_v − m)` is corrected when the running maximum m rises, as `Σ_v exp(z_v − m)` is.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from minitransformer.ops.cross_entropy import check_all_count

from .checks import check_loss_options
from .launch import on_quietly, rows_of
from .logits import group_of, in_groups, load_logits, multiple, row_arguments
from .rows import exp, rounded_product
from .scalars import number, number_arguments

CHANGING, PER_ROW = ["num_rows"], ["weights_ptr"]


@triton.jit
def load_target(row_ptr, column, present, V, label_smoothing, ALIGNED: tl.constexpr):
    """Load a block `(R, C)` of q; 0 beyond V and in rows that are not there."""
    mask = present[:, None] & (column < multiple(V, ALIGNED))[None, :]
    p = tl.load(row_ptr[:, None] + column[None, :], mask, other=0.0).to(tl.float32)
    return tl.where(mask, tl.fma(1.0 - label_smoothing, p, label_smoothing / V), 0.0)


@triton.jit(do_not_specialize=CHANGING)
def soft_cross_entropy_forward_kernel(
    logits_ptr, targets_ptr, losses_ptr, highest_ptr, ratio_ptr, num_rows, V, stride, stride_targets, label_smoothing,
    ALIGNED: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the losses of a few rows and, for the backward, their maxima and `Σ q / Σ exp(z − maximum)`."""
    K: tl.constexpr = BLOCK // GROUP if GROUP > 0 else BLOCK // -GROUP
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    present = row < num_rows
    logits_row = logits_ptr + row.to(tl.int64) * multiple(stride, ALIGNED)
    targets_row = targets_ptr + row.to(tl.int64) * multiple(stride_targets, ALIGNED)
    maximum = tl.full((ROWS, K), -3.4028234663852886e38, tl.float32)  # the lowest
    total = tl.zeros((ROWS, K), tl.float32)  # Σ exp(z − maximum)
    mass = tl.zeros((ROWS, K), tl.float32)  # Σ q
    along = tl.zeros((ROWS, K), tl.float32)  # Σ q (z − maximum)
    for start in range(0, V, BLOCK):
        column = start + tl.arange(0, BLOCK)
        z = in_groups(load_logits(logits_row, column, present, V, 0, ALIGNED), GROUP, ROWS, BLOCK)  # (R, K, G)
        q = in_groups(load_target(targets_row, column, present, V, label_smoothing, ALIGNED), GROUP, ROWS, BLOCK)
        higher = tl.maximum(maximum, tl.max(z, axis=2))  # (R, K)
        below = z - higher[:, :, None]
        total = total * exp(maximum - higher) + tl.sum(exp(below), axis=2)
        along += tl.where(mass == 0.0, 0.0, (maximum - higher) * mass)
        along += tl.sum(q * tl.where(q == 0.0, 0.0, below), axis=2)  # 0 · −∞ is NaN: a token that is ruled out
        mass += tl.sum(q, axis=2)
        maximum = higher
    highest = tl.max(maximum, axis=1)  # (R,)
    shift = maximum - highest[:, None]
    row_total = tl.where(present, tl.sum(rounded_product(total, exp(shift)), axis=1), 1.0)
    row_along = tl.sum(along + tl.where(mass == 0.0, 0.0, rounded_product(shift, mass)), axis=1)
    row_mass = tl.sum(mass, axis=1)
    tl.store(losses_ptr + row, tl.fma(row_mass, tl.log(row_total), -row_along), present)
    tl.store(highest_ptr + row, highest, present)
    tl.store(ratio_ptr + row, row_mass / row_total, present)


@triton.jit(do_not_specialize=CHANGING, do_not_specialize_on_alignment=PER_ROW)
def soft_cross_entropy_backward_kernel(
    dlogits_ptr, logits_ptr, targets_ptr, weights_ptr, highest_ptr, ratio_ptr, dloss, dloss_ptr,
    num_rows, V, stride, stride_targets, label_smoothing,
    ALIGNED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write `dlogits = dloss / N · weight · (softmax(z) Σ q − q)` for a block of rows and columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    present = row < num_rows
    highest = tl.load(highest_ptr + row, present, other=0.0)
    ratio = tl.load(ratio_ptr + row, present, other=0.0)
    logits_row = logits_ptr + row.to(tl.int64) * multiple(stride, ALIGNED)
    targets_row = targets_ptr + row.to(tl.int64) * multiple(stride_targets, ALIGNED)
    z = load_logits(logits_row, column, present, V, 0, ALIGNED)
    q = load_target(targets_row, column, present, V, label_smoothing, ALIGNED)
    dlogits = tl.fma(exp(z - highest[:, None]), ratio[:, None], -q)
    if weights_ptr is not None:
        dlogits *= tl.load(weights_ptr + row, present, other=0.0)[:, None]
    dlogits *= number(dloss, dloss_ptr, tl.float32) / num_rows
    place = dlogits_ptr + row.to(tl.int64)[:, None] * multiple(V, ALIGNED) + column[None, :]
    mask = present[:, None] & (column < multiple(V, ALIGNED))[None, :]
    tl.store(place, dlogits.to(dlogits_ptr.dtype.element_ty), mask)


class TowardsProbabilities(NamedTuple):
    """The cache: rows of logits, probabilities and weights, the forward's two numbers a row, and the logits' shape."""

    rows: Tensor
    targets: Tensor
    highest: Tensor
    ratio: Tensor
    label_smoothing: float
    shape: torch.Size
    weights: Tensor | None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of both kernels."""
        shared, targets = (row_arguments(x, x, self.label_smoothing, None) for x in (self.rows, self.targets))
        names = ("num_rows", "V", "stride", "label_smoothing", "ROWS", "BLOCK", "num_warps")
        return {name: shared[name] for name in names} | {
            "logits_ptr": self.rows, "targets_ptr": self.targets, "highest_ptr": self.highest, "ratio_ptr": self.ratio,
            "stride_targets": targets["stride"], "ALIGNED": min(shared["ALIGNED"], targets["ALIGNED"]),
        }  # fmt: skip


def soft_cross_entropy_forward(
    logits: Tensor, targets: Tensor, label_smoothing: float, ignore_index: int | None, weights: Tensor | None
) -> tuple[Tensor, TowardsProbabilities]:
    """Return the mean loss over all rows; logits and targets `(..., V)` → a float32 scalar, 0 without rows."""
    check_loss_options(label_smoothing, ignore_index)
    check_all_count(ignore_index)
    weights = None if weights is None else weights.reshape(-1).float().contiguous()
    losses, cache = each_loss(logits, targets, label_smoothing, weights)
    losses = losses if weights is None else losses * weights
    return losses.mean() if len(losses) else losses.sum(), cache


def each_loss(
    logits: Tensor, targets: Tensor, label_smoothing: float, weights: Tensor | None
) -> tuple[Tensor, TowardsProbabilities]:
    """Return the losses `(N,)`, without their weights, and the cache."""
    rows = rows_of(logits)
    losses, highest, ratio = (torch.empty(len(rows), dtype=torch.float32, device=rows.device) for _ in range(3))
    cache = TowardsProbabilities(rows, rows_of(targets), highest, ratio, label_smoothing, logits.shape, weights)
    if len(rows):
        arguments = cache.arguments()
        with on_quietly(rows):
            soft_cross_entropy_forward_kernel[(triton.cdiv(len(rows), arguments["ROWS"]),)](
                losses_ptr=losses, GROUP=group_of(rows, arguments), **arguments
            )
    return losses, cache


def soft_cross_entropy_backward(dloss: Tensor | float, cache: TowardsProbabilities) -> Tensor:
    """`dlogits = dloss / N · w (softmax(logits) Σ q − q)`."""
    rows = cache.rows
    dlogits = torch.empty(cache.shape, dtype=rows.dtype, device=rows.device)
    if len(rows):
        arguments = cache.arguments()
        grid = (triton.cdiv(len(rows), arguments["ROWS"]), triton.cdiv(rows.shape[1], arguments["BLOCK"]))
        with on_quietly(rows):
            soft_cross_entropy_backward_kernel[grid](
                dlogits, weights_ptr=cache.weights, **number_arguments("dloss", dloss, float, rows), **arguments
            )
    return dlogits
