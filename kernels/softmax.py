"""Softmax over the last axis: `y_i = exp(x_i) / Σ_j exp(x_j)`.

It computes little for each number that it moves, so memory limits its speed. Passes over the array x:

    naive     `softmax_naive`: the formula in five of PyTorch's operations. The maximum and the difference read x, exp
              reads the difference, the sum and the quotient read the exponentials: 5 reads. Three of these results are
              written: 8 passes, and only 2 are needed
    online    `softmax_online`: one kernel with two sweeps over a row in blocks. The first keeps the largest number so
              far and the sum of exponentials relative to it, which is rescaled when a larger number comes: so maximum
              and sum need only one read (Milakov and Gimelshein 2018). The second sweep writes. 2 reads, 1 write: 3
              passes. A row's second read often comes from the cache, because it starts at the end, which was read last
    one pass  a row that fits into a program's registers is read once and stays there: 1 read, 1 write, the least

`softmax_forward` takes one pass up to `ONE_PASS` columns and is online for wider rows. The backward,
`dx = y · (dy − Σ dy·y)`, has the same two forms: it reads y and dy once and writes dx, 3 passes (in PyTorch's
operations it takes 9), or it reads both twice, 5 passes.

exp is a multiplication by log₂e and the hardware's 2^x. Multiplying before the maximum is subtracted would save an
operation, but memory is slower anyway, and the largest numbers would overflow.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .checks import check_gradient, kernel
from .launch import on_quietly, row_warps, rows_of
from .rows import exp, load_tile, own_tiles, programs_at_once, row_tile, store_tile
from .tuning import capability

LOWEST = tl.constexpr(torch.finfo(torch.float32).min)
"""The first value of a maximum, with which x − m is never −inf − (−inf), and a row of all −inf sums to 0."""

ONE_PASS = 32768
"""The most columns of a row that stays in registers: 32 for each of 1024 threads; on AMD's GPUs 64 for each of 512."""

SEVERAL, STAGES = 16384, 3
"""The most columns of rows of which a processor has several at once, and the stages of the loop over wider rows.

A wider row fills a processor's registers: with a program for each row nothing is loaded while one is computed, and an
H200 reached 73 % of a copy's speed. In a loop of 3 stages the next two rows lie in shared memory or are on their way
there, for which float32 has no room. By machine code (sm_90) a row of 32,768 in bfloat16 takes 9,400 cycles with a
program of its own, if it arrives as fast as a copy's, and 6,400 in the loop, in which the memory needs 7,000. With 2
stages it takes 9,700, because the next row is requested only when the one before is written."""

ONE_PASS_BACKWARD = 16384
"""ONE_PASS of the backward, which holds two rows, y and dy. With 32,768 an H200 reaches 96 % of a copy's speed, and 69
with two sweeps; but in bfloat16 registers spill."""

SWEEP, HOPPERS_SWEEP = 8192, 16384
"""The columns of a block in the two sweeps: 16 for each of 512 threads, and in Hopper's forward of 1024.

On Hopper a processor has one row at a time: the rows of 131,072 that all processors of an H200 work on take 35 MB, and
the second sweep finds them in its cache of 60. This reaches 64 % of a copy's speed, and 55 with several rows."""


