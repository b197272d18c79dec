"""Gated convolutions over time, and the attention between them. Source: Gehring et al. 2017; Dauphin et al. 2017."""

import math

from ..ops import Array, Ops
from ..ops.initialize import constant, normal
from .context import PLAIN, Context
from .linear import Linear
from .parameter import Layer, Parameter

ROOT_HALF = math.sqrt(0.5)
"""A sum of two terms with equal variance, times this, has that variance again. Source: Gehring et al. 2017, §3.4."""


class GatedConvolution(Layer):
    """`(x ∗ W + b) ⊗ σ(x ∗ V + c)`: one half of a convolution's output decides how much of the other half passes.

    `causal`: it sees the position and those before it; else as many on either side. Dropout is on its input.
    Source: Dauphin et al. 2017, §2, eq. 1; Gehring et al. 2017, §3.2; initial values: ibid., §3.5.
    """

    def __init__(
        self,
        ops: Ops,
        width: int,
        kernel_width: int,
        *,
        causal: bool,
        dropout: float = 0.0,
        gain: float = 1.0,
    ) -> None:
        super().__init__(ops)
        self.width, self.kernel_width, self.causal, self.rate = width, kernel_width, causal, dropout
        # Paper: with weight normalisation, which is left out here.
        std = gain * math.sqrt(4 * (1 - dropout) / (kernel_width * width))
        self.weight = Parameter((kernel_width, width, 2 * width), normal(std))
        self.bias = Parameter((2 * width,), constant(0.0))

    def forward(self, x: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """x `(B, T, C)` → `(B, T, C)`. Where `context.mask` `(B, T)` is false there is padding, which counts as zeros.

        With a cache x comes after the K − 1 inputs that the cache holds, which are zeros at first.
        """
        x, dropout_cache = self.ops.dropout.forward(x, context.dropout_at(self.site, self.rate))
        real, padding = None, "causal" if self.causal else "same"
        if context.mask is not None:
            real = self.ops.cast(context.mask, x.dtype)[..., None]  # (B, T, 1)
            x = x * real
        if context.cache is not None:
            (past,) = context.cache.rows.get(self.name) or (self._zeros(x),)
            x, padding = self.ops.concatenate([past, x], axis=1), "valid"
            context.cache.rows[self.name] = (x[:, x.shape[1] - past.shape[1] :],)
        both, convolution_cache = self.ops.conv1d.forward(x, self.weight.value, self.bias.value, padding=padding)
        value = both[..., : self.width]  # both: (B, T, 2·C)
        gate, sigmoid_cache = self.ops.sigmoid.forward(both[..., self.width :])
        return value * gate, (dropout_cache, real, convolution_cache, (value, gate, sigmoid_cache))

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Return dx; add into the parameters' gradients."""
        dropout_cache, real, convolution_cache, (value, gate, sigmoid_cache) = cache
        dgate = self.ops.sigmoid.backward(dout * value, sigmoid_cache)  # out = value · gate
        dboth = self.ops.concatenate([dout * gate, dgate])  # (B, T, 2·C)
        dx, dweight, dbias = self.ops.conv1d.backward(dboth, convolution_cache)
        self.weight.add_grad(dweight)
        self.bias.add_grad(dbias)
        if real is not None:
            dx = dx * real
        return self.ops.dropout.backward(dx, dropout_cache)

    def _zeros(self, x: Array) -> Array:
        return self.ops.zeros((len(x), self.kernel_width - 1, self.width), x.dtype)


class ResidualConvolution(Layer):
    """An encoder layer: `√½ (x + GatedConvolution(x))`. Source: Gehring et al. 2017, §3.2 and §3.4."""

    def __init__(self, ops: Ops, width: int, kernel_width: int, *, dropout: float = 0.0, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.convolution = GatedConvolution(ops, width, kernel_width, causal=False, dropout=dropout, gain=gain)

    def forward(self, x: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """x `(B, T, C)` → `(B, T, C)`."""
        out, cache = self.convolution.forward(x, context)
        return (x + out) * ROOT_HALF, cache

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Return dx; add into the parameters' gradients."""
        dsum = dout * ROOT_HALF
        return dsum + self.convolution.backward(dsum, cache)


class StepAttention(Layer):
    """A decoder layer's attention: `√½ (h + Attention(√½ (h W + b + g), keys, values))`, g the embedded target.

    It has one head; its keys are the encoder's output itself, and keys and values are not projected.
    Paper: the scores are not scaled; here they are divided by √C as in the Transformer, because embeddings start at
    variance 1. Source: Gehring et al. 2017, §3.3.
    """

    def __init__(self, ops: Ops, width: int, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.query = Linear(ops, width, width, gain=gain)

    def forward(self, hidden: Array, embedded: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """hidden and embedded `(B, Tq, C)` → `(B, Tq, C)`; `context.memory` is keys and values `(B, Tk, C)`.

        With a cache the rows are beams, `(B·K, Tq, C)`: all beams of a sentence are queries of one attention, so that
        its keys and values are not copied.
        """
        keys, values = context.memory if context.cache is None else context.cache.shared["memory"]
        query, query_cache = self.query.forward(hidden)
        query = (query + embedded) * ROOT_HALF
        mixed, attention_cache = self.ops.attention.forward(
            query.reshape(len(keys), 1, context.num_beams * query.shape[1], query.shape[2]),
            keys[:, None],
            values[:, None],
            key_mask=context.memory_mask,
        )  # (B, 1, K·Tq, C)
        return (hidden + mixed.reshape(hidden.shape)) * ROOT_HALF, (query_cache, attention_cache)

    def backward(self, dout: Array, cache: tuple) -> tuple[Array, Array, Array, Array]:
        """Return (dhidden, dembedded, dkeys, dvalues); add into the parameters' gradients."""
        query_cache, attention_cache = cache
        dsum = dout * ROOT_HALF
        dquery, dkeys, dvalues = (
            gradient[:, 0] for gradient in self.ops.attention.backward(dsum[:, None], attention_cache)
        )
        dembedded = dquery * ROOT_HALF  # query = √½ (hidden W + b + embedded)
        return dsum + self.query.backward(dembedded, query_cache), dembedded, dkeys, dvalues


class AttendingConvolution(Layer):
    """A decoder layer: `√½ (x + StepAttention(GatedConvolution(x)))`, the convolution causal.

    Source: Gehring et al. 2017, §3.2 to §3.4.
    """

    def __init__(self, ops: Ops, width: int, kernel_width: int, *, dropout: float = 0.0, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.convolution = GatedConvolution(ops, width, kernel_width, causal=True, dropout=dropout, gain=gain)
        self.attention = StepAttention(ops, width, gain)

    def forward(self, x: Array, embedded: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """x and embedded `(B, Tq, C)` → `(B, Tq, C)`."""
        hidden, convolution_cache = self.convolution.forward(x, context)
        out, attention_cache = self.attention.forward(hidden, embedded, context)
        return (x + out) * ROOT_HALF, (convolution_cache, attention_cache)

    def backward(self, dout: Array, cache: tuple) -> tuple[Array, Array, Array, Array]:
        """Return (dx, dembedded, dkeys, dvalues); add into the parameters' gradients."""
        convolution_cache, attention_cache = cache
        dsum = dout * ROOT_HALF
        dhidden, dembedded, dkeys, dvalues = self.attention.backward(dsum, attention_cache)
        return dsum + self.convolution.backward(dhidden, convolution_cache), dembedded, dkeys, dvalues
