"""LayerNorm, `y = gamma · (x − mean) / √(var + eps) + beta`, and Add & Norm, `LayerNorm(x + Dropout(sublayer_out))`.

Memory limits their speed. Passes over an array `(N, C)`:

    naive     `layernorm_naive`: the formula in PyTorch's operations. Mean, difference, square, mean, and the products
              and the sum with 1/std, gamma and beta: 7 reads and 5 writes, 12 passes
    sweeps    `layernorm_sweeps`, for rows of any width: a first sweep for mean and variance together, a second for y:
              2 reads, 1 write, 3 passes
    one pass  a row of up to `whole.ONE_BLOCK` channels stays in registers, in which the mean, then the centred squares
              and then y are computed: 1 read, 1 write, which is the least. All is float32, and the variance is that of
              the centred values, because mean(x²) − mean(x)² loses digits when the mean is large

    unfused   Add & Norm in three kernels, `add_layernorm_unfused`: dropout 1 + 1, the sum 2 + 1, LayerNorm 1 + 1:
              7 passes
    fused     x and sublayer_out are read, y is written: 3 passes. The mask is computed in between and not kept

For the backward the forward keeps only each row's mean and 1/std, since x and sublayer_out are kept already. The
backward reads them and dy, and writes dx and dsublayer_out: 5 passes; 4 without dropout, when the two gradients are
equal; 3 for LayerNorm alone. Keeping the sum instead would cost a write in the forward, in evaluation too, and save one
read here: no gain, and the sum would be rounded to the activations' type.
"""

import torch
from torch import Tensor

from minitransformer.ops import Dropout

from ..checks import check_place, kernel
from ..dropout import dropout_backward, dropout_forward
from ..launch import rows_of
from .whole import NO_DROPOUT, Normalised, dropping_of, fits, norm_backward, norm_forward
from .wide import wide_forward


@kernel
def layernorm_forward(x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float = 1e-5) -> tuple[Tensor, Normalised]:
    """`y = gamma · (x − mean) / √(var + eps) + beta` over the last axis.

    x `(..., C)`; gamma and beta `(C,)` in x's dtype or in float32; a beta of `None` adds nothing. The variance is the
    biased one and eps is inside the root. Raises `ValueError` for shapes that do not fit, and `TypeError` for dtypes
    that do not.
    Source: Ba, Kiros, Hinton 2016, eq. 4; Vaswani 2017, §3.1.
    """
    return norm_forward(x, None, gamma, beta, eps, NO_DROPOUT, centred=True)


@kernel
def layernorm_backward(dy: Tensor, cache: Normalised) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients `(dx, dgamma, dbeta)`.

    With `n = (x − mean) · rstd` and `dn = dy · gamma`: `dx = rstd · (dn − mean(dn) − n · mean(dn · n))`.
    """
    dx, _, dgamma, dbeta = norm_backward(dy, cache)
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
    """The paper's Add & Norm, `LayerNorm(x + Dropout(sublayer_out))`, in one kernel up to `ONE_BLOCK` channels.

    x and sublayer_out `(..., C)`, with at most four axes if something is dropped; gamma, beta and errors are as in
    `layernorm_forward`. Source: Vaswani 2017, §3.1 and §5.4.
    """
    if not fits(x.shape[-1]):
        return add_layernorm_unfused(x, sublayer_out, gamma, beta, eps, dropout)
    y, norm_cache = norm_forward(x, sublayer_out, gamma, beta, eps, dropping_of(dropout, x), centred=True)
    return y, (norm_cache, None)


@kernel
def add_layernorm_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients `(dx, dsublayer_out, dgamma, dbeta)`; the first two are one tensor if nothing was dropped."""
    norm_cache, dropout_cache = cache
    dx, dsublayer_out, dgamma, dbeta = norm_backward(dy, norm_cache)
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
    """Compute `add_layernorm_forward` in three kernels, the step before it; the backward is the same function."""
    check_place("sublayer_out", sublayer_out, x.shape, "x", x.device)
    dropped, dropout_cache = dropout_forward(sublayer_out, dropout)
    y, norm_cache = layernorm_forward(x + dropped, gamma, beta, eps)
    return y, (norm_cache, dropout_cache)


def layernorm_naive(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    """Compute `layernorm_forward`'s output in PyTorch's operations, each of one pass or more: the first step."""
    mean = x.mean(-1, keepdim=True)  # reads x; (..., 1)
    centred = x - mean  # reads x, writes
    squares = centred.square()  # reads, writes
    rstd = (squares.mean(-1, keepdim=True) + eps).rsqrt()  # reads; (..., 1)
    normed = centred * rstd  # reads, writes
    scaled = normed * gamma  # reads, writes
    return (scaled + beta).to(x.dtype)  # reads, writes


@kernel
def layernorm_sweeps(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    """Compute `layernorm_forward`'s output in two sweeps over each row, of any width: the step before one pass."""
    rows = rows_of(x)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty(len(rows), dtype=torch.float32, device=x.device) for _ in range(2))
    wide_forward(rows, gamma.contiguous(), beta.contiguous(), eps, y, mean, rstd)
    return y
