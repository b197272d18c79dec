"""Layer normalisation with its parameters, and the residual connection that it stands in."""

from dataclasses import dataclass
from typing import Any

from ..config import SMALLEST, Config, flag, positive
from ..ops import Array, Ops
from ..ops.initialize import constant
from .context import Context
from .parameter import Layer, Parameter


@dataclass(frozen=True)
class NormConfig(Config):
    """`first`: before each sub-layer (pre-norm) instead of after it, as the paper has it. `eps`: inside the root."""

    first: bool = flag(False)
    eps: float = positive(1e-5, least=SMALLEST, most=1)  # it is to be small beside a variance of about 1

    def num_parameters(self, d_model: int) -> int:
        """gamma and beta."""
        return 2 * d_model


class LayerNorm(Layer):
    """`gamma · (x − mean) / √(var + eps) + beta` over the last axis."""

    def __init__(self, ops: Ops, d_model: int, config: NormConfig) -> None:
        super().__init__(ops)
        self.eps = config.eps
        self.gamma = Parameter((d_model,), constant(1.0), exact=True)
        self.beta = Parameter((d_model,), constant(0.0), exact=True)

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C)` → `(..., C)`."""
        return self.ops.layernorm.forward(x, self.gamma.value, self.beta.value, self.eps)

    def backward(self, dy: Array, cache: tuple) -> Array:
        """Returns dx; adds into the parameters' gradients."""
        dx, dgamma, dbeta = self.ops.layernorm.backward(dy, cache)
        self.gamma.grad += dgamma
        self.beta.grad += dbeta
        return dx


class ResidualNorm(LayerNorm):
    """The residual connection around a sub-layer, its normalisation and the dropout of what the sub-layer puts out.

        the paper's, post-norm    y = norm(x + dropout(sublayer(x)))
        pre-norm                  y = x + dropout(sublayer(norm(x)))

    A block calls `enter`, the sub-layer and `leave`, and backwards `leave_backward`, the sub-layer's backward and
    `enter_backward`; `forward` and `backward` are those of the normalisation alone.
    Source: Vaswani 2017, §3.1 and §5.4; pre-norm: Xiong et al. 2020.
    """

    def __init__(self, ops: Ops, d_model: int, config: NormConfig, dropout: float) -> None:
        super().__init__(ops, d_model, config)
        self.pre_norm, self.rate = config.first, dropout

    def enter(self, x: Array) -> tuple[Array, tuple | None]:
        """x `(..., C)` → what the sub-layer reads: `x`, or pre-norm `norm(x)`."""
        return self.forward(x) if self.pre_norm else (x, None)

    def leave(self, x: Array, sublayer_out: Array, context: Context) -> tuple[Array, tuple | None]:
        """x and sublayer_out `(..., C)` → `norm(x + dropped)`, or pre-norm `x + dropped`."""
        dropout = context.dropout_at(self.site, self.rate)
        if not self.pre_norm:
            return self.ops.add_layernorm.forward(x, sublayer_out, self.gamma.value, self.beta.value, self.eps, dropout)
        dropped, dropout_cache = self.ops.dropout.forward(sublayer_out, dropout)
        return x + dropped, dropout_cache

    def leave_backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        """Returns the gradients of x, on its way past the sub-layer, and of sublayer_out."""
        if self.pre_norm:
            return dy, self.ops.dropout.backward(dy, cache)
        dx, dsublayer_out, dgamma, dbeta = self.ops.add_layernorm.backward(dy, cache)
        self.gamma.grad += dgamma
        self.beta.grad += dbeta
        return dx, dsublayer_out

    def enter_backward(self, dy: Array, cache: Any) -> Array:
        """Returns the gradient of x, on its way through the sub-layer."""
        return self.backward(dy, cache) if self.pre_norm else dy
