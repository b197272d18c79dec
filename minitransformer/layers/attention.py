"""Multi-head attention: of a sequence to itself, or of the decoder to the memory, which is the encoder's output.

`MultiHead(Q, K, V) = Concat(head₁, …, head_h) W^O` with `headᵢ = Attention(Q Wᵢ^Q, K Wᵢ^K, V Wᵢ^V)`: one product
computes the projections of all heads, and the heads are an axis of the array. Source: Vaswani 2017, §3.2.2 and §3.2.3.
"""

from dataclasses import dataclass
from typing import Literal

from ..config import Config, choice, flag, positive, rate, require, whole
from ..ops import Array, Ops
from .context import PLAIN, Context
from .linear import XAVIER, InitConfig, Linear
from .parameter import Layer
from .positions import BiasConfig, RelativeBias, Rotary, RotaryConfig
from .sparse import SparseConfig, bias_of


@dataclass(frozen=True)
class AttentionConfig(Config):
    """d_k is the width of a head's queries and keys, d_v of its values; `dropout` is the rate on the weights.

    `window` restricts self-attention to positions at this distance or less (Table 1); attention to the memory has none.
    `num_kv_heads` heads of keys and values serve all heads of queries (Ainslie et al. 2023; 1: Shazeer 2019). `scale`
    multiplies the scores, by default 1/√d_k; `softcap` c makes them c·tanh(scores/c) (Gemma 2). `rotary` and
    `relative` tell self-attention where tokens stand. `kind` "linear": Katharopoulos et al. 2020. `sparse` adds pairs
    outside the window.
    """

    num_heads: int = whole()
    d_k: int = whole()
    d_v: int = whole()
    window: int | None = whole(None, least=0)
    dropout: float = rate(0.0)
    num_kv_heads: int | None = whole(None)
    bias: bool = flag(True)
    scale: float | None = positive(None)
    softcap: float | None = positive(None)
    rotary: RotaryConfig | None = None
    relative: BiasConfig | None = None
    kind: Literal["softmax", "linear"] = choice("softmax", "linear", default="softmax")
    sparse: SparseConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.num_heads % self.kv_heads == 0
        require(fits, f"num_kv_heads is {self.num_kv_heads} and does not divide num_heads, {self.num_heads}")
        width = self.rotary.width or self.d_k if self.rotary else 0
        require(width <= self.d_k and width % 2 == 0, f"rotary positions turn {width} channels of heads of {self.d_k}")
        plain = self.window is self.scale is self.softcap is self.relative is self.sparse is None and self.dropout == 0
        require(plain or self.kind == "softmax", "linear attention has no window, scale, softcap, bias or dropout")
        near = (self.window, self.sparse.block, self.sparse.stride) if self.sparse else (0,)
        require(near != (None, None, None), "sparse attention needs a window, a block or a stride")

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    def num_parameters(self, d_model: int) -> int:
        """The number of weights and biases of the four projections, without a bias of the scores."""
        projected = self.num_heads * self.d_k + self.kv_heads * (self.d_k + self.d_v)
        return (d_model + self.bias) * projected + (self.num_heads * self.d_v + self.bias) * d_model


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

    With `causal`, in a decoder, it attends only to positions at or before it. `rotary` and `relative` are the layers
    that tell where tokens stand; all blocks of a stack share them. `backward` always returns two gradients, dx and
    dmemory; without `cross` dmemory is `None`.
    """

    def __init__(
        self,
        ops: Ops,
        d_model: int,
        config: AttentionConfig,
        *,
        causal: bool = False,
        cross: bool = False,
        init: InitConfig = XAVIER,
        rotary: Rotary | None = None,
        relative: RelativeBias | None = None,
    ) -> None:
        super().__init__(ops)
        require(
            not cross or config.kind == "softmax", "linear attention is that of a sequence to itself, not to a memory"
        )
        self.cross, self.causal, self.window = cross, causal, None if cross or config.sparse else config.window
        self.pattern = config.sparse.pattern(config.window) if config.sparse and not cross else None
        self.num_heads, self.kv_heads, self.rate = config.num_heads, config.kv_heads, config.dropout
        self.scale, self.softcap, self.linear = config.scale, config.softcap, config.kind == "linear"
        self.rotary, self.relative = rotary, relative
        self.query_width, self.key_width = config.num_heads * config.d_k, config.kv_heads * config.d_k
        widths = self.key_width, config.kv_heads * config.d_v
        options = {"gain": init.gain, "std": init.std, "bias": config.bias}
        # Whatever multiplies the scores, they start as large as with 1/√d_k: T5's queries are smaller instead.
        query_gain = 1.0 if config.scale is None else 1 / (config.scale * config.d_k**0.5)
        # Paper: §3.2.2 has no biases here; they are kept so that the layer equals torch.nn.MultiheadAttention.
        if cross:
            self.query = Linear(ops, d_model, self.query_width, first_gain=query_gain, **options)
            self.key_value = Linear(ops, d_model, *widths, **options)
        else:
            self.query_key_value = Linear(ops, d_model, self.query_width, *widths, first_gain=query_gain, **options)
        options["gain"] *= init.residual_gain
        self.output = Linear(ops, config.num_heads * config.d_v, d_model, **options)

    def forward(self, x: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """x `(B, Tq, C)` → `(B, Tq, C)`.

        With a cache x holds the positions after those in the cache, and its rows are beams, `(B·K, Tq, C)`. Each beam
        attends to its own past; all beams of a sentence are queries of one attention to the memory, so that the memory
        is not copied.
        """
        past, mask, turn_cache, bias_cache = context.cache, context.mask, None, None
        if self.cross:
            key_value_cache = None
            if past is None or self.name not in past.shared:
                projected, key_value_cache = self.key_value.forward(context.memory)  # (B, Tk, Hk(D + Dv))
                key = split_heads(projected[..., : self.key_width], self.kv_heads)
                value = split_heads(projected[..., self.key_width :], self.kv_heads)
                if past is not None:
                    past.shared[self.name] = key, value
            else:
                key, value = past.shared[self.name]
            beams = x.reshape(len(key), context.num_beams * x.shape[1], x.shape[2])  # (B, K·Tq, C)
            projected, query_cache = self.query.forward(beams)  # (B, K·Tq, H·D)
            query, project_cache = split_heads(projected, self.num_heads), (query_cache, key_value_cache)
            mask = context.memory_mask
        else:
            projected, project_cache = self.query_key_value.forward(x)  # (B, T, H·D + Hk(D + Dv))
            turning = self.query_width + self.key_width
            both = split_heads(projected[..., :turning], self.num_heads + self.kv_heads)  # (B, H + Hk, T, D)
            if self.rotary is not None:
                # φ is bent: turned by its place in the batch, a shorter text would get other products.
                alike = context.padding is None or not self.linear
                require(alike, "with rotary positions and linear attention, texts of one batch need the same length")
                both, turn_cache = self.rotary.forward(both, context.position)
            query, key = both[:, : self.num_heads], both[:, self.num_heads :]
            value = split_heads(projected[..., turning:], self.kv_heads)
            if past is not None and not self.linear:
                key, value = past.extended(self.name, key, value, self.window if self.causal else None)
            if past is not None and mask is not None:
                mask = mask[:, mask.shape[1] - key.shape[2] :]
        bias = None
        if self.relative is not None:
            bias, bias_cache = self.relative.forward(query.shape[2], key.shape[2])
        pattern = self.pattern
        if pattern is not None and context.padding is not None:
            hidden = bias_of(self.ops, pattern, query.shape[2], key.shape[2], context.padding, query.dtype)
            bias, pattern = hidden if bias is None else bias + hidden, None
        if self.linear and past is not None:
            before = past.rows.get(self.name, ())
            mixed, past.rows[self.name] = self.ops.linear_attention_step(query, key, value, *before, key_mask=mask)
            mix_cache = None
        elif self.linear:
            mixed, mix_cache = self.ops.linear_attention.forward(query, key, value, causal=self.causal, key_mask=mask)
        else:
            mixed, mix_cache = self.ops.attention.forward(
                query,
                key,
                value,
                bias,
                causal=self.causal,
                window=self.window,
                pattern=pattern,
                key_mask=mask,
                scale=self.scale,
                softcap=self.softcap,
                dropout=context.dropout_at(self.site, self.rate),
            )  # (B, H, Tq, Dv)
        out, output_cache = self.output.forward(merge_heads(mixed))
        return out.reshape(x.shape), (project_cache, turn_cache, bias_cache, mix_cache, output_cache)

    def backward(self, dout: Array, cache: tuple) -> tuple[Array, Array | None]:
        """Returns (dx `(B, Tq, C)`, dmemory `(B, Tk, C)` or `None`); adds into the parameters' gradients."""
        project_cache, turn_cache, bias_cache, mix_cache, output_cache = cache
        dmixed = split_heads(self.output.backward(dout, output_cache), self.num_heads)  # (B, H, Tq, Dv)
        pair = self.ops.linear_attention if self.linear else self.ops.attention
        dquery, dkey, dvalue, *dbias = pair.backward(dmixed, mix_cache)  # (B, H, Tq, D), (B, Hk, Tk, D), …
        if self.relative is not None:
            self.relative.backward(dbias[0], bias_cache)
        concatenate = self.ops.concatenate
        if self.cross:
            query_cache, key_value_cache = project_cache
            dx = self.query.backward(merge_heads(dquery), query_cache)
            return dx, self.key_value.backward(concatenate([merge_heads(dkey), merge_heads(dvalue)]), key_value_cache)
        parts = [dquery, dkey]
        if self.rotary is not None:
            parts = [self.rotary.backward(concatenate(parts, axis=1), turn_cache)]  # (B, H + Hk, T, D)
        dprojected = concatenate(list(map(merge_heads, (*parts, dvalue))))
        return self.query_key_value.backward(dprojected, project_cache), None
