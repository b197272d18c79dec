"""The kernels of both norms over rows that stay in registers: LayerNorm's, and without a mean RMSNorm's.

    LayerNorm    y = gamma · (x − mean) / √(var + eps) + beta
    RMSNorm      y = gamma · x / √(mean(x²) + eps)

x may be the sum `x + Dropout(sublayer_out)`. Arguments that are `None` are left out of the compiled kernel: beta, the
mean, sublayer_out and dropout.

The forward has a program for each tile. Tiles are small, and a processor runs dozens of them: some wait for memory
while others compute. gamma and beta are loaded when a row's sums are known, so that a program that waits holds no
registers for them. In bfloat16 LayerNorm's threads have 64 registers (sm_90; with gamma and beta loaded at the
beginning, in a loop of one turn, 95 to 127), and twice the bytes are under way: a processor has 8 rows of 4,096 at a
time instead of 4.

Long rows beside dropout are the exception. They and the backward have as many programs as the GPU runs at once, and
each takes many tiles: the next is on its way while one is computed. The backward's programs keep their sums over rows,
dgamma and dbeta, in registers, and write them at the end; a second kernel adds these up. If programs added into one
array instead, they would need atomics, whose order is random: this way every run has the same bits, for 8 bytes a
channel, program and parameter.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from minitransformer.ops import Dropout

from ..checks import check_gradient
from ..hashing import UNSPECIALIZED, is_active, kept, row_arguments, row_hashes
from ..launch import on, rows_of
from ..rows import (
    AT_ONCE,
    load_tile,
    own_tiles,
    programs_at_once,
    rounded_product,
    row_tile,
    store_partials,
    store_tile,
    summed_partials,
)
from .wide import wide_backward, wide_forward

ONE_BLOCK = 8192
"""The most channels of a row that stays in registers: 16 for each of 512 threads; the backward keeps five such rows."""

ONE_BLOCK_UNALIGNED = 4096
"""ONE_BLOCK if 16 does not divide the width: numbers that are loaded one by one need registers for their addresses."""

UNDER_WAY, FORWARD_TILE = 16_384, 1024
"""The elements that a processor works on at once if the forward's programs take many tiles, and the elements of a tile
of short rows: 32 for each thread, or 16 beside dropout. They were the best of 14 ways to share out rows of 512 and of
13 for 4,096 on an H200: LayerNorm reaches 92 % of a copy's speed (84 with loops of 3 stages), RMSNorm 94 (88), Add &
Norm with dropout 90 and 90 (69 and 64)."""

NO_DROPOUT = dict.fromkeys(
    ("key_ptr", "key_low", "key_high", "threshold", "scale", "sentences_ptr", "positions_ptr", "sentence", "position")
) | {"T": 1, "H": 1, "HEADS": False}
"""The dropout arguments of a kernel without dropout, which has no threshold."""

CHANGING = [*UNSPECIALIZED, "num_rows", "T"]
"""Arguments that change from batch to batch: Triton must not compile another kernel for each."""


@triton.jit(do_not_specialize=CHANGING)
def norm_forward_kernel(
    x_ptr, sublayer_ptr, gamma_ptr, beta_ptr, y_ptr, mean_ptr, rstd_ptr,
    num_rows, width, share, stride_x, stride_sublayer, eps,
    key_ptr, key_low, key_high, threshold, scale, sentences_ptr, positions_ptr, sentence, position, T, H,
    HEADS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Normalise this program's tiles of whole rows of x and sublayer_out `(N, C)`; `share` is 1/C."""
    channel = tl.arange(0, BLOCK)  # (C,)
    if STAGES > 1:
        gamma, beta = load_parameters(gamma_ptr, beta_ptr, channel, width)
    first, end, step = own_tiles(num_rows, ROWS, STAGES)
    for further in tl.range(0, end, step, num_stages=STAGES):
        row = first + further + tl.arange(0, ROWS)  # (R,)
        mask = (row < num_rows)[:, None] & (channel < width)[None, :]
        keep = kept_in_tile(
            row, num_rows, channel, key_ptr, key_low, key_high, threshold, sentences_ptr, positions_ptr,
            sentence, position, T, H, HEADS,
        )  # fmt: skip
        x = load_sum(x_ptr, stride_x, sublayer_ptr, stride_sublayer, row, channel, mask, keep, scale)  # (R, C)
        if mean_ptr is not None:
            mean = quotient(tl.sum(x, axis=1), width, share)  # (R,); exact for a constant row, whose y is beta
            tl.store(mean_ptr + row, mean, row < num_rows)
            x = tl.where(mask, x - mean[:, None], 0.0)
        rstd = tl.rsqrt(tl.sum(rounded_product(x, x), axis=1) * share + eps)  # (R,)
        tl.store(rstd_ptr + row, rstd, row < num_rows)
        if STAGES == 1:  # not earlier: a program that waits for x should hold few registers, so that more can wait
            gamma, beta = load_parameters(gamma_ptr, beta_ptr, channel, width)
        y = x * rstd[:, None] * gamma
        if beta_ptr is not None:
            y += beta
        store_tile(y_ptr, width, row, channel, mask, y)


