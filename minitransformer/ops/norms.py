"""Layer normalisation and root mean square normalisation, alone and fused with the residual connection: Add & Norm."""

import numpy as np

from .arguments import Array, arguments, check_not_negative, gradient_of, unchecked
from .arrays import column_sums, row_means
from .dropout import Dropout, check_dropout, drop, drop_backward


@arguments("x ... C≥1, gamma C, beta? C", eps=check_not_negative, products=True)
def layernorm_forward(x: Array, gamma: Array, beta: Array | None, eps: float = 1e-5) -> tuple[Array, tuple]:
    """`y = gamma · (x − mean) / √(var + eps) + beta` over the last axis; a beta of `None` adds nothing.

    The variance is the biased one (÷ C, not ÷ C − 1) and eps is inside the root.
    Source: Ba, Kiros, Hinton 2016, eq. 4; Vaswani 2017, §3.1.
    """
    centred = x - row_means(x)
    variance = np.vecdot(centred, centred)[..., None] / x.shape[-1]
    rstd = 1 / np.sqrt(variance + float(eps))  # (..., 1)
    normed = np.multiply(centred, rstd, out=centred)  # (..., C): mean 0, variance 1
    y = gamma * normed
    if beta is None:
        return y, (normed, rstd, gamma, None)
    y += beta
    return y, (normed, rstd, gamma)  # lesson 07 gives these three to the backward


@gradient_of(lambda normed, *_: normed, products=True)
def layernorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array | None]:
    """Gradients `(dx, dgamma, dbeta)`.

    With `n = (x − mean) · rstd` and `dn = dy · gamma`: `dx = (dn − mean(dn) − n · mean(dn · n)) · rstd`. y does not
    change when x moves along (1, …, 1), since the mean is subtracted, or (but for eps) along n, since the standard
    deviation is divided out. So dx has no component in these two directions: the two means subtract it.
    """
    normed, rstd, gamma, *no_beta = cache
    dbeta = None if no_beta else column_sums(dy)  # y += beta
    dgamma = column_sums(dy * normed)  # y = gamma * normed
    dx = dy * gamma  # dn
    along_normed = np.vecdot(dx, normed)[..., None] / len(gamma)
    dx -= row_means(dx)
    dx -= normed * along_normed
    dx *= rstd
    return dx, dgamma, dbeta


layernorm, layernorm_gradient = unchecked(layernorm_forward), unchecked(layernorm_backward)


@arguments(
    "x ... C≥1, sublayer_out ... C, gamma C, beta? C", eps=check_not_negative, dropout=check_dropout, products=True
)
def add_layernorm_forward(
    x: Array, sublayer_out: Array, gamma: Array, beta: Array | None, eps: float = 1e-5, dropout: Dropout | None = None
) -> tuple[Array, tuple]:
    """The paper's Add & Norm: `LayerNorm(x + Dropout(sublayer_out))`. Source: Vaswani 2017, §3.1 and §5.4."""
    dropped, dropout_cache = drop(sublayer_out, dropout)
    y, norm_cache = layernorm(x + dropped, gamma, beta, eps)
    return y, (norm_cache, dropout_cache)


@gradient_of(lambda norm_cache, dropout_cache: norm_cache[0], products=True)
def add_layernorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array, Array | None]:
    """Gradients `(dx, dsublayer_out, dgamma, dbeta)`: the sum sends the same gradient down both of its branches."""
    norm_cache, dropout_cache = cache
    dx, dgamma, dbeta = layernorm_gradient(dy, norm_cache)
    return dx, drop_backward(dx, dropout_cache), dgamma, dbeta


@arguments("x ... C≥1, gamma C", eps=check_not_negative, products=True)
def rmsnorm_forward(x: Array, gamma: Array, eps: float = 1e-6) -> tuple[Array, tuple]:
    """`y = gamma · x / √(mean(x²) + eps)` over the last axis: layer normalisation without the mean and without beta.

    Source: Zhang & Sennrich 2019, eq. 4. Paper: it has no eps; as everywhere since, eps is inside the root.
    """
    mean_square = np.vecdot(x, x)[..., None] / x.shape[-1]
    rstd = 1 / np.sqrt(mean_square + float(eps))  # (..., 1)
    normed = x * rstd  # (..., C): mean square 1
    return gamma * normed, (normed, rstd, gamma)


@gradient_of(lambda normed, rstd, gamma: normed, products=True)
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


rmsnorm, rmsnorm_gradient = unchecked(rmsnorm_forward), unchecked(rmsnorm_backward)


@arguments("x ... C≥1, sublayer_out ... C, gamma C", eps=check_not_negative, dropout=check_dropout, products=True)
def add_rmsnorm_forward(
    x: Array, sublayer_out: Array, gamma: Array, eps: float = 1e-6, dropout: Dropout | None = None
) -> tuple[Array, tuple]:
    """Add & Norm with this norm: `RMSNorm(x + Dropout(sublayer_out))`.

    It is for post-norm stacks. A pre-norm stack needs the sum itself as well: it adds, and then calls `rmsnorm`, which
    takes the same passes over the arrays here. Source: Vaswani 2017, §3.1 and §5.4; Zhang & Sennrich 2019.
    """
    dropped, dropout_cache = drop(sublayer_out, dropout)
    y, norm_cache = rmsnorm(x + dropped, gamma, eps)
    return y, (norm_cache, dropout_cache)


@gradient_of(lambda norm_cache, dropout_cache: norm_cache[0], products=True)
def add_rmsnorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dx, dsublayer_out, dgamma)`: the sum sends the same gradient down both of its branches."""
    norm_cache, dropout_cache = cache
    dx, dgamma = rmsnorm_gradient(dy, norm_cache)
    return dx, drop_backward(dx, dropout_cache), dgamma
