"""Normalisation with its parameters, alone and in a residual connection."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..config import SMALLEST, Config, choice, flag, positive
from ..ops import Array, Ops
from ..ops.initialize import constant
from .context import Context
from .parameter import Layer, Parameter

NormKind = Literal["layernorm", "rmsnorm", "rmsnorm1p"]
"""The normalisations that a configuration may name; 1p: the gain is 1 + gamma, and gamma starts at 0 (Gemma)."""

ExtraNorms = Literal["none", "heads", "outputs", "heads and outputs"]
"""Where a block normalises besides: queries and keys in each head (Qwen 3), each sub-layer's output (Gemma 2)."""


@dataclass(frozen=True)
class NormConfig(Config):
    """`first`: before each sub-layer (pre-norm), not after it as in the paper. `eps`: added to the variance.

    `kind`: the paper's layer normalisation, or RMS normalisation, which subtracts no mean and has no bias. `extra`:
    where there are more of them than the one of each sub-layer.
    """

    first: bool = flag(False)
    eps: float = positive(1e-5, least=SMALLEST, most=1)  # it should be small: the variance is about 1
    kind: NormKind = choice(*get_args(NormKind), default="layernorm")
    bias: bool = flag(True)
    extra: ExtraNorms = choice(*get_args(ExtraNorms), default="none")

    @property
    def has_beta(self) -> bool:
        """True if there is a bias: RMS normalisation has none."""
        return self.bias and self.kind == "layernorm"


class Norm(Layer):
    """`gamma · (x − mean) / √(var + eps) + beta` over the last axis, or `gamma · x / √(mean x² + eps)`.

    Source: Ba, Kiros, Hinton 2016, eq. 4; Zhang & Sennrich 2019, eq. 4.
    """

    def __init__(self, ops: Ops, d_model: int, config: NormConfig) -> None:
        super().__init__(ops)
        self.eps, self.rms, self.adds_one = config.eps, config.kind != "layernorm", config.kind == "rmsnorm1p"
        self.gamma = Parameter((d_model,), constant(0.0 if self.adds_one else 1.0), exact=True)
        self.beta = Parameter((d_model,), constant(0.0), exact=True) if config.has_beta else None

    @property
    def gain(self) -> Array:
        """The factor of each channel: gamma, or 1 + gamma. Both have the same gradient."""
        return self.gamma.value + 1 if self.adds_one else self.gamma.value

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C)` → `(..., C)`."""
        if self.rms:
            return self.ops.rmsnorm.forward(x, self.gain, self.eps)
        return self.ops.layernorm.forward(x, self.gamma.value, self.beta and self.beta.value, self.eps)

    def backward(self, dy: Array, cache: tuple) -> Array:
        """Return dx; add into the parameters' gradients."""
        pair = self.ops.rmsnorm if self.rms else self.ops.layernorm
        dx, dgamma, *dbeta = pair.backward(dy, cache)
        self.gamma.add_grad(dgamma)
        if self.beta:
            self.beta.add_grad(dbeta[0])
        return dx


class ResidualNorm(Norm):
    """The residual connection around a sub-layer, with its normalisation and the dropout on the sub-layer's output.

        post-norm, the paper's    y = norm(x + dropout(sublayer(x)))
        pre-norm                  y = x + dropout(sublayer(norm(x)))

    A block calls `enter`, the sub-layer and `leave`; going back it calls `leave_backward`, the sub-layer's backward and
    `enter_backward`. `forward` and `backward` are those of the normalisation alone.
    Source: Vaswani 2017, §3.1 and §5.4; pre-norm: Xiong et al. 2020.
    """

    def __init__(self, ops: Ops, d_model: int, config: NormConfig, dropout: float) -> None:
        super().__init__(ops, d_model, config)
        self.pre_norm, self.rate = config.first, dropout

    def enter(self, x: Array) -> tuple[Array, tuple | None]:
        """x `(..., C)` → the sub-layer's input: `x`, or `norm(x)` in pre-norm."""
        return self.forward(x) if self.pre_norm else (x, None)

    def leave(self, x: Array, sublayer_out: Array, context: Context) -> tuple[Array, Any]:
        """x and sublayer_out `(..., C)` → `norm(x + dropped)`, or `x + dropped` in pre-norm."""
        dropout = context.dropout_at(self.site, self.rate)
        if self.pre_norm:
            dropped, dropout_cache = self.ops.dropout.forward(sublayer_out, dropout)
            return x + dropped, dropout_cache
        if self.rms:
            return self.ops.add_rmsnorm.forward(x, sublayer_out, self.gain, self.eps, dropout)
        beta = self.beta and self.beta.value
        return self.ops.add_layernorm.forward(x, sublayer_out, self.gamma.value, beta, self.eps, dropout)

    def leave_backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        """Return dx, by the way past the sub-layer, and dsublayer_out."""
        if self.pre_norm:
            return dy, self.ops.dropout.backward(dy, cache)
        pair = self.ops.add_rmsnorm if self.rms else self.ops.add_layernorm
        dx, dsublayer_out, dgamma, *dbeta = pair.backward(dy, cache)
        self.gamma.add_grad(dgamma)
        if self.beta:
            self.beta.add_grad(dbeta[0])
        return dx, dsublayer_out

    def enter_backward(self, dy: Array, cache: Any) -> Array:
        """Return dx, by the way through the sub-layer."""
        return self.backward(dy, cache) if self.pre_norm else dy


class SandwichNorm(ResidualNorm):
    """A residual connection whose sub-layer's output is normalised before it is added. Source: Ding et al. 2021."""

    def __init__(self, ops: Ops, d_model: int, config: NormConfig, dropout: float) -> None:
        super().__init__(ops, d_model, config, dropout)
        self.of_output = Norm(ops, d_model, config)

    def leave(self, x: Array, sublayer_out: Array, context: Context) -> tuple[Array, tuple]:
        """x and sublayer_out `(..., C)` → what `ResidualNorm` makes of x and the normalised output."""
        normed, norm_cache = self.of_output.forward(sublayer_out)
        y, cache = super().leave(x, normed, context)
        return y, (norm_cache, cache)

    def leave_backward(self, dy: Array, cache: tuple) -> tuple[Array, Array]:
        """Return dx, by the way past the sub-layer, and dsublayer_out."""
        norm_cache, cache = cache
        dx, dnormed = super().leave_backward(dy, cache)
        return dx, self.of_output.backward(dnormed, norm_cache)
