"""The kernels of both norms for rows too wide for one block, which sweep over each row block by block.

The forward reads x twice: LayerNorm's first sweep computes mean and variance together. The formula of Chan, Golub and
LeVeque (1979) combines the mean and the centred squares of a block with those of the blocks before it, without
subtracting large numbers from each other. The backward reads x and dy twice for dx, and once more, by columns, for
dgamma and dbeta. A row's second read often comes from the cache, because it starts at the end, which was read last.
RMSNorm's mean is `None`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import on, row_warps
from ..rows import load_tile, programs_at_once, store_partials, summed_partials

SWEEP = 8192
"""Channels of a block of a row, 16 for each of 512 threads."""

PARTIALS_TILE = 2, 1024
"""Rows and channels of a tile for sums over rows."""


@triton.jit
def wide_forward_kernel(
    x_ptr, gamma_ptr, beta_ptr, y_ptr, mean_ptr, rstd_ptr, width, stride_x, eps, BLOCK: tl.constexpr
):
    """Normalise one row of x `(N, C)`."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * width
    lane = tl.arange(0, BLOCK)
    mean, squares = 0.0, 0.0  # the mean of the channels before `start`, and the sum of squares around it
    for start in range(0, width, BLOCK):
        mask = start + lane < width
        x = load_float32(x_ptr, start + lane, mask)
        if mean_ptr is not None:
            count = tl.minimum(width - start, BLOCK)
            block_mean = tl.div_rn(tl.sum(x, axis=0), count.to(tl.float32))
            x = tl.where(mask, x - block_mean, 0.0)
            beyond = block_mean - mean
            share = tl.div_rn(count.to(tl.float32), (start + count).to(tl.float32))
            mean += beyond * share
            squares += beyond * beyond * share * start
        squares += tl.sum(x * x, axis=0)
    rstd = tl.rsqrt(squares / width + eps)
    last = (width - 1) // BLOCK * BLOCK
    for done in range(0, width, BLOCK):
        channel = last - done + lane
        mask = channel < width
        y = (load_float32(x_ptr, channel, mask) - mean) * rstd * load_float32(gamma_ptr, channel, mask)
        if beta_ptr is not None:
            y += load_float32(beta_ptr, channel, mask)
        tl.store(y_ptr + channel, y.to(y_ptr.dtype.element_ty), mask)
    if mean_ptr is not None:
        tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def wide_dx_kernel(
    dy_ptr, x_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, width, stride_dy, stride_x, BLOCK: tl.constexpr
):
    """Write dx of one row: first the means of `dn = dy · gamma` and of dn · n, then dx from them."""
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    dx_ptr += row * width
    mean = 0.0 if mean_ptr is None else tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    lane = tl.arange(0, BLOCK)
    sum_dnormed = tl.zeros((BLOCK,), tl.float32)
    sum_along = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        channel = start + lane
        mask = channel < width
        dnormed = load_float32(dy_ptr, channel, mask) * load_float32(gamma_ptr, channel, mask)
        normed = tl.where(mask, (load_float32(x_ptr, channel, mask) - mean) * rstd, 0.0)
        if mean_ptr is not None:
            sum_dnormed += dnormed
        sum_along += dnormed * normed
    mean_dnormed = tl.sum(sum_dnormed, axis=0) / width
    along_normed = tl.sum(sum_along, axis=0) / width
    last = (width - 1) // BLOCK * BLOCK
    for done in range(0, width, BLOCK):
        channel = last - done + lane
        mask = channel < width
        dnormed = load_float32(dy_ptr, channel, mask) * load_float32(gamma_ptr, channel, mask)
        normed = (load_float32(x_ptr, channel, mask) - mean) * rstd
        dx = rstd * (dnormed - mean_dnormed - normed * along_normed)
        tl.store(dx_ptr + channel, dx.to(dx_ptr.dtype.element_ty), mask)


@triton.jit(do_not_specialize=["num_rows"])
def wide_partials_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, partials_ptr, num_rows, width, stride_dy, stride_x,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum dy · n, and with a mean dy, over this program's tiles of rows, in a block of channels: partials."""
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dgamma = tl.zeros((ROWS, BLOCK), tl.float32)
    if mean_ptr is not None:
        dbeta = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)  # (R,)
        mask = (row < num_rows)[:, None] & (channel < width)[None, :]
        rstd = tl.load(rstd_ptr + row, row < num_rows, other=0.0)
        dy = load_tile(dy_ptr, stride_dy, row, channel, mask)
        x = load_tile(x_ptr, stride_x, row, channel, mask)
        if mean_ptr is not None:
            x -= tl.load(mean_ptr + row, row < num_rows, other=0.0)[:, None]
            dbeta += dy
        dgamma += dy * x * rstd[:, None]
    store_partials(partials_ptr, 0, width, channel, dgamma)
    if mean_ptr is not None:
        store_partials(partials_ptr, 1, width, channel, dbeta)


@triton.jit
def load_float32(ptr, index, mask):
    """Load a block of a row in float32."""
    return tl.load(ptr + index, mask, other=0.0).to(tl.float32)


def wide_forward(
    x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float, y: Tensor, mean: Tensor | None, rstd: Tensor
) -> None:
    """Write y, and for each row of x `(N, C)` the mean, if there is a place for it, and the factor `rstd`."""
    num_rows, width = x.shape
    if num_rows:
        with on(x):
            wide_forward_kernel[(num_rows,)](
                x, gamma, beta, y, mean, rstd, width, x.stride(0), float(eps), BLOCK=SWEEP, num_warps=row_warps(SWEEP)
            )


def wide_backward(dy: Tensor, x: Tensor, gamma: Tensor, mean: Tensor | None, rstd: Tensor, dx: Tensor) -> Tensor:
    """Write dx; return dgamma and LayerNorm's dbeta, stacked."""
    num_rows, width = x.shape
    partials_rows, block = PARTIALS_TILE
    blocks = triton.cdiv(width, block)
    at_once = programs_at_once(x, partials_rows * block)  # over all blocks of channels
    programs = min(triton.cdiv(num_rows, partials_rows), triton.cdiv(at_once, blocks))
    sums = 1 if mean is None else 2
    partials = torch.empty((sums, programs, width), dtype=torch.float32, device=x.device)
    with on(x):
        wide_dx_kernel[(num_rows,)](
            dy, x, gamma, mean, rstd, dx, width, dy.stride(0), x.stride(0), BLOCK=SWEEP, num_warps=row_warps(SWEEP)
        )
        wide_partials_kernel[(programs, blocks)](
            dy, x, mean, rstd, partials, num_rows, width, dy.stride(0), x.stride(0),
            ROWS=partials_rows, BLOCK=block, num_warps=8,
        )  # fmt: skip
    return summed_partials(partials, gamma.dtype)
