"""The output projection and its loss in one op, `cross_entropy(x @ tableᵀ, targets)`, without all N·V logits at once.

The products are PyTorch's (cuBLAS; a kernel of ours would not be faster). Two things can be saved: passes of N·V
elements through memory, beside those of the products, and memory itself:

    naive      `linear_cross_entropy_naive`: the projection, then the naive loss: 20 passes, and eight tensors of N·V
    two ops    the projection, then `cross_entropy`: 3 passes; logits and dlogits exist together, 2·N·V numbers, which
               is 3.7 GB in half precision for the paper's batch (25k tokens, V = 37k)
    here       one chunk of rows at a time: its logits, one kernel that overwrites them with dlogits, then their share
               of dx and dtable. The forward computes the gradient for dloss = 1; the backward scales it, when it has
               only N·C + V·C numbers. 3 passes (2 if the second read finds the row in the cache), and at most
               CHUNK_LOGITS numbers, 537 MB in half precision; from V = 134k on up to twice as many, so that a chunk has
               CHUNK_ROWS rows. float32 takes twice the memory

A chunk must not be too small either: each chunk reads and writes dtable's sums, 8·V·C bytes, and products with few rows
do not fill the GPU. At V = 37k a chunk of the paper's batch has 6,300 rows. At V = 128k and C = 2048, by the machine
code, an H200 reaches 688 TFLOP/s with 2,048 rows and 503 with 512, which read and write dtable sixteen times for 8,192.

dlogits are kept as `softmax − q`, between −1 and 1, and divided by the count only at the end: a 25,000th of most
probabilities is too small for float16. So are weights: at the end, in float32, a row of dx is multiplied by its own.
The products for dtable take `weight / largest weight · x` instead of x, and their sum is multiplied by the largest
weight. So no weight, however large or small, leaves the range of float16.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from .checks import check_loss_options, check_out, check_z_loss, kernel
from .cross_entropy import (
    CHANGING,
    PER_ROW,
    cross_entropy_forward_kernel,
    cross_entropy_naive,
    load_targets,
    logit_gradients,
    mean_loss,
    row_losses,
    token_of,
)
from .eager.linear import add_product
from .launch import blocks_of_rows, on_quietly
from .logits import group_of, load_logits, multiple, row_arguments
from .scalars import number, number_arguments
from .weights import balanced, flat_weights, weighted_kernel

CHUNK_LOGITS, CHUNK_ROWS = 1 << 28, 2000
"""The most logits that exist at a time, or twice as many if a chunk would have fewer than CHUNK_ROWS rows."""
ALIGNMENT = 16
"""A row of logits begins at a multiple of this many elements, so that products and loads are fast for every V."""
ELEMENTS = 2048
"""The elements that one program scales."""


@triton.jit(do_not_specialize=CHANGING, do_not_specialize_on_alignment=PER_ROW)
def logits_to_gradients_kernel(
    logits_ptr, targets_ptr, losses_ptr, num_rows, V, stride, label_smoothing, z_loss, ignore_index,
    SMOOTHING: tl.constexpr, PADDING: tl.constexpr, ALIGNED: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the losses of a few rows of logits, and `softmax − q` over the logits; zeros if a target is ignored."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    target, counted = load_targets(targets_ptr, row, num_rows, ignore_index)
    token = token_of(target, V)
    row_ptr = logits_ptr + row.to(tl.int64) * multiple(stride, ALIGNED)
    loss, highest, total = row_losses(
        row_ptr, token, counted, V, label_smoothing, z_loss, SMOOTHING, PADDING, ALIGNED, GROUP, ROWS, BLOCK
    )
    tl.store(losses_ptr + row, loss, row < num_rows)
    tl.debug_barrier()  # every thread must read the target's logit before another overwrites it
    width = multiple(V + PADDING, ALIGNED)
    last = (width - 1) // BLOCK * BLOCK
    for done in range(0, width, BLOCK):  # backwards: the cache still holds the end of a row
        column = last - done + tl.arange(0, BLOCK)
        z = load_logits(row_ptr, column, counted, V, PADDING, ALIGNED)
        dlogits = logit_gradients(z, highest, total, column, token, V, label_smoothing, z_loss)
        dlogits = tl.where(counted[:, None], dlogits, 0.0).to(logits_ptr.dtype.element_ty)
        mask = (row < num_rows)[:, None] & (column < width)[None, :]  # the padding too, for stores of whole 16 bytes
        tl.store(row_ptr[:, None] + column[None, :], dlogits, mask)


@triton.jit(do_not_specialize=["num_rows"], do_not_specialize_on_alignment=PER_ROW)
def scale_kernel(
    x_ptr, y_ptr, weights_ptr, mean_ptr, dloss, dloss_ptr, num_rows, width, stride, stride_column,
    ADD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write `dloss / count · x` to y, or with ADD add it to y; x `(N, C)` is contiguous, y has any strides.

    With weights `(N,)` each row is multiplied by its own.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (row < num_rows) & (column < width)
    place = y_ptr + row * stride + column.to(tl.int64) * stride_column
    y = tl.load(x_ptr + row * width + column, mask, other=0.0).to(tl.float32)
    y *= number(dloss, dloss_ptr, tl.float32) / tl.load(mean_ptr + 1)
    if weights_ptr is not None:
        y *= tl.load(weights_ptr + row, row < num_rows, other=0.0)
    if ADD:
        y += tl.load(place, mask, other=0.0)
    tl.store(place, y.to(y_ptr.dtype.element_ty), mask)


@weighted_kernel
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
    """`cross_entropy(x @ tableᵀ, targets)`, and unless `with_grad=False` its gradient for `dloss = 1`.

    x `(N, C)`, table `(V, C)`, targets `(N,)` → a float32 scalar. Rows whose target is ignored are computed too, and
    then set to zero: leaving them out would make the host wait for their number.
    z_loss and weights `(N,)` are `cross_entropy`'s. Raises `TypeError` for float64.
    Source: Vaswani 2017, §3.4 and §5.4.
    """
    ignore_index, z_loss = check_loss_options(label_smoothing, ignore_index), check_z_loss(z_loss, targets)
    ids = targets.contiguous()
    losses = torch.empty(len(x), dtype=torch.float32, device=x.device)
    if weights is not None:
        weights = flat_weights(weights, ids, ignore_index, torch.float32)
    shares, largest = balanced(x, weights if with_grad else None)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device) if with_grad else None
    dtable = torch.zeros(table.shape, dtype=torch.float32, device=x.device) if with_grad else None
    for chunk, logits in _chunks(x, table):
        torch.mm(x[chunk], table.T, out=logits)  # (n, V)
        _losses(logits, ids[chunk], losses[chunk], label_smoothing, ignore_index, with_grad, z_loss)
        if dx is not None and dtable is not None:
            torch.mm(logits, table, out=dx[chunk])  # logits = x @ tableᵀ, now dlogits
            add_product(dtable, logits.T, shares[chunk])
    mean = mean_loss(losses, ids, ignore_index, weights)
    if dtable is not None and largest is not None:
        dtable *= largest
    return mean[0], (dx, dtable, mean, table.dtype, weights) if with_grad else None


def each_linear_loss(
    x: Tensor, table: Tensor, targets: Tensor, label_smoothing: float, ignore_index: int | None, z_loss: float
) -> Tensor:
    """Return the loss `(N,)` of each target, 0 for one that does not count."""
    ids, losses = targets.contiguous(), torch.empty(len(x), dtype=torch.float32, device=x.device)
    for chunk, logits in _chunks(x, table):
        torch.mm(x[chunk], table.T, out=logits)
        _losses(logits, ids[chunk], losses[chunk], label_smoothing, ignore_index, False, z_loss)
    return losses


@kernel
def linear_cross_entropy_backward(
    dloss: Tensor | float, cache: tuple | None, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients `(dx, dtable)`: those that the forward computed, times dloss.

    `out=` adds dtable into this tensor, whose dtype may be wider than the table's, and returns it. Raises `ValueError`
    after a forward with `with_grad=False`.
    """
    if cache is None:
        raise ValueError("the forward was called with with_grad=False and kept no gradient")
    dx, dtable, mean, table_dtype, weights = cache
    scale = number_arguments("dloss", dloss, float, dx)
    if out is not None:
        check_out("out", out, dtable.shape, table_dtype, dx.device)
    return _scaled(dx, dx.dtype, mean, scale, weights), _scaled(dtable, table_dtype, mean, scale, out=out)


