"""Multi-head attention: of a sequence to itself, or of the decoder to the memory, which is the encoder's output.

`MultiHead(Q, K, V) = Concat(head₁, …, head_h) W^O` with `headᵢ = Attention(Q Wᵢ^Q, K Wᵢ^K, V Wᵢ^V)`: one product
computes the projections of all heads, and the heads are an axis of the array. Source: Vaswani 2017, §3.2.2 and §3.2.3.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from ..config import Config, choice, positive, rate, require, whole
from ..ops import Array, Ops
from .context import PLAIN, Context
from .linear import XAVIER, InitConfig, Linear
from .norm import Norm, NormConfig
from .parameter import Layer
from .relative_positions import BiasConfig, RelativeBias, Rotary, RotaryConfig
from .sparse import SparseConfig

AttentionKind = Literal["softmax", "linear"]
"""The attentions that a configuration may name."""

AttentionBias = Literal[True, False, "inputs"]
"""The maps of attention that have a bias: all, none, or those of queries, keys and values alone (Qwen 2)."""


@dataclass(frozen=True)
class AttentionConfig(Config):
    """d_k is the width of a head's queries and keys, d_v of its values; `dropout` is the rate on the weights.

    `window` restricts self-attention to positions at this distance or less (Table 1); attention to the memory has none.
    `num_kv_heads` heads of keys and values serve all heads of queries (Ainslie et al. 2023; 1: Shazeer 2019). `scale`
    multiplies the scores, by default 1/√d_k; `softcap` c makes them c·tanh(scores/c) (Gemma 2). `rotary` and
    `relative` tell self-attention where tokens stand. `kind` "linear": Katharopoulos et al. 2020. `sparse` adds pairs
    outside the window, or layers that see all.
    """

    num_heads: int = whole()
    d_k: int = whole()
    d_v: int = whole()
    window: int | None = whole(None, least=0)
    dropout: float = rate(0.0)
    num_kv_heads: int | None = whole(None)
    bias: AttentionBias = choice(*get_args(AttentionBias), default=True)
    scale: float | None = positive(None)
    softcap: float | None = positive(None)
    rotary: RotaryConfig | None = None
    relative: BiasConfig | None = None
    kind: AttentionKind = choice(*get_args(AttentionKind), default="softmax")
    sparse: SparseConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.num_heads % self.kv_heads == 0
        require(fits, f"num_kv_heads is {self.num_kv_heads} and does not divide num_heads, {self.num_heads}")
        width = (self.rotary.width or self.d_k) if self.rotary else 0
        require(width <= self.d_k and width % 2 == 0, f"rotary positions turn {width} channels of heads of {self.d_k}")
        options = (self.window, self.scale, self.softcap, self.relative, self.sparse, self.dropout or None)
        plain = all(option is None for option in options)
        require(plain or self.kind == "softmax", "linear attention has no window, scale, softcap, bias or dropout")
        empty = self.sparse is not None and (self.window, self.sparse.block, self.sparse.stride) == (None, None, None)
        require(not empty, "sparse attention needs a window, a block or a stride")
        alike = self.sparse is None or self.sparse.full_every is None
        require(not (alike and self.rotary and self.rotary.full_theta), "full_theta belongs to sparse.full_every")

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    def of_layer(self, number: int) -> "AttentionConfig":
        """Return the attention of a stack's layer, counted from 0: every `sparse.full_every`-th layer sees all."""
        if self.sparse is None or self.sparse.full_every is None:
            return self
        if (number + 1) % self.sparse.full_every == 0:
            return replace(self, window=None, sparse=None, rotary=self.rotary and self.rotary.of_full_layers())
        sparse, rotary = replace(self.sparse, full_every=None), self.rotary and replace(self.rotary, full_theta=None)
        return replace(self, sparse=None if sparse == SparseConfig() else sparse, rotary=rotary)

    @property
    def output_width(self) -> int:
        """The width of all heads side by side."""
        return self.num_heads * self.d_v

    @property
    def query_gain(self) -> float:
        """The gain of the queries' initial weights: with any `scale`, scores start as large as with 1/√d_k."""
        return 1.0 if self.scale is None else 1 / (self.scale * self.d_k**0.5)


