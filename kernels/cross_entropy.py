"""Cross-entropy with label smoothing: `−Σ_v q_v log softmax(z)_v`, averaged over the targets that count.

The number of passes of N·V elements through memory, forward and backward together:

    naive   each step of the formula is a tensor (`cross_entropy_naive`): 20 passes, and seven tensors beside the logits
    here    the forward reads the logits and keeps two numbers a row, the maximum and `Σ exp(z − maximum)`; the backward
            reads them again and writes dlogits: 3 passes, and no N·V array is kept. The loss alone takes 1 pass

Writing `softmax − q` already in the forward, while a row is on the chip, would save nothing here. dloss comes later, so
the backward would have to scale the written gradient: 4 passes (5 if a row is too long to stay on the chip), and an N·V
array in between.

If only the loss needs the logits, and they are a matrix product, `linear_cross_entropy` saves these passes too.

A row of any length is read once: the sum is rescaled whenever the running maximum rises (Milakov and Gimelshein 2018).
The logits that a thread loads at once, 16 bytes, share a maximum and a sum, which are combined after the last block.
Until then no thread waits for another, and there is one rescaling for 8 logits of half precision, or for 4 of float32.
For Hopper a logit of bfloat16 takes 8.2 instructions, with label smoothing 10.1; with a maximum of its own it took 15.4
and 22.4 (`cuobjdump -sass`, the loop over whole blocks; Triton 3.7.1).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import soft_cross_entropy as soft
from .checks import check_loss_options, check_z_loss, kernel
from .launch import on_quietly, rows_of
from .logits import group_of, in_groups, load_logits, multiple, row_arguments
from .rows import exp, is_token, rounded_product
from .scalars import number, number_arguments
from .weights import weighted_kernel

MEAN_BLOCK = 4096
"""The losses that the mean's only program adds at a time."""
CHANGING = ["num_rows", "ignore_index"]
"""Arguments whose values change with every batch: Triton must not compile another kernel for each."""
PER_ROW = ["targets_ptr", "losses_ptr", "weights_ptr"]
"""Arguments that may point into a larger array: Triton must not compile another kernel for each alignment."""


@triton.jit
def load_targets(targets_ptr, row, num_rows, ignore_index):
    """Return the targets of rows, in int64, and True for those that count."""
    target = tl.load(targets_ptr + row, row < num_rows, other=0).to(tl.int64)
    counted = row < num_rows
    if ignore_index is not None:
        counted &= target != ignore_index
    return target, counted


@triton.jit
def token_of(target, V):
    """Return the column of the target's logit; −1 outside the vocabulary, where nothing may be read."""
    return tl.where(is_token(target, V), target, -1).to(tl.int32)


