"""LayerNorm, `y = gamma · (x − mean) / √(var + eps) + beta`, and Add & Norm, `LayerNorm(x + Dropout(sublayer_out))`.

Memory limits their speed. Passes over an array `(N, C)`:

    naive     `layernorm_naive`: the formula in PyTorch's operations. Mean, difference, square, mean, and the products
              and the sum with 1/std, gamma and beta: 7 reads and 5 writes, 12 passes
    sweeps    `layernorm_sweeps`, for rows of any width: a first sweep for mean and variance together, a second for y:
              2 reads, 1 write, 3 passes
    one pass  a row of up to `ONE_BLOCK` channels stays in registers, in which the mean, then the centred squares and
              then y are computed: 1 read, 1 write, which is the least. All is float32, and the variance is that of the
              centred values, because mean(x²) − mean(x)² loses digits when the mean is large

    unfused   Add & Norm in three kernels, `add_layernorm_unfused`: dropout 1 + 1, the sum 2 + 1, LayerNorm 1 + 1:
              7 passes
    fused     x and sublayer_out are read, y is written: 3 passes. The mask is computed in between and not kept

For the backward the forward keeps only each row's mean and 1/std, since x and sublayer_out are kept already. The
backward reads them and dy, and writes dx and dsublayer_out: 5 passes; 4 without dropout, when the two gradients are
equal; 3 for LayerNorm alone. To keep the sum instead would cost a write in the forward, in evaluation too, and save one
read here: no gain, and the sum would be rounded to the activations' type.

dgamma and dbeta are sums over all rows. If programs added into one array, they would need atomics, whose order is
random. Instead there are as many programs as the GPU runs at once. Each takes many tiles of rows, keeps its sums in
registers and writes them at the end, and a second kernel adds these up: the same bits in every run, for 16 bytes a
channel and program.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from minitransformer.ops import Dropout

from ._checks import check_gradient, check_place, kernel
from ._rows import (
    AT_ONCE,
    load_tile,
    programs_at_once,
    rounded_product,
    row_tile,
    store_partials,
    store_tile,
    summed_partials,
)
from .dropout import dropout_backward, dropout_forward
from .hashing import UNSPECIALIZED, is_active, kept, row_arguments, row_hashes
from .launch import on, row_warps, rows_of
from .layernorm_wide import wide_backward, wide_forward

ONE_BLOCK = 8192
"""The most channels of a row that stays in registers: 16 for each of 512 threads; the backward keeps five such rows."""

ONE_BLOCK_UNALIGNED = 4096
"""The same if 16 does not divide the width: numbers that are loaded one by one need registers for their addresses."""

NO_DROPOUT = dict.fromkeys(
    ("key_ptr", "key_low", "key_high", "threshold", "scale", "sentences_ptr", "positions_ptr", "sentence", "position")
) | {"T": 1, "H": 1, "HEADS": False}
"""The dropout arguments of a kernel without dropout, which has no threshold."""

CHANGING = [*UNSPECIALIZED, "num_rows", "T"]
"""Arguments that change from batch to batch: Triton must not compile another kernel for each."""


@triton.jit(do_not_specialize=CHANGING)
def layernorm_forward_kernel(
    x_ptr, sublayer_ptr, gamma_ptr, beta_ptr, y_ptr, mean_ptr, rstd_ptr,
    num_rows, width, stride_x, stride_sublayer, eps,
    key_ptr, key_low, key_high, threshold, scale, sentences_ptr, positions_ptr, sentence, position, T, H,
    HEADS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Normalises a tile of whole rows of x and sublayer_out `(N, C)`."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # (R,)
    channel = tl.arange(0, BLOCK)  # (C,)
    mask = (row < num_rows)[:, None] & (channel < width)[None, :]
    keep = kept_in_tile(
        row, num_rows, channel, key_ptr, key_low, key_high, threshold, sentences_ptr, positions_ptr,
        sentence, position, T, H, HEADS,
    )  # fmt: skip
    x = load_sum(x_ptr, stride_x, sublayer_ptr, stride_sublayer, row, channel, mask, keep, scale)  # (R, C)
    channels = tl.cast(width, tl.float32)  # a divisor, not a factor 1/C: so a constant row's mean is exact, and y beta
    mean = tl.div_rn(tl.sum(x, axis=1), channels)  # (R,)
    centred = tl.where(mask, x - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=1) / channels + eps)  # (R,)
    gamma = tl.load(gamma_ptr + channel, channel < width, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + channel, channel < width, other=0.0).to(tl.float32)
    store_tile(y_ptr, width, row, channel, mask, centred * rstd[:, None] * gamma[None, :] + beta[None, :])
    tl.store(mean_ptr + row, mean, row < num_rows)
    tl.store(rstd_ptr + row, rstd, row < num_rows)


@triton.jit(do_not_specialize=CHANGING)
def layernorm_backward_kernel(
    dy_ptr, x_ptr, sublayer_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, dsublayer_ptr, partials_ptr,
    num_rows, width, stride_dy, stride_x, stride_sublayer,
    key_ptr, key_low, key_high, threshold, scale, sentences_ptr, positions_ptr, sentence, position, T, H,
    HEADS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes dx for this program's tiles of rows, and its sums of dgamma and dbeta: partials `(2, programs, C)`."""
    channel = tl.arange(0, BLOCK)  # (C,)
    gamma = tl.load(gamma_ptr + channel, channel < width, other=0.0).to(tl.float32)
    channels = tl.cast(width, tl.float32)
    dgamma = tl.zeros((ROWS, BLOCK), tl.float32)
    dbeta = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)  # (R,)
        mask = (row < num_rows)[:, None] & (channel < width)[None, :]
        keep = kept_in_tile(
            row, num_rows, channel, key_ptr, key_low, key_high, threshold, sentences_ptr, positions_ptr,
            sentence, position, T, H, HEADS,
        )  # fmt: skip
        x = load_sum(x_ptr, stride_x, sublayer_ptr, stride_sublayer, row, channel, mask, keep, scale)  # (R, C)
        mean = tl.load(mean_ptr + row, row < num_rows, other=0.0)  # (R,)
        rstd = tl.load(rstd_ptr + row, row < num_rows, other=0.0)
        normed = tl.where(mask, (x - mean[:, None]) * rstd[:, None], 0.0)
        dy = load_tile(dy_ptr, stride_dy, row, channel, mask)
        dgamma += dy * normed
        dbeta += dy
        dnormed = rounded_product(dy, gamma[None, :])  # minus its mean: must be 0 if a row has one channel
        mean_dnormed = tl.sum(dnormed, axis=1) / channels  # (R,)
        along_normed = tl.sum(dnormed * normed, axis=1) / channels
        dx = rstd[:, None] * (dnormed - mean_dnormed[:, None] - normed * along_normed[:, None])
        store_tile(dx_ptr, width, row, channel, mask, dx)
        if threshold is not None:
            store_tile(dsublayer_ptr, width, row, channel, mask, tl.where(keep, dx * scale, 0.0))
    store_partials(partials_ptr, width, channel, dgamma, dbeta)


