"""Layer normalisation, alone and fused with the residual connection as the paper's Add & Norm."""

import numpy as np

from .arguments import check_floats, check_gradient, check_number, check_shape
from .arrays import Array, ones, quiet_products, row_sums
from .dropout import Dropout, dropout_backward, dropout_forward


def layernorm_forward(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, tuple]:
    """`y = gamma · (x − mean) / √(var + eps) + beta` over the last axis.

    x `(..., C)`, gamma and beta `(C,)`. The variance is the biased one (÷ C, not ÷ C − 1) and eps is inside the root.
    Raises `ValueError` for shapes that do not fit. Source: Ba, Kiros, Hinton 2016, eq. 4; Vaswani 2017, §3.1.
    """
    check_floats("x gamma beta", x, gamma, beta)
    return _layernorm(x, gamma, beta, eps)


def _layernorm(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, tuple]:
    shape = x.shape
    if not shape or not shape[-1]:
        raise ValueError(f"x has shape {shape}, expected (..., C) with C ≥ 1")
    check_shape("gamma", gamma, shape[-1:])
    check_shape("beta", beta, shape[-1:])
    check_number("eps", eps, at_least=0.0)
    width = shape[-1]
    centred = x - row_sums(x) / width
    squares = np.vecdot(centred, centred)  # (...): C · var
    rstd = np.sqrt(width / (squares + width * float(eps)))[..., None]  # 1 / √(var + eps)
    normed = np.multiply(centred, rstd, out=centred)  # (..., C): mean 0, variance 1
    y = normed * gamma
    y += beta
    return y, (normed, rstd, gamma)


@quiet_products
def layernorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dx, dgamma, dbeta)`.

    With `n = (x − mean) · rstd` and `dn = dy · gamma`: `dx = rstd · (dn − mean(dn) − n · mean(dn · n))`. y does not
    change where x moves along (1, …, 1), which the mean removes, nor (but for eps) along n, which the variance
    removes: dx has no part in these two directions, and the two means subtract it.
    """
    normed, rstd, gamma = cache
    check_gradient("dy", dy, normed)
    width = normed.shape[-1]
    rows_dy, rows_normed = dy.reshape(-1, width), normed.reshape(-1, width)
    sum_rows = ones(len(rows_dy), dy.dtype)
    dgamma = sum_rows @ (rows_dy * rows_normed)  # y = normed * gamma
    dbeta = sum_rows @ rows_dy  # y += beta
    dx = dy * gamma  # dn
    along_normed = np.vecdot(dx, normed)[..., None] / width
    dx -= row_sums(dx) / width
    dx -= normed * along_normed
    dx *= rstd
    return dx, dgamma, dbeta


def add_layernorm_forward(
    x: Array, sublayer_out: Array, gamma: Array, beta: Array, eps: float = 1e-5, dropout: Dropout | None = None
) -> tuple[Array, tuple]:
    """The paper's Add & Norm: `LayerNorm(x + Dropout(sublayer_out))`.

    x and sublayer_out `(..., C)`, gamma and beta `(C,)`. Source: Vaswani 2017, §3.1 and §5.4.
    """
    check_floats("x sublayer_out gamma beta", x, sublayer_out, gamma, beta)
    check_shape("sublayer_out", sublayer_out, x.shape)
    dropped, dropout_cache = (sublayer_out, None) if dropout is None else dropout_forward(sublayer_out, dropout)
    y, norm_cache = _layernorm(x + dropped, gamma, beta, eps)
    return y, (norm_cache, dropout_cache)


def add_layernorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array, Array]:
    """Gradients `(dx, dsublayer_out, dgamma, dbeta)`: the sum sends the same gradient down both of its branches."""
    norm_cache, dropout_cache = cache
    dx, dgamma, dbeta = layernorm_backward(dy, norm_cache)
    return dx, dropout_backward(dx, dropout_cache), dgamma, dbeta