@triton.jit
def row_losses(
    row_ptr, token, counted, V, label_smoothing, z_loss,
    SMOOTHING: tl.constexpr, PADDING: tl.constexpr, ALIGNED: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the losses of the rows at `row_ptr (R,)`, their maxima and their `Σ exp(z − maximum)`.

    They are 0, 0 and 1 for rows that do not count.

    `loss = log Σ exp(z) − Σ_v q_v z_v`. Since q sums to 1, `z − z_target` may replace z in both terms: it is small even
    for large logits, so no digits are lost. Loss and maximum are NaN if the target is outside the vocabulary.
    A z_loss adds `z_loss · (log Σ exp z)²`.
    GROUP logits of a block, which one thread has, share a running maximum and its sum: see `in_groups`.
    """
    K: tl.constexpr = BLOCK // GROUP if GROUP > 0 else BLOCK // -GROUP
    target_logit = tl.load(row_ptr + token, counted & (token >= 0), other=0.0).to(tl.float32)  # (R,)
    origin = tl.where(target_logit == -float("inf"), 0.0, target_logit)  # (R,)
    maximum = tl.full((ROWS, K), -3.4028234663852886e38, tl.float32)  # the lowest
    total = tl.zeros((ROWS, K), tl.float32)
    above_origin = tl.zeros((ROWS, K), tl.float32)
    whole = V // BLOCK * BLOCK if ROWS == 1 else 0
    for MASKED in tl.static_range(2):  # whole blocks of a long row need no mask of columns
        for start in range(whole if MASKED else 0, V if MASKED else whole, BLOCK):
            column = start + tl.arange(0, BLOCK)
            if MASKED:
                z = load_logits(row_ptr, column, counted, V, PADDING, ALIGNED)
            else:
                z = tl.load(row_ptr[:, None] + column[None, :], counted[:, None], other=-float("inf")).to(tl.float32)
            groups = in_groups(z, GROUP, ROWS, BLOCK)
            higher = tl.maximum(maximum, tl.max(groups, axis=2))  # (R, K)
            terms = exp(groups - higher[:, :, None])
            total = total * exp(maximum - higher) + tl.sum(terms, axis=2)
            maximum = higher
            if SMOOTHING:
                above = z - origin[:, None]
                if MASKED:  # 0 times the −∞ of a token that is ruled out would be NaN
                    above = tl.where(counted[:, None] & (column < V)[None, :], above, 0.0)
                above_origin += tl.sum(in_groups(above, GROUP, ROWS, BLOCK), axis=2)
    highest = tl.where(token >= 0, tl.max(maximum, axis=1), float("nan"))  # (R,)
    highest = tl.where(counted, highest, 0.0)
    total = tl.where(counted, tl.sum(rounded_product(total, exp(maximum - highest[:, None])), axis=1), 1.0)
    loss = tl.fma(label_smoothing - 1.0, target_logit - origin, tl.log(total) + (highest - origin))
    if SMOOTHING:
        loss -= label_smoothing * tl.sum(above_origin, axis=1) / V
    if z_loss is not None:
        log_sum = tl.log(total) + highest
        loss = tl.fma(z_loss * log_sum, log_sum, loss)
    return tl.where(counted, loss, 0.0), highest, total


@triton.jit
def logit_gradients(z, highest, total, column, token, V, label_smoothing, z_loss):
    """`softmax(z) − q` of a block `(R, C)` of logits, for a loss that is a sum; `q = (1 − ε)·onehot + ε/V`.

    With a z_loss softmax is multiplied by `1 + 2 z_loss log Σ exp z`, since it is the gradient of `log Σ exp z`.
    """
    share = -1.0 / V
    minus_q = tl.where(
        column[None, :] == token[:, None],
        tl.fma(label_smoothing, share, label_smoothing - 1.0),
        label_smoothing * share,
    )
    weight = 1.0 / total
    if z_loss is not None:
        weight *= 1.0 + 2.0 * z_loss * (tl.log(total) + highest)
    return tl.fma(exp(z - highest[:, None]), weight[:, None], minus_q)


@triton.jit(do_not_specialize=CHANGING, do_not_specialize_on_alignment=PER_ROW)
def cross_entropy_forward_kernel(
    logits_ptr, targets_ptr, losses_ptr, highest_ptr, total_ptr, num_rows, V, stride, label_smoothing, z_loss,
    ignore_index,
    SMOOTHING: tl.constexpr, PADDING: tl.constexpr, ALIGNED: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the losses of a few rows and, for the backward, their maxima and sums."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    target, counted = load_targets(targets_ptr, row, num_rows, ignore_index)
    row_ptr = logits_ptr + row.to(tl.int64) * multiple(stride, ALIGNED)
    loss, highest, total = row_losses(
        row_ptr, token_of(target, V), counted, V, label_smoothing, z_loss,
        SMOOTHING, PADDING, ALIGNED, GROUP, ROWS, BLOCK,
    )  # fmt: skip
    tl.store(losses_ptr + row, loss, row < num_rows)
    if highest_ptr is not None:
        tl.store(highest_ptr + row, highest, row < num_rows)
        tl.store(total_ptr + row, total, row < num_rows)


@triton.jit(do_not_specialize=CHANGING, do_not_specialize_on_alignment=PER_ROW)
def mean_kernel(losses_ptr, targets_ptr, weights_ptr, mean_ptr, num_rows, ignore_index, BLOCK: tl.constexpr):
    """Write `(mean, count)`, with a count of at least 1, in one program, whose order of adding never changes.

    With weights the mean is `Σ_i weight_i · loss_i / count`; that of a target that does not count is not even read.
    """
    total = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, num_rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        _, counted = load_targets(targets_ptr, row, num_rows, ignore_index)
        losses = tl.load(losses_ptr + row, row < num_rows, other=0.0)
        if weights_ptr is not None:
            losses *= tl.load(weights_ptr + row, counted, other=0.0)
        total += losses
        count += counted.to(tl.int32)
    rows = tl.maximum(tl.sum(count, axis=0), 1).to(tl.float32)
    tl.store(mean_ptr, tl.sum(total, axis=0) / rows)
    tl.store(mean_ptr + 1, rows)


@triton.jit(do_not_specialize=CHANGING, do_not_specialize_on_alignment=PER_ROW)
def cross_entropy_backward_kernel(
    dlogits_ptr, logits_ptr, targets_ptr, weights_ptr, highest_ptr, total_ptr, mean_ptr, dloss, dloss_ptr,
    num_rows, V, stride, label_smoothing, z_loss, ignore_index,
    ALIGNED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write `dlogits = dloss / count · weight · (softmax(z) − q)` for a block of rows and columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    target, counted = load_targets(targets_ptr, row, num_rows, ignore_index)
    highest = tl.load(highest_ptr + row, row < num_rows, other=0.0)
    total = tl.load(total_ptr + row, row < num_rows, other=1.0)
    row_ptr = logits_ptr + row.to(tl.int64) * multiple(stride, ALIGNED)
    z = load_logits(row_ptr, column, counted, V, 0, ALIGNED)
    dlogits = logit_gradients(z, highest, total, column, token_of(target, V), V, label_smoothing, z_loss)
    factor = number(dloss, dloss_ptr, tl.float32) / tl.load(mean_ptr + 1)
    if weights_ptr is not None:
        dlogits *= tl.load(weights_ptr + row, counted, other=0.0)[:, None]
    dlogits = tl.where(counted[:, None], dlogits * factor, 0.0)
    V = multiple(V, ALIGNED)
    place = dlogits_ptr + row.to(tl.int64)[:, None] * V + column[None, :]
    tl.store(place, dlogits.to(dlogits_ptr.dtype.element_ty), (row < num_rows)[:, None] & (column < V)[None, :])


@weighted_kernel
def cross_entropy_forward(
    logits: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    z_loss: float = 0.0,
    *,
    weights: Tensor | None = None,
) -> tuple[Tensor, tuple]:
    """`−Σ_v q_v log softmax(logits)_v`, averaged over the targets that count, with `q = (1 − ε)·onehot + ε/V`.

    logits `(..., V)`, targets `(...)`, integers in [0, V) or equal to `ignore_index`, which do not count → a float32
    scalar, 0 if no target counts. The backward reads the logits again. A z_loss above 0 adds
    `z_loss · (log Σ_v exp logits_v)²` to the loss of each target, which keeps logits near 0, where half precision has
    its digits. Targets may be probabilities `(..., V)`: `soft_cross_entropy` has kernels for them, without a z_loss.
    Weights `(...)` multiply each target's loss, but not their number.
    Raises `TypeError` for float64, and `ValueError` for a target out of range in host memory. Targets in a GPU's memory
    are not checked: one that is out of range makes the loss and its row of the gradient NaN.
    Source: Szegedy et al. 2016, §7; Vaswani 2017, §5.4 (ε = 0.1); Chowdhery et al. 2022, §5 (z_loss = 1e-4).
    """
    z_loss = check_z_loss(z_loss, targets)
    if targets.is_floating_point():
        return soft.soft_cross_entropy_forward(logits, targets, label_smoothing, ignore_index, weights)
    ignore_index = check_loss_options(label_smoothing, ignore_index)
    losses, rows, ids, highest, total = _losses(logits, targets, label_smoothing, ignore_index, z_loss)
    weights = None if weights is None else weights.reshape(-1).float().contiguous()
    mean = mean_loss(losses, ids, ignore_index, weights)
    return mean[0], (rows, ids, highest, total, mean, logits.shape, label_smoothing, ignore_index, z_loss, weights)


def _losses(
    logits: Tensor, targets: Tensor, label_smoothing: float, ignore_index: int | None, z_loss: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the losses `(N,)`, the rows of logits, the ids, and each row's maximum and sum."""
    rows, ids = rows_of(logits), targets.reshape(-1).contiguous()  # (N, V), (N,)
    losses, highest, total = (torch.empty(len(rows), dtype=torch.float32, device=rows.device) for _ in range(3))
    if len(rows):
        arguments = row_arguments(rows, ids, label_smoothing, ignore_index)
        with on_quietly(rows):
            cross_entropy_forward_kernel[(triton.cdiv(len(rows), arguments["ROWS"]),)](
                rows, losses_ptr=losses, highest_ptr=highest, total_ptr=total,
                z_loss=z_loss or None, SMOOTHING=bool(label_smoothing), PADDING=0, GROUP=group_of(rows, arguments),
                **arguments,
            )  # fmt: skip
    return losses, rows, ids, highest, total


@kernel
def cross_entropy_backward(dloss: Tensor | float, cache: tuple) -> Tensor:
    """`dlogits = dloss · w (softmax(logits) − q) / N` for N targets that count; zero where a target is ignored."""
    if isinstance(cache, soft.TowardsProbabilities):
        return soft.soft_cross_entropy_backward(dloss, cache)
    rows, ids, highest, total, mean, shape, label_smoothing, ignore_index, z_loss, weights = cache
    scale = number_arguments("dloss", dloss, float, rows)
    dlogits = torch.empty(shape, dtype=rows.dtype, device=rows.device)
    if len(rows):
        arguments = row_arguments(rows, ids, label_smoothing, ignore_index)
        grid = (triton.cdiv(len(rows), arguments["ROWS"]), triton.cdiv(rows.shape[1], arguments["BLOCK"]))
        with on_quietly(rows):
            cross_entropy_backward_kernel[grid](
                dlogits, rows, weights_ptr=weights, highest_ptr=highest, total_ptr=total, mean_ptr=mean,
                z_loss=z_loss or None, **scale, **arguments,
            )  # fmt: skip
    return dlogits


def each_loss_forward(
    logits: Tensor, targets: Tensor, label_smoothing: float, ignore_index: int | None, z_loss: float
) -> tuple[Tensor, tuple]:
    """Return the loss of each target `(...)`, 0 for one that does not count."""
    if targets.is_floating_point():
        losses, soft_cache = soft.each_loss(logits, targets, label_smoothing, None)
        return losses.reshape(logits.shape[:-1]), soft_cache
    losses, *found = _losses(logits, targets, label_smoothing, ignore_index, z_loss)
    one = torch.ones(2, dtype=torch.float32, device=losses.device)  # in the place of (mean, count)
    return losses.reshape(targets.shape), (*found, one, logits.shape, label_smoothing, ignore_index, z_loss, None)


def each_loss_backward(dlosses: Tensor, cache: tuple) -> Tensor:
    """`dlogits = dlosses · (softmax(logits) − q)`: the gradient of a sum with weights dlosses."""
    weights = dlosses.reshape(-1).float().contiguous()
    if isinstance(cache, soft.TowardsProbabilities):
        return soft.soft_cross_entropy_backward(float(len(weights)), cache._replace(weights=weights))
    return cross_entropy_backward(1.0, (*cache[:-1], weights))


def cross_entropy_naive(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, ignore_index: int | None = None
) -> tuple[Tensor, Tensor]:
    """Compute loss and, for dloss = 1, dlogits, a tensor for every step. Comments count passes over N·V elements."""
    rows, ids = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    counted = torch.ones_like(ids, dtype=torch.bool) if ignore_index is None else ids != ignore_index
    shifted = rows - rows.amax(-1, keepdim=True)  # 1 to read for the maximum, 2 to read and write
    exponentials = shifted.exp()  # 2
    total = exponentials.sum(-1, keepdim=True)  # 1
    log_probs = shifted - total.log()  # 2
    probs = exponentials / total  # 2
    q = torch.full_like(rows, label_smoothing / rows.shape[1])  # 1
    q[torch.arange(len(ids), device=ids.device), torch.where(counted, ids, 0).long()] += 1 - label_smoothing
    losses = -(q * log_probs).sum(-1)  # 3 for the product, 1 for the sum
    weight = counted / counted.sum().clamp(min=1)  # (N,)
    dlogits = (probs - q) * weight.to(rows.dtype)[:, None]  # 3 for the difference, 2
    return (losses * weight).sum(), dlogits.reshape(logits.shape)


def mean_loss(losses: Tensor, ids: Tensor, ignore_index: int | None, weights: Tensor | None) -> Tensor:
    """`(mean, count)` of the losses `(N,)` whose targets count, on their device; `(0, 1)` without rows."""
    mean = torch.empty(2, dtype=torch.float32, device=losses.device)
    with on_quietly(losses):
        mean_kernel[(1,)](losses, ids, weights, mean, len(losses), ignore_index, BLOCK=MEAN_BLOCK, num_warps=16)
    return mean
