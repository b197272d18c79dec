"""Layer normalisation with its parameters, and the residual connection around every sub-layer."""

from collections.abc import Callable
from typing import Any

from ..ops import Array, Ops
from ..ops.initialize import constant
from .dropout import DropoutStream, dropout_at
from .parameter import Layer, Parameter


class LayerNorm(Layer):
    """`gamma · (x − mean) / √(var + eps) + beta` over the last axis."""

    def __init__(self, ops: Ops, d_model: int, eps: float) -> None:
        super().__init__(ops)
        self.eps = eps
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


class Residual(Layer):
    """The residual connection and layer normalisation around a sub-layer, with dropout on the sub-layer's output.

    Post-norm, as the paper prints it: `LayerNorm(x + Dropout(Sublayer(x)))`. Pre-norm (`norm_first`):
    `x + Dropout(Sublayer(LayerNorm(x)))`. `site` numbers this place for its dropout mask.
    Source: Vaswani 2017, §3.1 and §5.4; pre-norm: Xiong et al. 2020.
    """

    def __init__(self, ops: Ops, d_model: int, *, norm_first: bool, eps: float, dropout: float, site: int) -> None:
        super().__init__(ops)
        self.norm_first, self.rate, self.site = norm_first, dropout, site
        self.norm = LayerNorm(ops, d_model, eps)

    def forward(
        self, x: Array, sublayer: Callable[[Array], tuple[Array, Any]], dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """x `(..., C)` → `(..., C)`; `sublayer` maps an array to (output, cache)."""
        drop = dropout_at(dropout, self.site, self.rate)
        if self.norm_first:
            normed, norm_cache = self.norm.forward(x)
            out, sublayer_cache = sublayer(normed)
            out, dropout_cache = self.ops.dropout.forward(out, drop)
            return x + out, (sublayer_cache, norm_cache, dropout_cache)
        out, sublayer_cache = sublayer(x)
        norm = self.norm
        y, norm_cache = self.ops.add_layernorm.forward(x, out, norm.gamma.value, norm.beta.value, norm.eps, drop)
        return y, (sublayer_cache, norm_cache, None)

    def backward(self, dy: Array, cache: tuple, sublayer_backward: Callable[[Array, Any], Any]) -> Any:
        """Returns dx; where the sub-layer's backward returns a tuple, a tuple whose first is dx."""
        sublayer_cache, norm_cache, dropout_cache = cache
        if self.norm_first:
            dout = self.ops.dropout.backward(dy, dropout_cache)
            dnormed, *others = _as_tuple(sublayer_backward(dout, sublayer_cache))
            dx = dy + self.norm.backward(dnormed, norm_cache)
        else:
            dsum, dout, dgamma, dbeta = self.ops.add_layernorm.backward(dy, norm_cache)
            self.norm.gamma.grad += dgamma
            self.norm.beta.grad += dbeta
            dx, *others = _as_tuple(sublayer_backward(dout, sublayer_cache))
            dx = dx + dsum
        return (dx, *others) if others else dx

    @staticmethod
    def sublayer_cache(cache: tuple) -> Any:
        """The sub-layer's own cache, inside that of a forward."""
        return cache[0]


def _as_tuple(gradients: Any) -> tuple:
    return gradients if isinstance(gradients, tuple) else (gradients,)
