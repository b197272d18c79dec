"""RMSNorm, `y = gamma · x / √(mean(x²) + eps)`, and Add & Norm with it, `RMSNorm(x + Dropout(sublayer_out))`.

Memory limits their speed. Passes over an array `(N, C)`:

    naive     `rmsnorm_naive`: the formula in PyTorch's operations. Square, mean, and the products with 1/rms and gamma:
              4 reads and 3 writes, 7 passes
    one pass  LayerNorm's kernel (`whole`) without a mean and without beta: 1 read, 1 write, which is the least, and one
              sum over a row instead of two

    fused     Add & Norm reads x and sublayer_out and writes y: 3 passes instead of 7 in three kernels, as LayerNorm's

The forward keeps one number a row, 1/rms. The backward reads x and dy, and sublayer_out if there is one, and writes dx:
3 passes, 4 for Add & Norm, 5 with dropout. Through PyTorch's operations autograd takes 24.
"""

from torch import Tensor

from minitransformer.ops import Dropout

from ..checks import check_place, kernel
from ..dropout import dropout_backward, dropout_forward
from .whole import NO_DROPOUT, Normalised, dropping_of, fits, norm_backward, norm_forward


@kernel
def rmsnorm_forward(x: Tensor, gamma: Tensor, eps: float = 1e-6) -> tuple[Tensor, Normalised]:
    """`y = gamma · x / √(mean(x²) + eps)` over the last axis.

    x `(..., C)`; gamma `(C,)` in x's dtype or in float32; eps is inside the root. Raises `ValueError` for shapes that
    do not fit, and `TypeError` for dtypes that do not. Source: Zhang & Sennrich 2019, eq. 4.
    """
    return norm_forward(x, None, gamma, None, eps, NO_DROPOUT, centred=False)


@kernel
def rmsnorm_backward(dy: Tensor, cache: Normalised) -> tuple[Tensor, Tensor]:
    """Gradients `(dx, dgamma)`: with `n = x · rstd` and `dn = dy · gamma`, `dx = rstd · (dn − n · mean(dn · n))`."""
    dx, _, dgamma, _ = norm_backward(dy, cache)
    return dx, dgamma


@kernel
def add_rmsnorm_forward(
    x: Tensor, sublayer_out: Tensor, gamma: Tensor, eps: float = 1e-6, dropout: Dropout | None = None
) -> tuple[Tensor, tuple]:
    """`RMSNorm(x + Dropout(sublayer_out))`, in one kernel up to `whole.ONE_BLOCK` channels.

    x and sublayer_out `(..., C)`, with at most four axes if something is dropped; gamma and errors are as in
    `rmsnorm_forward`. Source: Vaswani 2017, §3.1 and §5.4; Zhang & Sennrich 2019.
    """
    if not fits(x.shape[-1]):
        return add_rmsnorm_unfused(x, sublayer_out, gamma, eps, dropout)
    y, norm_cache = norm_forward(x, sublayer_out, gamma, None, eps, dropping_of(dropout, x), centred=False)
    return y, (norm_cache, None)


@kernel
def add_rmsnorm_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients `(dx, dsublayer_out, dgamma)`; the first two are one tensor if nothing was dropped."""
    norm_cache, dropout_cache = cache
    dx, dsublayer_out, dgamma, _ = norm_backward(dy, norm_cache)
    return dx, dropout_backward(dsublayer_out, dropout_cache), dgamma


@kernel
def add_rmsnorm_unfused(
    x: Tensor, sublayer_out: Tensor, gamma: Tensor, eps: float = 1e-6, dropout: Dropout | None = None
) -> tuple[Tensor, tuple]:
    """Compute `add_rmsnorm_forward` in three kernels, the step before it; the backward is the same function."""
    check_place("sublayer_out", sublayer_out, x.shape, "x", x.device)
    dropped, dropout_cache = dropout_forward(sublayer_out, dropout)
    y, norm_cache = rmsnorm_forward(x + dropped, gamma, eps)
    return y, (norm_cache, dropout_cache)


def rmsnorm_naive(x: Tensor, gamma: Tensor, eps: float = 1e-6) -> Tensor:
    """Compute `rmsnorm_forward`'s output in PyTorch's operations, each of one pass or more: the first step."""
    squares = x.square()  # reads x, writes
    rstd = (squares.mean(-1, keepdim=True) + eps).rsqrt()  # reads; (..., 1)
    normed = x * rstd  # reads x, writes
    return (normed * gamma).to(x.dtype)  # reads, writes
