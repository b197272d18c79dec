"""Functions of the kernels over rows (softmax, LayerNorm, the losses): tiles, and sums in a fixed order."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import on, row_block

TILE = 2048
"""The elements of a tile of short rows: 16 for each of 128 threads, so that a program always has loads under way."""

AT_ONCE = 4096
"""The elements that a processor of the GPU works on at once in kernels whose programs take many tiles: 8 for each of
512 threads. They and two sums for each fit into its registers, and the next tiles are loaded meanwhile."""

PROCESSORS_INTERPRETED = 8
"""The interpreter runs programs one after the other. It pretends to have 8 processors, so that there are several
programs, and some of them take several tiles."""


def row_tile(width: int, most: int, tile: int = TILE) -> tuple[int, int]:
    """Return (rows, columns) of a program's tile: one row of at most `most` elements, or several short ones."""
    block = row_block(width, most)
    return max(tile // block, 1), block


def programs_at_once(tensor: Tensor, tile: int, elements: int = AT_ONCE) -> int:
    """Return the number of programs, each with a tile of `tile` elements, that the tensor's GPU runs at the same time.

    A processor works on `elements` at once. The number depends only on the device and the shape, and so does the order
    in which the programs' sums are added up in the end.
    """
    processors = PROCESSORS_INTERPRETED
    if tensor.is_cuda:
        processors = torch.cuda.get_device_properties(tensor.device).multi_processor_count
    return processors * max(elements // tile, 1)


@triton.jit
def own_tiles(num_rows, ROWS: tl.constexpr, STAGES: tl.constexpr):
    """Return this program's first row, and end and step of a loop over the first rows of its tiles, counted from it.

    With one stage a program has one tile, and the compiler leaves no loop.
    """
    first, end, step = tl.program_id(0) * ROWS, 1, 1
    if STAGES > 1:
        end, step = num_rows - first, tl.num_programs(0) * ROWS
    return first, end, step


@triton.jit
def load_tile(ptr, stride, row, column, mask, OTHER: tl.constexpr = 0.0):
    """Load rows and columns of an `(N, n)` array in float32; `OTHER` where the mask is off."""
    return tl.load(ptr + row.to(tl.int64)[:, None] * stride + column[None, :], mask, other=OTHER).to(tl.float32)


@triton.jit
def store_tile(ptr, stride, row, column, mask, values):
    """Write a tile's values in the array's own dtype."""
    tl.store(ptr + row.to(tl.int64)[:, None] * stride + column[None, :], values.to(ptr.dtype.element_ty), mask)


@triton.jit
def exp(x):
    """Return `e^x`, as `2^(x · log₂e)`; below 2⁻¹²⁶ it may be 0.

    The product is rounded, so the relative error is |x| · 2⁻²⁴ more than that of the hardware's 2^x: for a weight of a
    softmax at most 2⁻²⁴/e of the largest weight. `tl.exp` multiplies too, and takes three more instructions for results
    below 2⁻¹²⁶.
    """
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def rounded_product(a, b):
    """Return `a · b`, rounded. If c is added to `a * b`, a compiler may compute `fma(a, b, c)`, and round only the sum.

    Then `a · b − c`, with c the same product, would be a rounding error and not 0. And if lanes add up each other's
    products, each would round all but its own: lanes that hold the same sum would disagree about its last bit.
    """
    return tl.fma(a, b, 0.0)


@triton.jit
def is_token(id, V):
    """Return True if a vocabulary of V has this token; for other ids a kernel must not read or write a table."""
    return (id >= 0) & (id < V)


@triton.jit
def store_partials(partials_ptr, which: tl.constexpr, width, column, sums):
    """Add up a program's sums `(R, C)` over R, and store them as those of `which` in `(sums, programs, width)`."""
    partials_ptr += (which * tl.num_programs(0) + tl.program_id(0)).to(tl.int64) * width
    tl.store(partials_ptr + column, tl.sum(sums, axis=0), column < width)


@triton.jit(do_not_specialize=["num_partials"])
def sum_partials_kernel(partials_ptr, out_ptr, num_partials, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Add up partials `(sums, num_partials, width)` over the programs, for a block of columns of one of the sums."""
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
    """Return the sums `(sums, width)` of partials `(sums, programs, width)` over the programs, in a fixed order."""
    sums, num_partials, width = partials.shape
    out = torch.empty((sums, width), dtype=dtype, device=partials.device)
    rows = row_block(num_partials, 256)
    block = 2 * TILE // rows
    with on(partials):
        sum_partials_kernel[(triton.cdiv(width, block), sums)](
            partials, out, num_partials, width, ROWS=rows, BLOCK=block, num_warps=8
        )
    return out
