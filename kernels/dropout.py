"""Dropout: `y = x · mask / (1 − rate)`.

naive   `dropout_naive`: draw a random number for every element and keep the mask for the backward. The mask is written
        once and read twice, and no other backend can draw the same one
here    the mask is a hash of the element's coordinates (`kernels.hashing`). Nothing is stored, since the backward
        computes the mask again; x is read and y written once. It is as fast as a copy as long as memory is slower than
        the hash
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from minitransformer.ops import Dropout

from .checks import check_gradient, kernel
from .hashing import UNSPECIALIZED, is_active, kept, row_arguments, row_hashes
from .launch import blocks_of_rows, on, rows_of

ELEMENTS = 2048
"""Elements that a program works on: a few rows, or a part of one."""


@triton.jit(do_not_specialize=[*UNSPECIALIZED, "num_rows", "T"])
def dropout_kernel(
    x_ptr, y_ptr, num_rows, width, stride_x,
    key_ptr, key_low, key_high, threshold, scale, sentences_ptr, positions_ptr, sentence, position, T, H,
    HEADS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Drop a block of rows and channels of x `(N, C)`."""
    blocks = tl.cdiv(width, BLOCK)
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)  # (R,)
    channel = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)  # (C,)
    mask = (row < num_rows)[:, None] & (channel < width)[None, :]
    hashes = row_hashes(
        tl.minimum(row, num_rows - 1),  # later rows have no coordinates
        key_ptr, key_low, key_high, sentence, position, sentences_ptr, positions_ptr, T, H, HEADS,
    )  # fmt: skip
    x = tl.load(x_ptr + row.to(tl.int64)[:, None] * stride_x + channel[None, :], mask, other=0.0)
    y = tl.where(kept(hashes[:, None], channel[None, :], threshold), x.to(tl.float32) * scale, 0.0)
    tl.store(y_ptr + row.to(tl.int64)[:, None] * width + channel[None, :], y.to(x.dtype), mask)


@kernel
def dropout_forward(x: Tensor, dropout: Dropout | None) -> tuple[Tensor, tuple | None]:
    """`y = x · mask / (1 − rate)`, any shape; the identity when `dropout` is `None` or its rate rounds to 0.

    Raises `TypeError` for float64 and for integers, `ValueError` for a shape that does not fit the coordinates.
    Source: Srivastava et al. 2014, in the inverted form; Vaswani 2017, §5.4.
    """
    if dropout is None or not is_active(dropout):
        return x, None
    return _drop(x, dropout), (dropout, x.shape, x.dtype, x.device)


@kernel
def dropout_backward(dy: Tensor, cache: tuple | None) -> Tensor:
    """`dx = dy · mask / (1 − rate)`: the same map, with the mask computed again."""
    if cache is None:
        return dy
    dropout, *expected = cache
    check_gradient("dy", dy, *expected)
    return _drop(dy, dropout)


def dropout_naive(x: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """`x · mask / (1 − rate)` and the mask, drawn by PyTorch's generator; the backward is `dy · mask / (1 − rate)`."""
    mask = torch.rand(x.shape, device=x.device) >= rate
    return x * mask / (1 - rate), mask


def _drop(x: Tensor, dropout: Dropout) -> Tensor:
    rows = rows_of(x)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.numel():
        return y
    num_rows, width = rows.shape
    (tall, wide), options = blocks_of_rows(num_rows, width, ELEMENTS)
    with on(x):
        dropout_kernel[(tall * wide,)](rows, y, num_rows, width, rows.stride(0), **row_arguments(dropout, x), **options)
    return y
