"""Multi-head attention: of a sequence to itself, or of the decoder to the memory, which is the encoder's output.

`MultiHead(Q, K, V) = Concat(head₁, …, head_h) W^O` with `headᵢ = Attention(Q Wᵢ^Q, K Wᵢ^K, V Wᵢ^V)`: one product
computes the projections of all heads, and the heads are an axis of the array. Source: Vaswani 2017, §3.2.2 and §3.2.3.
"""

from dataclasses import dataclass

from ..config import Config, rate, whole
from ..ops import Array, Ops
from .context import PLAIN, Context
from .linear import Linear
from .parameter import Layer


@dataclass(frozen=True)
class AttentionConfig(Config):
    """d_k is the width of a head's queries and keys, d_v of its values; `dropout` is the rate on the weights.

    `window` restricts self-attention to positions at this distance or less (Table 1); attention to the memory has none.
    """

    num_heads: int = whole()
    d_k: int = whole()
    d_v: int = whole()
    window: int | None = whole(None, least=0)
    dropout: float = rate(0.0)

    def num_parameters(self, d_model: int) -> int:
        """The number of weights and biases of the four projections."""
        projected = self.num_heads * (2 * self.d_k + self.d_v)
        return (d_model + 1) * projected + (self.num_heads * self.d_v + 1) * d_model


def split_heads(x: Array, num_heads: int) -> Array:
    """`(B, T, H·D)` → `(B, H, T, D)`, a view."""
    batch, time, width = x.shape
    return x.reshape(batch, time, num_heads, width // num_heads).swapaxes(1, 2)


def merge_heads(x: Array) -> Array:
    """`(B, H, T, D)` → `(B, T, H·D)`: the concatenation of the heads."""
    batch, heads, time, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, time, heads * width)


class Attention(Layer):
    """Every position of x attends to its own sequence or, with `cross`, to the memory.

    With `causal`, in a decoder, it attends only to positions at or before it. `backward` always returns two gradients,
    dx and dmemory; without `cross` dmemory is `None`.
    """

    def __init__(
        self,
        ops: Ops,
        d_model: int,
        config: AttentionConfig,
        *,
        causal: bool = False,
        cross: bool = False,
        gain: float = 1.0,
    ) -> None:
        super().__init__(ops)
        self.cross, self.causal, self.window = cross, causal, None if cross else config.window
        self.num_heads, self.rate = config.num_heads, config.dropout
        self.key_width, value_width = config.num_heads * config.d_k, config.num_heads * config.d_v
        # Paper: §3.2.2 has no biases here; they are kept so that the layer equals torch.nn.MultiheadAttention.
        if cross:
            self.query = Linear(ops, d_model, self.key_width, gain=gain)
            self.key_value = Linear(ops, d_model, self.key_width, value_width, gain=gain)
        else:
            self.query_key_value = Linear(ops, d_model, self.key_width, self.key_width, value_width, gain=gain)
        self.output = Linear(ops, value_width, d_model, gain=gain)

    def forward(self, x: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """x `(B, Tq, C)` → `(B, Tq, C)`.

        With a cache x holds the positions after those in the cache, and its rows are beams, `(B·K, Tq, C)`. Each beam
        attends to its own past; all beams of a sentence are queries of one attention to the memory, so that the memory
        is not copied.
        """
        heads, width, past = self.num_heads, self.key_width, context.cache
        if self.cross:
            key_value_cache = None
            if past is None or self.name not in past.shared:
                projected, key_value_cache = self.key_value.forward(context.memory)  # (B, Tk, H(D + Dv))
                key, value = split_heads(projected[..., :width], heads), split_heads(projected[..., width:], heads)
                if past is not None:
                    past.shared[self.name] = key, value
            else:
                key, value = past.shared[self.name]
            beams = x.reshape(len(key), context.num_beams * x.shape[1], x.shape[2])  # (B, K·Tq, C)
            projected, query_cache = self.query.forward(beams)  # (B, K·Tq, H·D)
            query, project_cache = split_heads(projected, heads), (query_cache, key_value_cache)
        else:
            projected, project_cache = self.query_key_value.forward(x)  # (B, T, H(2·D + Dv))
            query = split_heads(projected[..., :width], heads)
            key = split_heads(projected[..., width : 2 * width], heads)
            value = split_heads(projected[..., 2 * width :], heads)
            if past is not None:
                key, value = past.extended(self.name, key, value)
        mixed, attention_cache = self.ops.attention.forward(
            query,
            key,
            value,
            causal=self.causal,
            window=self.window,
            key_mask=context.memory_mask if self.cross else context.mask,
            dropout=context.dropout_at(self.site, self.rate),
        )  # (B, H, Tq, Dv)
        out, output_cache = self.output.forward(merge_heads(mixed))
        return out.reshape(x.shape), (project_cache, attention_cache, output_cache)

    def backward(self, dout: Array, cache: tuple) -> tuple[Array, Array | None]:
        """Returns (dx `(B, Tq, C)`, dmemory `(B, Tk, C)` or `None`); adds into the parameters' gradients."""
        project_cache, attention_cache, output_cache = cache
        dmixed = split_heads(self.output.backward(dout, output_cache), self.num_heads)  # (B, H, Tq, Dv)
        gradients = map(merge_heads, self.ops.attention.backward(dmixed, attention_cache))
        dquery, dkey, dvalue = gradients  # (B, Tq, H·D), (B, Tk, H·D), (B, Tk, H·Dv)
        if not self.cross:
            return self.query_key_value.backward(self.ops.concatenate([dquery, dkey, dvalue]), project_cache), None
        query_cache, key_value_cache = project_cache
        dx = self.query.backward(dquery, query_cache)
        return dx, self.key_value.backward(self.ops.concatenate([dkey, dvalue]), key_value_cache)