def linear_cross_entropy_naive(
    x: Tensor,
    table: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute loss and, for dloss = 1, dx and dtable, with all logits at once and a tensor for every step."""
    loss, dlogits = cross_entropy_naive(x @ table.T, targets, label_smoothing, ignore_index)
    return loss, dlogits @ table, dlogits.T @ x


def _chunks(x: Tensor, table: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of x's rows of about equal length, each with an array for its logits `(n, V)` in shared memory."""
    vocab_size = len(table)
    width = triton.cdiv(vocab_size, ALIGNMENT) * ALIGNMENT
    most = max(1, CHUNK_LOGITS // width)
    step = triton.cdiv(len(x), max(1, triton.cdiv(len(x), max(most, min(CHUNK_ROWS, 2 * most)))))
    memory = torch.empty((step, width), dtype=x.dtype, device=x.device)
    for start in range(0, len(x), max(1, step)):
        stop = min(start + step, len(x))
        yield slice(start, stop), memory[: stop - start, :vocab_size]


def _losses(
    logits: Tensor,
    ids: Tensor,
    losses: Tensor,
    label_smoothing: float,
    ignore_index: int | None,
    with_grad: bool,
    z_loss: float,
) -> None:
    """Compute the losses of a chunk of logits; with `with_grad` the gradients overwrite the logits."""
    padding = logits.stride(0) - logits.shape[1]
    arguments = row_arguments(logits, ids, label_smoothing, ignore_index, padding)
    arguments |= {
        "losses_ptr": losses,
        "z_loss": z_loss or None,
        "SMOOTHING": bool(label_smoothing),
        "PADDING": padding,
    }
    arguments["GROUP"] = group_of(logits, arguments)
    grid = (triton.cdiv(len(logits), arguments["ROWS"]),)
    with on_quietly(logits):
        if with_grad:
            logits_to_gradients_kernel[grid](logits, **arguments)
        else:
            cross_entropy_forward_kernel[grid](logits, highest_ptr=None, total_ptr=None, **arguments)


def _scaled(
    x: Tensor,
    dtype: torch.dtype,
    mean: Tensor,
    scale: dict,
    weights: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`dloss / count · x`, each row times its weight, as a new tensor of this dtype, or added into `out`."""
    y = torch.empty(x.shape, dtype=dtype, device=x.device) if out is None else out
    if x.numel():
        num_rows, width = x.shape
        grid, options = blocks_of_rows(num_rows, width, ELEMENTS)
        with on_quietly(x):
            scale_kernel[grid](
                x, y, weights, mean, num_rows=num_rows, width=width, stride=y.stride(0), stride_column=y.stride(1),
                ADD=out is not None, **scale, **options,
            )  # fmt: skip
    return y