@triton.jit(do_not_specialize=CHANGING)
def norm_backward_kernel(
    dy_ptr, x_ptr, sublayer_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, dsublayer_ptr, partials_ptr,
    num_rows, width, stride_dy, stride_x, stride_sublayer,
    key_ptr, key_low, key_high, threshold, scale, sentences_ptr, positions_ptr, sentence, position, T, H,
    HEADS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write dx for this program's tiles of rows, and its sums of dgamma and of LayerNorm's dbeta: partials.

    Partials are `(2, programs, C)`, or without a mean `(1, programs, C)`.
    """
    channel = tl.arange(0, BLOCK)  # (C,)
    gamma = tl.load(gamma_ptr + channel, channel < width, other=0.0).to(tl.float32)
    channels = tl.cast(width, tl.float32)
    dgamma = tl.zeros((ROWS, BLOCK), tl.float32)
    if mean_ptr is not None:
        dbeta = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)  # (R,)
        mask = (row < num_rows)[:, None] & (channel < width)[None, :]
        keep = kept_in_tile(
            row, num_rows, channel, key_ptr, key_low, key_high, threshold, sentences_ptr, positions_ptr,
            sentence, position, T, H, HEADS,
        )  # fmt: skip
        x = load_sum(x_ptr, stride_x, sublayer_ptr, stride_sublayer, row, channel, mask, keep, scale)  # (R, C)
        rstd = tl.load(rstd_ptr + row, row < num_rows, other=0.0)  # (R,)
        if mean_ptr is not None:
            x -= tl.load(mean_ptr + row, row < num_rows, other=0.0)[:, None]
        normed = tl.where(mask, x * rstd[:, None], 0.0)
        dy = load_tile(dy_ptr, stride_dy, row, channel, mask)
        dgamma += dy * normed
        dnormed = rounded_product(dy, gamma[None, :])  # rounded: minus its mean it must be 0 for one channel
        along_normed = tl.sum(rounded_product(dnormed, normed), axis=1) / channels  # (R,)
        if mean_ptr is not None:
            dbeta += dy
            dnormed -= (tl.sum(dnormed, axis=1) / channels)[:, None]
        dx = rstd[:, None] * (dnormed - normed * along_normed[:, None])
        store_tile(dx_ptr, width, row, channel, mask, dx)
        if threshold is not None:
            store_tile(dsublayer_ptr, width, row, channel, mask, tl.where(keep, dx * scale, 0.0))
    store_partials(partials_ptr, 0, width, channel, dgamma)
    if mean_ptr is not None:
        store_partials(partials_ptr, 1, width, channel, dbeta)


@triton.jit
def load_parameters(gamma_ptr, beta_ptr, channel, width):
    """Load gamma and beta `(1, C)` in float32; gamma twice if beta is None.

    With two axes a thread loads the parameters of its own part of x. With one axis, float32 parameters beside an x of
    half precision would be loaded by other threads and passed on through shared memory: 15 more barriers for a row of
    4,096.
    """
    mask = (channel < width)[None, :]
    gamma = tl.load(gamma_ptr + channel[None, :], mask, other=0.0).to(tl.float32)
    beta = gamma
    if beta_ptr is not None:
        beta = tl.load(beta_ptr + channel[None, :], mask, other=0.0).to(tl.float32)
    return gamma, beta


@triton.jit
def quotient(a, b, inverse):
    """Return `a / b` for a whole number b, rounded to nearest; `inverse` is 1/b, rounded to nearest (Markstein 1990).

    Triton's own division has a branch for the smallest and the largest numbers, which needs more registers.
    """
    near = a * inverse
    return tl.fma(tl.fma(-near, tl.cast(b, tl.float32), a), inverse, near)


@triton.jit
def load_sum(x_ptr, stride_x, sublayer_ptr, stride_sublayer, row, channel, mask, keep, scale):
    """Load a tile of `x + Dropout(sublayer_out)`, or of x alone; nothing is dropped if `keep` is None."""
    x = load_tile(x_ptr, stride_x, row, channel, mask)
    if sublayer_ptr is not None:
        sublayer_out = load_tile(sublayer_ptr, stride_sublayer, row, channel, mask)
        if keep is not None:  # forward and backward must round alike
            x = tl.where(keep, tl.fma(sublayer_out, scale, x), x)
        else:
            x += sublayer_out
    return x


@triton.jit
def kept_in_tile(
    row, num_rows, channel, key_ptr, key_low, key_high, threshold, sentences_ptr, positions_ptr,
    sentence, position, T, H, HEADS: tl.constexpr,
):  # fmt: skip
    """Return the dropout mask of a tile `(R, C)`, or None."""
    keep = None
    if threshold is not None:
        row = tl.minimum(row, num_rows - 1)  # later rows have no coordinates
        hashes = row_hashes(
            row, key_ptr, key_low, key_high, sentence, position, sentences_ptr, positions_ptr, T, H, HEADS
        )
        keep = kept(hashes[:, None], channel[None, :], threshold)
    return keep


def fits(width: int) -> bool:
    """Return True if a row of this many channels fits into registers."""
    return width <= (ONE_BLOCK_UNALIGNED if width % 16 else ONE_BLOCK)


def dropping_of(dropout: Dropout | None, x: Tensor) -> dict[str, Any]:
    """Return the dropout arguments of a kernel for x, with at most four axes."""
    return row_arguments(dropout, x) if dropout is not None and is_active(dropout) else NO_DROPOUT


class Normalised(NamedTuple):
    """The cache of a norm."""

    rows: Tensor  # (N, C)
    added: Tensor | None  # sublayer_out (N, C)
    gamma: Tensor
    has_beta: bool
    mean: Tensor | None  # (N,): LayerNorm's
    rstd: Tensor  # (N,)
    dropping: dict[str, Any]
    shape: torch.Size


def norm_forward(
    x: Tensor,
    sublayer_out: Tensor | None,
    gamma: Tensor,
    beta: Tensor | None,
    eps: float,
    dropping: dict[str, Any],
    *,
    centred: bool,
) -> tuple[Tensor, Normalised]:
    """Return y and the cache of LayerNorm (`centred`) or of RMSNorm; of the sum if there is a sublayer_out."""
    rows, added = rows_of(x), None if sublayer_out is None else rows_of(sublayer_out)  # (N, C)
    gamma, beta = gamma.contiguous(), None if beta is None else beta.contiguous()
    num_rows, width = rows.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rstd = torch.empty(num_rows, dtype=torch.float32, device=x.device)
    mean = torch.empty_like(rstd) if centred else None
    if not fits(width):
        wide_forward(rows, gamma, beta, eps, y, mean, rstd)
    elif num_rows:
        dropped = dropping["threshold"] is not None
        tile_rows, block = row_tile(width, ONE_BLOCK, FORWARD_TILE)
        tile, programs = tile_rows * block, triton.cdiv(num_rows, tile_rows)
        loops = dropped and tile > FORWARD_TILE
        if loops:
            programs = min(programs, programs_at_once(x, tile, UNDER_WAY))
        with on(x):
            norm_forward_kernel[(programs,)](
                rows, added, gamma, beta, y, mean, rstd,
                num_rows, width, 1 / width, rows.stride(0), 0 if added is None else added.stride(0), float(eps),
                **dropping, ROWS=tile_rows, BLOCK=block, STAGES=2 if loops else 1,
                num_warps=max(tile // FORWARD_TILE, 2 if dropped else 1),
            )  # fmt: skip
    return y, Normalised(rows, added, gamma, beta is not None, mean, rstd, dropping, x.shape)


def norm_backward(dy: Tensor, cache: Normalised) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients `(dx, dsublayer_out, dgamma, dbeta)`; dsublayer_out is dx itself if nothing was dropped."""
    rows, added, gamma, has_beta, mean, rstd, dropping, shape = cache
    check_gradient("dy", dy, shape, rows.dtype, rows.device)
    dropped = dropping["threshold"] is not None
    dy_rows = rows_of(dy)
    num_rows, width = rows.shape
    dx = torch.empty(shape, dtype=dy.dtype, device=dy.device)
    dsublayer_out = torch.empty_like(dx) if dropped else dx
    if not num_rows:
        sums = torch.zeros((2, width), dtype=gamma.dtype, device=gamma.device)
    elif not fits(width):
        sums = wide_backward(dy_rows, rows, gamma, mean, rstd, dx)
    else:
        tile_rows, block = row_tile(width, ONE_BLOCK)
        tile = tile_rows * block
        programs = min(triton.cdiv(num_rows, tile_rows), programs_at_once(dy, tile, AT_ONCE))
        partials = torch.empty((1 if mean is None else 2, programs, width), dtype=torch.float32, device=dy.device)
        with on(dy):
            norm_backward_kernel[(programs,)](
                dy_rows, rows, added, gamma, mean, rstd, dx, dsublayer_out if dropped else None, partials,
                num_rows, width, dy_rows.stride(0), rows.stride(0), 0 if added is None else added.stride(0),
                **dropping, ROWS=tile_rows, BLOCK=block, STAGES=3 if tile <= AT_ONCE else 2,
                num_warps=min(tile // 256, 16),
            )  # fmt: skip
        sums = summed_partials(partials, gamma.dtype)
    return dx, dsublayer_out, sums[0], sums[1] if has_beta else None
