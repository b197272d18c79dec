"""What the kernels over rows share: softmax and LayerNorm, whose sums run along the last axis."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import on, row_block

TILE = 2048
"""Elements of a tile of short rows: 16 for each of 128 threads, so that a program has enough to load while it waits."""

AT_ONCE = 4096
"""Elements that a processor of the GPU has at once in tiles of programs that stay, 8 for each of 512 threads: so many
fit its registers beside two sums of each, and while it works on them the next ones are on their way."""

PROCESSORS_INTERPRETED = 8
"""The interpreter works in turn; as if on eight, so that programs are several, and some have several tiles."""


def row_tile(width: int, most: int) -> tuple[int, int]:
    """(rows, columns) of a program's tile: one row of at most `most` elements, or several short ones."""
    block = row_block(width, most)
    return max(TILE // block, 1), block


def programs_at_once(tensor: Tensor, tile: int) -> int:
    """How many programs, each at work on a tile of that many elements, the tensor's GPU runs at the same time.

    Sums that each of them keeps are added up in the end: their number is the device's and the shape's, never chance's.
    """
    processors = PROCESSORS_INTERPRETED
    if tensor.is_cuda:
        processors = torch.cuda.get_device_properties(tensor.device).multi_processor_count
    return processors * max(AT_ONCE // tile, 1)


@triton.jit
def load_tile(ptr, stride, row, column, mask, OTHER: tl.constexpr = 0.0):
    """Rows and columns of an `(N, n)` in float32; `OTHER` where the mask is off."""
    return tl.load(ptr + row.to(tl.int64)[:, None] * stride + column[None, :], mask, other=OTHER).to(tl.float32)


@triton.jit
def store_tile(ptr, stride, row, column, mask, values):
    """Write a tile's values in the array's own dtype."""
    tl.store(ptr + row.to(tl.int64)[:, None] * stride + column[None, :], values.to(ptr.dtype.element_ty), mask)


@triton.jit
def rounded_product(a, b):
    """`a · b`, rounded. Of a product written with `*` a compiler may make `fma(a, b, −c)` where c is subtracted later,
    unrounded, and leave the rounding error where c is that same product, and the difference must be 0."""
    return tl.fma(a, b, 0.0)


@triton.jit
def is_token(id, V):
    """Whether a vocabulary of V has this token: what is read or written by an id that it does not have is anybody's."""
    return (id >= 0) & (id < V)


@triton.jit
def store_partials(partials_ptr, width, column, first, second):
    """A program's two sums, `(R, C)` over the rows of its tiles, into its places in partials `(2, programs, width)`."""
    partials_ptr += tl.program_id(0).to(tl.int64) * width
    tl.store(partials_ptr + column, tl.sum(first, axis=0), column < width)
    partials_ptr += tl.num_programs(0).to(tl.int64) * width
    tl.store(partials_ptr + column, tl.sum(second, axis=0), column < width)


@triton.jit(do_not_specialize=["num_partials"])
def sum_partials_kernel(partials_ptr, out_ptr, num_partials, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A block of columns of one of the sums over partials `(sums, num_partials, width)`."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (C,)
    which = tl.program_id(1).to(tl.int64)
    partials_ptr += which * num_partials * width
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, num_partials, ROWS):
        row = start + tl.arange(0, ROWS)  # (R,)
        mask = (row < num_partials)[:, None] & (column < width)[None, :]
        total += load_tile(partials_ptr, width, row, column, mask)
    tl.store(out_ptr + which * width + column, tl.sum(total, axis=0).to(out_ptr.dtype.element_ty), column < width)


def summed_partials(partials: Tensor, dtype: torch.dtype) -> Tensor:
    """The sums `(sums, width)` of partials `(sums, programs, width)` over the programs, in a fixed order."""
    sums, num_partials, width = partials.shape
    out = torch.empty((sums, width), dtype=dtype, device=partials.device)
    rows = row_block(num_partials, 256)
    block = 2 * TILE // rows
    with on(partials):
        sum_partials_kernel[(triton.cdiv(width, block), sums)](
            partials, out, num_partials, width, ROWS=rows, BLOCK=block, num_warps=8
        )
    return out