@triton.jit
def load_sum(x_ptr, stride_x, sublayer_ptr, stride_sublayer, row, channel, mask, keep, scale):
    """Loads a tile of `x + Dropout(sublayer_out)`, or of x alone; nothing is dropped if `keep` is None."""
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
    """The dropout mask of a tile `(R, C)`, or None."""
    keep = None
    if threshold is not None:
        row = tl.minimum(row, num_rows - 1)  # later rows have no coordinates
        hashes = row_hashes(
            row, key_ptr, key_low, key_high, sentence, position, sentences_ptr, positions_ptr, T, H, HEADS
        )
        keep = kept(hashes[:, None], channel[None, :], threshold)
    return keep


@kernel
def layernorm_forward(x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float = 1e-5) -> tuple[Tensor, tuple]:
    """`y = gamma · (x − mean) / √(var + eps) + beta` over the last axis.

    x `(..., C)`; gamma and beta `(C,)` in x's dtype or in float32; a beta of `None` adds nothing. The variance is the
    biased one and eps is inside the root. Raises `ValueError` for shapes that do not fit, and `TypeError` for dtypes
    that do not.
    Source: Ba, Kiros, Hinton 2016, eq. 4; Vaswani 2017, §3.1.
    """
    return _forward(x, None, gamma, beta, eps, NO_DROPOUT)


@kernel
def layernorm_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients `(dx, dgamma, dbeta)`.

    With `n = (x − mean) · rstd` and `dn = dy · gamma`: `dx = rstd · (dn − mean(dn) − n · mean(dn · n))`.
    """
    dx, _, dgamma, dbeta = _backward(dy, cache)
    return dx, dgamma, dbeta


@kernel
def add_layernorm_forward(
    x: Tensor,
    sublayer_out: Tensor,
    gamma: Tensor,
    beta: Tensor | None,
    eps: float = 1e-5,
    dropout: Dropout | None = None,
) -> tuple[Tensor, tuple]:
    """The paper's Add & Norm: `LayerNorm(x + Dropout(sublayer_out))`, in one kernel up to `ONE_BLOCK` channels.

    x and sublayer_out `(..., C)`, with at most four axes if something is dropped; gamma, beta and errors are as in
    `layernorm_forward`. Source: Vaswani 2017, §3.1 and §5.4.
    """
    if not fits(x.shape[-1]):
        return add_layernorm_unfused(x, sublayer_out, gamma, beta, eps, dropout)
    dropping = row_arguments(dropout, x) if dropout is not None and is_active(dropout) else NO_DROPOUT
    y, norm_cache = _forward(x, sublayer_out, gamma, beta, eps, dropping)
    return y, (norm_cache, None)


@kernel
def add_layernorm_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients `(dx, dsublayer_out, dgamma, dbeta)`; the first two are one tensor if nothing was dropped."""
    norm_cache, dropout_cache = cache
    dx, dsublayer_out, dgamma, dbeta = _backward(dy, norm_cache)
    return dx, dropout_backward(dsublayer_out, dropout_cache), dgamma, dbeta


