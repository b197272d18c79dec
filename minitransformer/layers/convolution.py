"""Gated convolutions over time, and the attention between them. Source: Gehring et al. 2017; Dauphin et al. 2017."""

import math

from ..ops import Array, Ops
from ..ops.initialize import constant, normal
from .dropout import DropoutStream, dropout_at
from .linear import Linear
from .parameter import Layer, Parameter

HALVED = math.sqrt(0.5)
"""Times a sum of two terms of like variance: it keeps that variance. Source: Gehring et al. 2017, §3.4."""


class GatedConvolution(Layer):
    """`(x ∗ W + b) ⊗ σ(x ∗ V + c)`: half of what a convolution puts out decides how much of the other half passes.

    `causal`: it sees the position and those before it; else as many on either side. Dropout is on its input.
    Source: Dauphin et al. 2017, §2, eq. 1; Gehring et al. 2017, §3.2; where it starts: ibid., §3.5.
    """

    def __init__(
        self,
        ops: Ops,
        width: int,
        kernel_width: int,
        *,
        causal: bool,
        dropout: float = 0.0,
        site: int = 0,
        gain: float = 1.0,
    ) -> None:
        super().__init__(ops)
        self.width, self.kernel_width, self.causal = width, kernel_width, causal
        self.rate, self.site = dropout, site
        # Paper: with weight normalisation, which is left out here.
        std = gain * math.sqrt(4 * (1 - dropout) / (kernel_width * width))
        self.weight = Parameter((kernel_width, width, 2 * width), normal(std))
        self.bias = Parameter((2 * width,), constant(0.0))

    def forward(self, x: Array, mask: Array | None = None, dropout: DropoutStream | None = None) -> tuple[Array, tuple]:
        """x `(B, T, C)`, mask `(B, T)` with `True` = real → `(B, T, C)`. What is masked is seen as zeros."""
        x, dropout_cache = self.ops.dropout.forward(x, dropout_at(dropout, self.site, self.rate))
        real = None
        if mask is not None:
            real = self.ops.cast(mask, x.dtype)[..., None]  # (B, T, 1)
            x = x * real
        both, convolution_cache = self.ops.conv1d.forward(
            x, self.weight.value, self.bias.value, padding="causal" if self.causal else "same"
        )  # (B, T, 2·C)
        out, gate_cache = self._gated(both)
        return out, (dropout_cache, real, convolution_cache, gate_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Returns dx; adds into the parameters' gradients."""
        dropout_cache, real, convolution_cache, (value, gate, sigmoid_cache) = cache
        dgate = self.ops.sigmoid.backward(dout * value, sigmoid_cache)  # out = value · gate
        dboth = self.ops.concatenate([dout * gate, dgate])  # (B, T, 2·C)
        dx, dweight, dbias = self.ops.conv1d.backward(dboth, convolution_cache)
        self.weight.grad += dweight
        self.bias.grad += dbias
        if real is not None:
            dx = dx * real
        return self.ops.dropout.backward(dx, dropout_cache)

    def step(self, x: Array, past: Array) -> tuple[Array, Array]:
        """One new position: x `(N, 1, C)` and the K − 1 inputs before it, past `(N, K − 1, C)` → (out, past)."""
        window = self.ops.concatenate([past, x], axis=1)  # (N, K, C)
        both, _ = self.ops.conv1d.forward(window, self.weight.value, self.bias.value, padding="valid")  # (N, 1, 2·C)
        return self._gated(both)[0], window[:, 1:]

    def _gated(self, both: Array) -> tuple[Array, tuple]:
        """The gated linear unit `value ⊗ σ(gate)`: `(…, 2·C)` → `(…, C)`."""
        value = both[..., : self.width]
        gate, sigmoid_cache = self.ops.sigmoid.forward(both[..., self.width :])
        return value * gate, (value, gate, sigmoid_cache)


class ResidualConvolution(Layer):
    """An encoder layer: `√½ (x + GatedConvolution(x))`. Source: Gehring et al. 2017, §3.2 and §3.4."""

    def __init__(
        self, ops: Ops, width: int, kernel_width: int, *, dropout: float = 0.0, site: int = 0, gain: float = 1.0
    ) -> None:
        super().__init__(ops)
        self.convolution = GatedConvolution(
            ops, width, kernel_width, causal=False, dropout=dropout, site=site, gain=gain
        )

    def forward(self, x: Array, mask: Array | None = None, dropout: DropoutStream | None = None) -> tuple[Array, tuple]:
        """x `(B, T, C)`, mask `(B, T)` → `(B, T, C)`."""
        out, cache = self.convolution.forward(x, mask, dropout)
        return (x + out) * HALVED, cache

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Returns dx; adds into the parameters' gradients."""
        dsum = dout * HALVED
        return dsum + self.convolution.backward(dsum, cache)


class StepAttention(Layer):
    """A decoder layer's attention: `√½ (h + Attention(√½ (h W + b + g), keys, values))`, g the embedded target.

    One head, and the encoder's output as it is for keys: no maps of keys and values. Paper: the scores are not scaled;
    here by 1/√C as the Transformer's, for embeddings that start at variance 1. Source: Gehring et al. 2017, §3.3.
    """

    def __init__(self, ops: Ops, width: int, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.query = Linear(ops, width, width, gain=gain)

    def forward(
        self, hidden: Array, embedded: Array, keys: Array, values: Array, key_mask: Array | None = None
    ) -> tuple[Array, tuple]:
        """hidden and embedded `(B, Tq, C)`, keys and values `(B, Tk, C)`, key_mask `(B, Tk)` → `(B, Tq, C)`."""
        query, query_cache = self.query.forward(hidden)
        query = (query + embedded) * HALVED
        context, attention_cache = self.ops.attention.forward(
            query[:, None], keys[:, None], values[:, None], key_mask=key_mask
        )  # (B, 1, Tq, C)
        return (hidden + context[:, 0]) * HALVED, (query_cache, attention_cache)

    def backward(self, dout: Array, cache: tuple) -> tuple[Array, Array, Array, Array]:
        """Returns (dhidden, dembedded, dkeys, dvalues); adds into the parameters' gradients."""
        query_cache, attention_cache = cache
        dsum = dout * HALVED
        dquery, dkeys, dvalues = (
            gradient[:, 0] for gradient in self.ops.attention.backward(dsum[:, None], attention_cache)
        )
        dembedded = dquery * HALVED  # query = √½ (hidden W + b + embedded)
        return dsum + self.query.backward(dembedded, query_cache), dembedded, dkeys, dvalues


class AttendingConvolution(Layer):
    """A decoder layer: `√½ (x + StepAttention(GatedConvolution(x)))`, the convolution causal.

    Source: Gehring et al. 2017, §3.2 to §3.4.
    """

    def __init__(
        self, ops: Ops, width: int, kernel_width: int, *, dropout: float = 0.0, site: int = 0, gain: float = 1.0
    ) -> None:
        super().__init__(ops)
        self.convolution = GatedConvolution(
            ops, width, kernel_width, causal=True, dropout=dropout, site=site, gain=gain
        )
        self.attention = StepAttention(ops, width, gain)

    def forward(
        self,
        x: Array,
        embedded: Array,
        keys: Array,
        values: Array,
        key_mask: Array | None = None,
        dropout: DropoutStream | None = None,
    ) -> tuple[Array, tuple]:
        """x and embedded `(B, Tq, C)`, keys and values `(B, Tk, C)`, key_mask `(B, Tk)` → `(B, Tq, C)`.

        Padding stands on the right, where causality already hides it from every real position: x needs no mask.
        """
        hidden, convolution_cache = self.convolution.forward(x, None, dropout)
        out, attention_cache = self.attention.forward(hidden, embedded, keys, values, key_mask)
        return (x + out) * HALVED, (convolution_cache, attention_cache)

    def backward(self, dout: Array, cache: tuple) -> tuple[Array, Array, Array, Array]:
        """Returns (dx, dembedded, dkeys, dvalues); adds into the parameters' gradients."""
        convolution_cache, attention_cache = cache
        dsum = dout * HALVED
        dhidden, dembedded, dkeys, dvalues = self.attention.backward(dsum, attention_cache)
        return dsum + self.convolution.backward(dhidden, convolution_cache), dembedded, dkeys, dvalues

    def step(
        self, x: Array, embedded: Array, past: Array, keys: Array, values: Array, key_mask: Array | None
    ) -> tuple[Array, Array]:
        """One new position of each of K beams: x and embedded `(B, K, C)`, past `(B·K, K_w − 1, C)` → (out, past)."""
        batch, beams, width = x.shape
        hidden, past = self.convolution.step(x.reshape(batch * beams, 1, width), past)
        hidden = hidden.reshape(batch, beams, width)
        # The beams of a sentence are the queries of one attention, so its keys and values are not copied for each.
        out, _ = self.attention.forward(hidden, embedded, keys, values, key_mask)
        return (x + out) * HALVED, past