@triton.jit(do_not_specialize=["num_rows"])
def softmax_forward_kernel(
    x_ptr, y_ptr, num_rows, n, stride_x, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    """Compute the softmax of this program's tiles of whole rows of x `(N, n)` in one pass."""
    column = tl.arange(0, BLOCK)  # (n,)
    first, end, step = own_tiles(num_rows, ROWS, STAGES)
    for further in tl.range(0, end, step, num_stages=STAGES):
        row = first + further + tl.arange(0, ROWS)  # (R,)
        mask = (row < num_rows)[:, None] & (column < n)[None, :]
        x = load_tile(x_ptr, stride_x, row, column, mask, float("-inf"))  # (R, n)
        highest = tl.maximum(tl.max(x, axis=1), LOWEST)  # (R,)
        exponentials = exp(x - highest[:, None])
        store_tile(y_ptr, n, row, column, mask, exponentials * inverse(tl.sum(exponentials, axis=1))[:, None])


@triton.jit(do_not_specialize=["num_rows"])
def softmax_online_kernel(x_ptr, y_ptr, num_rows, n, stride_x, BLOCK: tl.constexpr):
    """Compute the softmax of this program's rows of x `(N, n)` in two sweeps; first each lane has a maximum."""
    lane = tl.arange(0, BLOCK)
    last = (n - 1) // BLOCK * BLOCK
    for row in range(tl.program_id(0), num_rows, tl.num_programs(0)):
        x_row, y_row = x_ptr + tl.cast(row, tl.int64) * stride_x, y_ptr + tl.cast(row, tl.int64) * n
        highest = tl.full((BLOCK,), LOWEST, tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, BLOCK):
            column = start + lane
            x = tl.load(x_row + column, column < n, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
            # If x is the new maximum, exp(m − x) rescales the total and x adds 1; else x adds exp(x − m).
            below = exp(-tl.abs(x - highest))
            total = tl.where(x > highest, total * below + 1, total + below)
            highest = tl.where(x > highest, x, highest)
        row_highest = tl.max(highest, axis=0)
        scale = inverse(tl.sum(total * exp(highest - row_highest), axis=0))
        for done in range(0, n, BLOCK):
            column = last - done + lane  # backwards: the cache still holds the end of the row
            x = tl.load(x_row + column, column < n, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
            y = exp(x - row_highest) * scale
            tl.store(y_row + column, y.to(y_ptr.dtype.element_ty), column < n)


@triton.jit
def inverse(total):
    """Return 1 / total, or 1 if the total is 0: all exponentials of a row of −inf are 0."""
    return 1.0 / tl.where(total == 0, 1.0, total)


@triton.jit(do_not_specialize=["num_rows"])
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, num_rows, n, stride_dy, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Write dx for a tile of whole rows of dy and y `(N, n)` in one pass."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # (R,)
    column = tl.arange(0, BLOCK)  # (n,)
    mask = (row < num_rows)[:, None] & (column < n)[None, :]
    dy = load_tile(dy_ptr, stride_dy, row, column, mask)  # (R, n)
    y = load_tile(y_ptr, stride_y, row, column, mask)
    along = tl.sum(dy * y, axis=1)  # (R,)
    store_tile(dx_ptr, n, row, column, mask, y * (dy - along[:, None]))


@triton.jit
def softmax_backward_sweeps_kernel(dy_ptr, y_ptr, dx_ptr, n, stride_dy, stride_y, BLOCK: tl.constexpr):
    """Write dx for one row of dy and y `(N, n)` in two sweeps: one for the sum, one backwards for the gradient."""
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * n
    lane = tl.arange(0, BLOCK)
    along = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        column = start + lane
        dy = tl.load(dy_ptr + column, column < n, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + column, column < n, other=0.0).to(tl.float32)
        along += dy * y
    row_along = tl.sum(along, axis=0)
    last = (n - 1) // BLOCK * BLOCK
    for done in range(0, n, BLOCK):
        column = last - done + lane
        dy = tl.load(dy_ptr + column, column < n, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + column, column < n, other=0.0).to(tl.float32)
        tl.store(dx_ptr + column, (y * (dy - row_along)).to(dx_ptr.dtype.element_ty), column < n)


@kernel
def softmax_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y_i = exp(x_i) / Σ_j exp(x_j)` over the last axis of x `(..., n)`; sums in float32.

    Nothing overflows, and a row of all −inf (a query with nothing to attend to) gives zeros, never NaN. Raises
    `TypeError` for float64 and for integers, `ValueError` for an x without axes. Source: Vaswani 2017, §3.2.1.
    """
    if x.shape[-1] > ONE_PASS:
        y = softmax_online(x)
        return y, y
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        rows = rows_of(x)  # (N, n)
        num_rows, n = rows.shape
        tile_rows, block = row_tile(n, ONE_PASS)
        programs, gpu = triton.cdiv(num_rows, tile_rows), capability(x.device)
        ahead = (STAGES - 1) * block * x.itemsize  # bytes
        loops = STAGES > 1 and block > SEVERAL and (ahead < gpu.shared_memory or gpu.kind == "interpreter")
        if loops:
            programs = min(programs, programs_at_once(x, block, block))
        with on_quietly(x):
            softmax_forward_kernel[(programs,)](
                rows, y, num_rows, n, rows.stride(0),
                ROWS=tile_rows, BLOCK=block, STAGES=STAGES if loops else 1,
                num_warps=row_warps(tile_rows * block, 16 if gpu.kind == "hip" else 32),
            )  # fmt: skip
    return y, y


@kernel
def softmax_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = y · (dy − Σ_j dy_j y_j)`: the Jacobian `diag(y) − y yᵀ` times dy."""
    y = cache
    check_gradient("dy", dy, y.shape, y.dtype, y.device)
    dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    if not y.numel():
        return dx
    dy_rows, y_rows = rows_of(dy), rows_of(y)
    num_rows, n = y_rows.shape
    strides = dy_rows.stride(0), y_rows.stride(0)
    with on_quietly(y):
        if n <= ONE_PASS_BACKWARD:
            tile_rows, block = row_tile(n, ONE_PASS_BACKWARD)
            softmax_backward_kernel[(triton.cdiv(num_rows, tile_rows),)](
                dy_rows, y_rows, dx, num_rows, n, *strides,
                ROWS=tile_rows, BLOCK=block, num_warps=row_warps(tile_rows * block),
            )  # fmt: skip
        else:
            softmax_backward_sweeps_kernel[(num_rows,)](
                dy_rows, y_rows, dx, n, *strides, BLOCK=SWEEP, num_warps=row_warps(SWEEP)
            )
    return dx


@kernel
def softmax_online(x: Tensor) -> Tensor:
    """Compute the softmax of x `(..., n)` in two sweeps, for any n: the second step."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        rows = rows_of(x)
        num_rows, n = rows.shape
        block, programs = SWEEP, num_rows
        if capability(x.device).arch == 90:
            block, programs = HOPPERS_SWEEP, min(num_rows, programs_at_once(x, HOPPERS_SWEEP, HOPPERS_SWEEP))
        with on_quietly(x):
            softmax_online_kernel[(programs,)](
                rows, y, num_rows, n, rows.stride(0), BLOCK=block, num_warps=row_warps(block, 32)
            )
    return y


def softmax_naive(x: Tensor) -> Tensor:
    """Compute the softmax of x `(..., n)` in PyTorch's operations, of one or two passes each: the first step."""
    if not x.numel():
        return x.clone()
    highest = x.amax(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).min)  # reads x; (..., 1)
    below = x - highest  # reads x, writes
    exponentials = torch.exp(below)  # reads, writes
    total = exponentials.sum(-1, keepdim=True).clamp(min=1)  # reads; (..., 1)
    return exponentials / total  # reads, writes
