"""Layer normalisation and RMS normalisation, alone and as the paper's Add & Norm."""

from torch import Tensor

from minitransformer.ops import Dropout, Pair

from ..checks import check_gradient, declared
from .dropout import dropout_backward, dropout_forward
from .softmax import widened


@declared
def layernorm_forward(x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float = 1e-5) -> tuple[Tensor, tuple]:
    """`y = gamma · (x − mean) / √(var + eps) + beta` over the last axis of x `(..., C)`; the variance is biased."""
    centred = widened(x) - widened(x).mean(-1, keepdim=True)
    rstd = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()  # (..., 1)
    normed = centred * rstd
    y = normed * gamma if beta is None else normed * gamma + beta
    return y.to(x.dtype), (normed, rstd, gamma, beta is not None, x.dtype)


def layernorm_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients `(dx, dgamma, dbeta)`: `dx = rstd · (dn − mean(dn) − n · mean(dn · n))` with `dn = dy · gamma`."""
    normed, rstd, gamma, has_beta, dtype = cache
    check_gradient("dy", dy, normed.shape, dtype, normed.device)
    dy = widened(dy)
    dgamma = _over_rows(dy * normed)
    dbeta = _over_rows(dy).to(gamma.dtype) if has_beta else None
    dnormed = dy * gamma
    along = (dnormed * normed).mean(-1, keepdim=True)
    dx = (dnormed - dnormed.mean(-1, keepdim=True) - normed * along) * rstd
    return dx.to(dtype), dgamma.to(gamma.dtype), dbeta


def _over_rows(x: Tensor) -> Tensor:
    """Return the sum `(C,)` of the rows of x `(..., C)`."""
    return x.reshape(-1, x.shape[-1]).sum(0)


def add_layernorm_from(layernorm: Pair) -> Pair:
    """Make the paper's Add & Norm, `LayerNorm(x + Dropout(sublayer_out))`, of any layernorm pair.

    With it a whole model uses a layernorm kernel:
    `dataclasses.replace(ops, add_layernorm=add_layernorm_from(layernorm))`.
    """

    @declared
    def add_layernorm_forward(
        x: Tensor,
        sublayer_out: Tensor,
        gamma: Tensor,
        beta: Tensor | None,
        eps: float = 1e-5,
        dropout: Dropout | None = None,
    ) -> tuple[Tensor, tuple]:
        """`LayerNorm(x + Dropout(sublayer_out))`; x and sublayer_out `(..., C)`, gamma and beta `(C,)`."""
        dropped, dropout_cache = dropout_forward(sublayer_out, dropout)
        y, norm_cache = layernorm.forward(x + dropped, gamma, beta, eps)
        return y, (norm_cache, dropout_cache)

    def add_layernorm_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Gradients `(dx, dsublayer_out, dgamma, dbeta)`."""
        norm_cache, dropout_cache = cache
        dx, dgamma, dbeta = layernorm.backward(dy, norm_cache)
        return dx, dropout_backward(dx, dropout_cache), dgamma, dbeta

    return Pair(add_layernorm_forward, add_layernorm_backward)


add_layernorm = add_layernorm_from(Pair(layernorm_forward, layernorm_backward))
add_layernorm_forward, add_layernorm_backward = add_layernorm.forward, add_layernorm.backward


@declared
def rmsnorm_forward(x: Tensor, gamma: Tensor, eps: float = 1e-6) -> tuple[Tensor, tuple]:
    """`y = gamma · x / √(mean(x²) + eps)` over the last axis of x `(..., C)`."""
    rstd = (widened(x).square().mean(-1, keepdim=True) + eps).rsqrt()  # (..., 1)
    normed = widened(x) * rstd
    return (normed * gamma).to(x.dtype), (normed, rstd, gamma, x.dtype)


def rmsnorm_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor]:
    """Gradients `(dx, dgamma)`: `dx = rstd · (dn − n · mean(dn · n))` with `dn = dy · gamma`."""
    normed, rstd, gamma, dtype = cache
    check_gradient("dy", dy, normed.shape, dtype, normed.device)
    dy = widened(dy)
    dgamma = _over_rows(dy * normed)
    dnormed = dy * gamma
    dx = (dnormed - normed * (dnormed * normed).mean(-1, keepdim=True)) * rstd
    return dx.to(dtype), dgamma.to(gamma.dtype)


@declared
def add_rmsnorm_forward(
    x: Tensor, sublayer_out: Tensor, gamma: Tensor, eps: float = 1e-6, dropout: Dropout | None = None
) -> tuple[Tensor, tuple]:
    """`RMSNorm(x + Dropout(sublayer_out))`."""
    dropped, dropout_cache = dropout_forward(sublayer_out, dropout)
    y, norm_cache = rmsnorm_forward(x + dropped, gamma, eps)
    return y, (norm_cache, dropout_cache)


def add_rmsnorm_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients `(dx, dsublayer_out, dgamma)`."""
    norm_cache, dropout_cache = cache
    dx, dgamma = rmsnorm_backward(dy, norm_cache)
    return dx, dropout_backward(dx, dropout_cache), dgamma