BLOCK = 128
"""The queries that attention on NumPy takes at a time where no backward follows."""


def split_heads(x: Array, num_heads: int) -> Array:
    """`(B, T, H·D)` → `(B, H, T, D)`, a view."""
    batch, time, width = x.shape
    return x.reshape(batch, time, num_heads, width // num_heads).swapaxes(1, 2)


def merge_heads(x: Array) -> Array:
    """`(B, H, T, D)` → `(B, T, H·D)`: the concatenation of the heads."""
    batch, heads, time, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, time, heads * width)


class Attention(Layer):
    """The base class of multi-head attention: its heads, and the layer `output`, W^O, which joins them.

    Paper: §3.2.2 has no biases; with them the layers equal torch.nn.MultiheadAttention.
    """

    output: Linear

    def __init__(self, ops: Ops, config: AttentionConfig) -> None:
        super().__init__(ops)
        self.num_heads, self.kv_heads, self.rate = config.num_heads, config.kv_heads, config.dropout
        self.query_width = config.num_heads * config.d_k
        self.key_width, self.value_width = config.kv_heads * config.d_k, config.kv_heads * config.d_v
        self.scale, self.softcap = config.scale, config.softcap


class SelfAttention(Attention):
    """Multi-head self-attention: all positions attend to all; with `causal`, in a decoder, none to later ones.

    `rotary` and `relative` are the layers that tell where tokens stand; all blocks of a stack share them. `head_norm`
    normalises each head's queries and keys before they are turned, so that no score can grow (Henry et al. 2020).
    """

    op = "attention"
    """The name of the op that `mix` calls; `LinearSelfAttention` has another one."""

    def __init__(
        self,
        ops: Ops,
        d_model: int,
        config: AttentionConfig,
        *,
        causal: bool = False,
        init: InitConfig = XAVIER,
        rotary: Rotary | None = None,
        relative: RelativeBias | None = None,
        head_norm: NormConfig | None = None,
    ) -> None:
        super().__init__(ops, config)
        self.causal, self.window = causal, None if config.sparse else config.window
        self.pattern = config.sparse.pattern(config.window) if config.sparse else None
        # The op takes the last query for the last position: a window on both sides has keys after it.
        self.has_blocks = (causal or self.window is None) and not ops.has_threads
        self.rotary, self.relative = rotary, relative
        widths, std = (self.query_width, self.key_width, self.value_width), init.std
        gains: dict[str, Any] = {"gain": init.gain, "first_gain": config.query_gain}
        options: dict[str, Any] = {"std": std, "bias": config.bias is not False, "parts": ("query", "key", "value")}
        self.query_key_value = Linear(ops, d_model, *widths, **gains, **options)
        gain, biased = init.gain * init.residual_gain, config.bias is True
        self.output = Linear(ops, config.output_width, d_model, gain=gain, std=std, bias=biased)
        self.head_norms = [Norm(ops, config.d_k, head_norm) for _ in "qk"] if head_norm else []

    def forward(self, x: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """x `(B, T, C)` → `(B, T, C)`. With a cache x holds the positions after those in the cache."""
        projected, project_cache = self.query_key_value.forward(x)  # (B, T, H·D + Hk(D + Dv))
        width, norm_caches, rotary_cache = self.query_width + self.key_width, None, None
        query_key = split_heads(projected[..., :width], self.num_heads + self.kv_heads)  # (B, H + Hk, T, D)
        value = split_heads(projected[..., width:], self.kv_heads)  # (B, Hk, T, Dv)
        if self.head_norms:
            query_key, norm_caches = self._normed(query_key)
        if self.rotary is not None:
            query_key, rotary_cache = self.rotary.forward(query_key, context.position)
        query, key = query_key[:, : self.num_heads], query_key[:, self.num_heads :]
        mixed, mix_cache = self.mix(query, key, value, context)  # (B, H, T, Dv)
        out, output_cache = self.output.forward(merge_heads(mixed))
        return out, (project_cache, norm_caches, rotary_cache, mix_cache, output_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Return dx `(B, T, C)`; add into the parameters' gradients."""
        project_cache, norm_caches, rotary_cache, (mix_cache, bias_cache), output_cache = cache
        dmixed = split_heads(self.output.backward(dout, output_cache), self.num_heads)  # (B, H, T, Dv)
        dquery, dkey, dvalue, *dbias = getattr(self.ops, self.op).backward(dmixed, mix_cache)  # (B, H, T, D), …
        if self.relative is not None:
            self.relative.backward(dbias[0], bias_cache)
        parts = [dquery, dkey]
        if self.rotary is not None:
            parts = [self.rotary.backward(self.ops.concatenate(parts, axis=1), rotary_cache)]  # (B, H + Hk, T, D)
        if self.head_norms:
            parts = self._normed_backward(parts, norm_caches)
        dprojected = self.ops.concatenate(list(map(merge_heads, (*parts, dvalue))))
        return self.query_key_value.backward(dprojected, project_cache)

    def _normed(self, query_key: Array) -> tuple[Array, list[tuple]]:
        """Normalise queries and keys `(B, H + Hk, T, D)`, each with their own norm."""
        parts = query_key[:, : self.num_heads], query_key[:, self.num_heads :]
        normed = [norm.forward(part) for norm, part in zip(self.head_norms, parts, strict=True)]
        return self.ops.concatenate([y for y, _ in normed], axis=1), [cache for _, cache in normed]

    def _normed_backward(self, dnormed: list[Array], caches: list[tuple]) -> list[Array]:
        """Return the gradients of queries and keys from those of the normalised ones, which rotation leaves as one."""
        if self.rotary is not None:
            dnormed = [dnormed[0][:, : self.num_heads], dnormed[0][:, self.num_heads :]]  # (B, H, T, D), (B, Hk, T, D)
        return [norm.backward(*each) for norm, *each in zip(self.head_norms, dnormed, caches, strict=True)]

    def mix(self, query: Array, key: Array, value: Array, context: Context) -> tuple[Array, tuple]:
        """Queries `(B, H, Tq, D)`, keys and values `(B, Hk, T, ·)` → the heads `(B, H, Tq, Dv)`."""
        mask, bias, pattern, bias_cache = context.mask, None, self.pattern, None
        if context.cache is not None:
            key, value = context.cache.extended(self.name, key, value, self.window if self.causal else None)
            mask = mask if mask is None else mask[:, mask.shape[1] - key.shape[2] :]  # a window's cache keeps the last
        if self.relative is not None:
            bias, bias_cache = self.relative.forward(query.shape[2], key.shape[2])
        if pattern is not None and context.padding is not None:  # padding shifts the pattern: a bias hides pairs
            hidden = pattern.bias(self.ops, query.shape[2], key.shape[2], context.padding, query.dtype)
            bias, pattern = hidden if bias is None else bias + hidden, None
        options = {"causal": self.causal, "window": self.window, "scale": self.scale, "softcap": self.softcap}
        options |= {"pattern": pattern, "key_mask": mask, "dropout": context.dropout_at(self.site, self.rate)}
        if self.has_blocks and query.shape[2] > BLOCK and bias is pattern is None and not context.keep:
            return self._in_blocks(query, key, value, options), ()
        mixed, cache = self.ops.attention.forward(query, key, value, bias, **options)
        return mixed, (cache, bias_cache)

    def _in_blocks(self, query: Array, key: Array, value: Array, options: dict[str, Any]) -> Array:
        """Return the heads from `BLOCK` queries at a time, each block with the keys that it may see."""
        mixed, num_queries, num_keys, mask = [], query.shape[2], key.shape[2], options["key_mask"]
        for start in range(0, num_queries, BLOCK):
            stop = min(start + BLOCK, num_queries)
            last = num_keys - num_queries + stop if self.causal else num_keys
            seen = slice(0 if self.window is None else max(0, last - (stop - start) - self.window), last)
            options["key_mask"] = mask if mask is None else mask[:, seen]
            block = query[:, :, start:stop], key[:, :, seen], value[:, :, seen]
            mixed.append(self.ops.attention.forward(*block, None, **options)[0])
        return self.ops.concatenate(mixed, axis=2)


class CrossAttention(Attention):
    """Multi-head attention of x to the memory, without a window: positions of two sequences have no distance."""

    def __init__(self, ops: Ops, d_model: int, config: AttentionConfig, *, init: InitConfig = XAVIER) -> None:
        super().__init__(ops, config)
        require(config.kind == "softmax", "linear attention is that of a sequence to itself, not to a memory")
        options: dict[str, Any] = {"std": init.std, "bias": config.bias is not False}
        self.query = Linear(ops, d_model, self.query_width, gain=init.gain, first_gain=config.query_gain, **options)
        widths, parts = (self.key_width, self.value_width), ("key", "value")
        self.key_value = Linear(ops, d_model, *widths, gain=init.gain, **options, parts=parts)
        options["bias"] = config.bias is True
        self.output = Linear(ops, config.output_width, d_model, gain=init.gain * init.residual_gain, **options)

    def forward(self, x: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """x `(B, Tq, C)` → `(B, Tq, C)`; in a beam search x has K rows for each of the memory's sentences.

        They are all queries of one attention: the memory's keys and values, which the cache keeps, are not copied.
        """
        cache, key_value_cache = context.cache, None
        kept = None if cache is None else cache.shared.get(self.name)
        if kept is None:
            projected, key_value_cache = self.key_value.forward(context.memory)  # (B, Tk, Hk(D + Dv))
            key = split_heads(projected[..., : self.key_width], self.kv_heads)
            kept = key, split_heads(projected[..., self.key_width :], self.kv_heads)
            if cache is not None:
                cache.shared[self.name] = kept
        (key, value), num_beams = kept, 1 if cache is None else cache.num_beams  # (B, Hk, Tk, D), (B, Hk, Tk, Dv)
        beams = x.reshape(len(key), num_beams * x.shape[1], x.shape[2])  # (B, K·Tq, C)
        projected, query_cache = self.query.forward(beams)  # (B, K·Tq, H·D)
        options = {"key_mask": context.memory_mask, "scale": self.scale, "softcap": self.softcap}
        dropout = context.dropout_at(self.site, self.rate)
        query = split_heads(projected, self.num_heads)
        mixed, mix_cache = self.ops.attention.forward(query, key, value, None, dropout=dropout, **options)
        out, output_cache = self.output.forward(merge_heads(mixed))
        return out.reshape(x.shape), (query_cache, key_value_cache, mix_cache, output_cache)

    def backward(self, dout: Array, cache: tuple) -> tuple[Array, Array]:
        """Return dx `(B, Tq, C)` and dmemory `(B, Tk, C)`; add into the parameters' gradients."""
        query_cache, key_value_cache, mix_cache, output_cache = cache
        dmixed = split_heads(self.output.backward(dout, output_cache), self.num_heads)  # (B, H, Tq, Dv)
        dquery, dkey, dvalue = self.ops.attention.backward(dmixed, mix_cache)  # (B, H, Tq, D), (B, Hk, Tk, ·)
        dx = self.query.backward(merge_heads(dquery), query_cache)
        dprojected = self.ops.concatenate([merge_heads(dkey), merge_heads(dvalue)])
        return dx, self.key_value.backward(dprojected, key_value_cache)
