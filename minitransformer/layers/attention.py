"""Multi-head attention: of a sequence to itself, and of the decoder to the encoder's output.

`MultiHead(Q, K, V) = Concat(head₁, …, head_h) W^O` with `headᵢ = Attention(Q Wᵢ^Q, K Wᵢ^K, V Wᵢ^V)`: the projections
of all heads are one product, and the heads an axis of the array. Source: Vaswani 2017, §3.2.2 and §3.2.3.
"""

from ..ops import Array, Ops
from .dropout import DropoutStream, dropout_at
from .linear import Linear
from .parameter import Layer


def split_heads(x: Array, num_heads: int) -> Array:
    """`(B, T, H·D)` → `(B, H, T, D)`, a view."""
    batch, time, width = x.shape
    return x.reshape(batch, time, num_heads, width // num_heads).swapaxes(1, 2)


def merge_heads(x: Array) -> Array:
    """`(B, H, T, D)` → `(B, T, H·D)`: the concatenation of the heads."""
    batch, heads, time, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, time, heads * width)


class SelfAttention(Layer):
    """Every position attends to the positions of its own sequence.

    d_k is the width of a head's queries and keys, d_v that of its values. `causal`: to positions at or before it, in
    the decoder. `window`: to positions at distance ≤ window (Table 1's restricted self-attention).
    """

    def __init__(
        self,
        ops: Ops,
        d_model: int,
        num_heads: int,
        d_k: int,
        d_v: int,
        *,
        causal: bool = False,
        window: int | None = None,
        attention_dropout: float = 0.0,
        site: int = 0,
        gain: float = 1.0,
    ) -> None:
        super().__init__(ops)
        self.num_heads, self.d_k = num_heads, d_k
        self.causal, self.window = causal, window
        self.attention_dropout, self.site = attention_dropout, site
        # Paper: §3.2.2 has no biases here; they are kept so that the layer equals torch.nn.MultiheadAttention.
        self.query_key_value = Linear(ops, d_model, num_heads * d_k, num_heads * d_k, num_heads * d_v, gain=gain)
        self.output = Linear(ops, num_heads * d_v, d_model, gain=gain)

    def forward(
        self, x: Array, key_mask: Array | None = None, dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """x `(B, T, C)`, key_mask `(B, T)` with `True` = real → `(B, T, C)`."""
        query, key, value, project_cache = self._project(x)
        options = {"causal": self.causal, "window": self.window, "key_mask": key_mask}
        mixed, attention_cache = self.ops.attention.forward(
            query, key, value, **options, dropout=dropout_at(dropout, self.site, self.attention_dropout)
        )  # (B, H, T, Dv)
        out, output_cache = self.output.forward(merge_heads(mixed))  # (B, T, C)
        return out, (project_cache, attention_cache, output_cache, (query, key, options))

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Returns dx `(B, T, C)`; adds into the parameters' gradients."""
        project_cache, attention_cache, output_cache, _ = cache
        dmixed = split_heads(self.output.backward(dout, output_cache), self.num_heads)  # (B, H, T, Dv)
        gradients = self.ops.attention.backward(dmixed, attention_cache)  # dquery, dkey, dvalue
        dprojected = self.ops.concatenate([merge_heads(gradient) for gradient in gradients])  # (B, T, H(2·Dk + Dv))
        return self.query_key_value.backward(dprojected, project_cache)

    def step(self, x: Array, keys: Array, values: Array, position: int) -> Array:
        """One new position: x `(N, 1, C)` → `(N, 1, C)`.

        Its key and value are written at `position` of the caller's `keys (N, H, T, Dk)` and `values (N, H, T, Dv)`,
        whose earlier positions it attends to. Every key there lies at or before it, so causality needs no mask.
        """
        query, key, value, _ = self._project(x)
        keys[:, :, position : position + 1] = key
        values[:, :, position : position + 1] = value
        seen = slice(0, position + 1)
        mixed, _ = self.ops.attention.forward(query, keys[:, :, seen], values[:, :, seen], window=self.window)
        return self.output.forward(merge_heads(mixed))[0]

    def weights(self, cache: tuple) -> Array:
        """The softmax matrix `(B, H, T, T)` of a forward, from its cache."""
        query, key, options = cache[-1]
        return self.ops.attention_weights(query, key, **options)

    def _project(self, x: Array) -> tuple[Array, Array, Array, tuple]:
        projected, cache = self.query_key_value.forward(x)  # (B, T, H(2·Dk + Dv))
        width = self.num_heads * self.d_k
        parts = projected[..., :width], projected[..., width : 2 * width], projected[..., 2 * width :]
        query, key, value = (split_heads(part, self.num_heads) for part in parts)
        return query, key, value, cache


class CrossAttention(Layer):
    """Every position of the decoder attends to the encoder's output, the memory."""

    def __init__(
        self,
        ops: Ops,
        d_model: int,
        num_heads: int,
        d_k: int,
        d_v: int,
        *,
        attention_dropout: float = 0.0,
        site: int = 0,
        gain: float = 1.0,
    ) -> None:
        super().__init__(ops)
        self.num_heads, self.d_k = num_heads, d_k
        self.attention_dropout, self.site = attention_dropout, site
        self.query = Linear(ops, d_model, num_heads * d_k, gain=gain)
        self.key_value = Linear(ops, d_model, num_heads * d_k, num_heads * d_v, gain=gain)
        self.output = Linear(ops, num_heads * d_v, d_model, gain=gain)

    def forward(
        self, x: Array, memory: Array, key_mask: Array | None = None, dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """x `(B, Tq, C)`, memory `(B, Tk, C)`, key_mask `(B, Tk)` → `(B, Tq, C)`."""
        key, value, key_value_cache = self._project_memory(memory)
        query, query_cache = self.query.forward(x)
        query = split_heads(query, self.num_heads)  # (B, H, Tq, Dk)
        mixed, attention_cache = self.ops.attention.forward(
            query, key, value, key_mask=key_mask, dropout=dropout_at(dropout, self.site, self.attention_dropout)
        )  # (B, H, Tq, Dv)
        out, output_cache = self.output.forward(merge_heads(mixed))  # (B, Tq, C)
        return out, (key_value_cache, query_cache, attention_cache, output_cache, (query, key, key_mask))

    def backward(self, dout: Array, cache: tuple) -> tuple[Array, Array]:
        """Returns (dx `(B, Tq, C)`, dmemory `(B, Tk, C)`); adds into the parameters' gradients."""
        key_value_cache, query_cache, attention_cache, output_cache, _ = cache
        dmixed = split_heads(self.output.backward(dout, output_cache), self.num_heads)  # (B, H, Tq, Dv)
        dquery, dkey, dvalue = self.ops.attention.backward(dmixed, attention_cache)
        dx = self.query.backward(merge_heads(dquery), query_cache)
        dkey_value = self.ops.concatenate([merge_heads(dkey), merge_heads(dvalue)])  # (B, Tk, H(Dk + Dv))
        return dx, self.key_value.backward(dkey_value, key_value_cache)

    def keys_and_values(self, memory: Array) -> tuple[Array, Array]:
        """The memory's keys `(B, H, Tk, Dk)` and values `(B, H, Tk, Dv)`, the same at every step of a translation."""
        key, value, _ = self._project_memory(memory)
        return key, value

    def step(self, x: Array, keys: Array, values: Array, key_mask: Array | None) -> Array:
        """One new position of each of K beams: x `(B, K, C)` → `(B, K, C)`.

        The beams of a sentence are the queries of one attention, so its keys and values are not copied for each.
        """
        query = split_heads(self.query.forward(x)[0], self.num_heads)  # (B, H, K, Dk)
        mixed, _ = self.ops.attention.forward(query, keys, values, key_mask=key_mask)
        return self.output.forward(merge_heads(mixed))[0]

    def weights(self, cache: tuple) -> Array:
        """The softmax matrix `(B, H, Tq, Tk)` of a forward, from its cache."""
        query, key, key_mask = cache[-1]
        return self.ops.attention_weights(query, key, key_mask=key_mask)

    def _project_memory(self, memory: Array) -> tuple[Array, Array, tuple]:
        projected, cache = self.key_value.forward(memory)  # (B, Tk, H(Dk + Dv))
        width = self.num_heads * self.d_k
        key, value = (split_heads(part, self.num_heads) for part in (projected[..., :width], projected[..., width:]))
        return key, value, cache