@kernel
def add_layernorm_unfused(
    x: Tensor,
    sublayer_out: Tensor,
    gamma: Tensor,
    beta: Tensor | None,
    eps: float = 1e-5,
    dropout: Dropout | None = None,
) -> tuple[Tensor, tuple]:
    """`add_layernorm_forward` in three kernels, the step before; its backward is `add_layernorm_backward` too."""
    check_place("sublayer_out", sublayer_out, x.shape, "x", x.device)
    dropped, dropout_cache = dropout_forward(sublayer_out, dropout)
    y, norm_cache = layernorm_forward(x + dropped, gamma, beta, eps)
    return y, (norm_cache, dropout_cache)


def layernorm_naive(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    """The output of `layernorm_forward` in PyTorch's operations, each of one pass or more: the first step."""
    mean = x.mean(-1, keepdim=True)  # reads x; (..., 1)
    centred = x - mean  # reads x, writes
    squares = centred.square()  # reads, writes
    rstd = (squares.mean(-1, keepdim=True) + eps).rsqrt()  # reads; (..., 1)
    normed = centred * rstd  # reads, writes
    scaled = normed * gamma  # reads, writes
    return (scaled + beta).to(x.dtype)  # reads, writes


@kernel
def layernorm_sweeps(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    """The output of `layernorm_forward` in two sweeps over each row, of any width: the step before one pass."""
    rows = rows_of(x)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty(len(rows), dtype=torch.float32, device=x.device) for _ in range(2))
    wide_forward(rows, gamma.contiguous(), beta.contiguous(), eps, y, mean, rstd)
    return y


def fits(width: int) -> bool:
    """Whether a row of this many channels fits into registers."""
    return width <= (ONE_BLOCK_UNALIGNED if width % 16 else ONE_BLOCK)


def _forward(
    x: Tensor, sublayer_out: Tensor | None, gamma: Tensor, beta: Tensor | None, eps: float, dropping: dict[str, Any]
) -> tuple[Tensor, tuple]:
    """y and the cache of LayerNorm, or of Add & Norm if there is a sublayer_out."""
    rows, added = rows_of(x), None if sublayer_out is None else rows_of(sublayer_out)  # (N, C)
    gamma, has_beta = gamma.contiguous(), beta is not None
    beta = torch.zeros_like(gamma) if beta is None else beta.contiguous()
    num_rows, width = rows.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty(num_rows, dtype=torch.float32, device=x.device) for _ in range(2))
    if not fits(width):
        wide_forward(rows, gamma, beta, eps, y, mean, rstd)
    elif num_rows:
        tile_rows, block = row_tile(width, ONE_BLOCK)
        with on(x):
            layernorm_forward_kernel[(triton.cdiv(num_rows, tile_rows),)](
                rows, added, gamma, beta, y, mean, rstd,
                num_rows, width, rows.stride(0), 0 if added is None else added.stride(0), float(eps), **dropping,
                ROWS=tile_rows, BLOCK=block, num_warps=row_warps(tile_rows * block),
            )  # fmt: skip
    cache = rows, added, gamma, mean, rstd, dropping, x.shape
    return y, cache if has_beta else (*cache, None)


def _backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor, Any]:
    """Gradients `(dx, dsublayer_out, dgamma, dbeta)`; dsublayer_out is dx itself if nothing was dropped."""
    rows, added, gamma, mean, rstd, dropping, shape, *no_beta = cache
    check_gradient("dy", dy, shape, rows.dtype, rows.device)
    dropped = dropping["threshold"] is not None
    dy_rows = rows_of(dy)
    num_rows, width = rows.shape
    dx = torch.empty(shape, dtype=dy.dtype, device=dy.device)
    dsublayer_out = torch.empty_like(dx) if dropped else dx
    if not num_rows:
        return dx, dsublayer_out, torch.zeros_like(gamma), None if no_beta else torch.zeros_like(gamma)
    if not fits(width):
        dgamma, dbeta = wide_backward(dy_rows, rows, gamma, mean, rstd, dx)
        return dx, dx, dgamma, None if no_beta else dbeta
    tile_rows, block = row_tile(width, ONE_BLOCK)
    tile = tile_rows * block
    programs = min(triton.cdiv(num_rows, tile_rows), programs_at_once(dy, tile))
    partials = torch.empty((2, programs, width), dtype=torch.float32, device=dy.device)
    with on(dy):
        layernorm_backward_kernel[(programs,)](
            dy_rows, rows, added, gamma, mean, rstd, dx, dsublayer_out if dropped else None, partials,
            num_rows, width, dy_rows.stride(0), rows.stride(0), 0 if added is None else added.stride(0), **dropping,
            ROWS=tile_rows, BLOCK=block, STAGES=3 if tile <= AT_ONCE else 2, num_warps=min(tile // 256, 16),
        )  # fmt: skip
    dgamma, dbeta = summed_partials(partials, gamma.dtype)
    return dx, dsublayer_out, dgamma, None if no_beta else dbeta
