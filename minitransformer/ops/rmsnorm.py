"""Root mean square normalisation, alone and fused with the residual connection."""

import numpy as np

from .arguments import Array, arguments, check_not_negative, gradient_of, has_products, unchecked
from .arrays import column_sums
from .dropout import Dropout, check_dropout, drop, drop_backward


@arguments("x ... C≥1, gamma C", eps=check_not_negative)
@has_products
def rmsnorm_forward(x: Array, gamma: Array, eps: float = 1e-6) -> tuple[Array, tuple]:
    """`y = gamma · x / √(mean(x²) + eps)` over the last axis: layer normalisation without the mean and without beta.

    Source: Zhang & Sennrich 2019, eq. 4. Paper: it has no eps; as everywhere since, eps is inside the root.
    """
    mean_square = np.vecdot(x, x)[..., None] / x.shape[-1]
    rstd = 1 / np.sqrt(mean_square + float(eps))  # (..., 1)
    normed = x * rstd  # (..., C): mean square 1
    return gamma * normed, (normed, rstd, gamma)


@gradient_of(lambda normed, rstd, gamma: normed)
@has_products
def rmsnorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array]:
    """Gradients `(dx, dgamma)`.

    With `n = x · rstd` and `dn = dy · gamma`: `dx = (dn − n · mean(dn · n)) · rstd`. y does not change (but for eps)
    when x moves along n, since the length is divided out: the mean subtracts this direction.
    """
    normed, rstd, gamma = cache
    dgamma = column_sums(dy * normed)  # y = gamma * normed
    dx = dy * gamma  # dn
    dx -= normed * (np.vecdot(dx, normed)[..., None] / len(gamma))
    dx *= rstd
    return dx, dgamma


normalise, normalise_backward = unchecked(rmsnorm_forward), unchecked(rmsnorm_backward)


@arguments("x ... C≥1, sublayer_out ... C, gamma C", eps=check_not_negative, dropout=check_dropout)
@has_products
def add_rmsnorm_forward(
    x: Array, sublayer_out: Array, gamma: Array, eps: float = 1e-6, dropout: Dropout | None = None
) -> tuple[Array, tuple]:
    """Add & Norm with this norm: `RMSNorm(x + Dropout(sublayer_out))`.

    It is for post-norm stacks. A pre-norm stack needs the sum itself as well: it adds, and then calls `rmsnorm`, which
    takes the same passes over the arrays here. Source: Vaswani 2017, §3.1 and §5.4; Zhang & Sennrich 2019.
    """
    dropped, dropout_cache = drop(sublayer_out, dropout)
    y, norm_cache = normalise(x + dropped, gamma, eps)
    return y, (norm_cache, dropout_cache)


@gradient_of(lambda norm_cache, dropout_cache: norm_cache[0])
@has_products
def add_rmsnorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dx, dsublayer_out, dgamma)`: the sum sends the same gradient down both of its branches."""
    norm_cache, dropout_cache = cache
    dx, dgamma = normalise_backward(dy, norm_cache)
    return dx, drop_backward(dx, dropout_cache), dgamma
