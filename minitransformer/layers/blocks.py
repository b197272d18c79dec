"""The layers that the encoder and the decoder are stacks of. Source: Vaswani 2017, §3.1 and figure 1."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ..ops import Array, Ops
from .attention import CrossAttention, SelfAttention
from .dropout import DropoutStream
from .linear import FeedForward
from .norm import Residual
from .parameter import Layer


@dataclass(frozen=True)
class BlockConfig:
    """What an encoder or decoder layer needs to know of a model's configuration."""

    d_model: int
    num_heads: int
    d_k: int
    d_v: int
    d_ff: int
    dropout: float
    attention_dropout: float
    norm_first: bool
    window: int | None
    eps: float
    init_gain: float = 1.0


class EncoderLayer(Layer):
    """Self-attention, then the feed-forward network, each inside a residual connection.

    `sites` numbers the model's dropout sites.
    """

    def __init__(self, ops: Ops, config: BlockConfig, sites: Iterator[int]) -> None:
        super().__init__(ops)
        residual = _residuals(ops, config, sites)
        self.self_attention = _self_attention(ops, config, sites, causal=False)
        self.attention_residual = residual()
        self.feed_forward = FeedForward(ops, config.d_model, config.d_ff, config.init_gain)
        self.feed_forward_residual = residual()

    def forward(
        self, x: Array, key_mask: Array | None = None, dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """x `(B, T, C)`, key_mask `(B, T)` → `(B, T, C)`."""
        attend = partial(self.self_attention.forward, key_mask=key_mask, dropout=dropout)
        x, attention_cache = self.attention_residual.forward(x, attend, dropout)
        x, feed_forward_cache = self.feed_forward_residual.forward(x, self.feed_forward.forward, dropout)
        return x, (attention_cache, feed_forward_cache)

    def backward(self, dx: Array, cache: tuple) -> Array:
        """Returns dx; adds into the parameters' gradients."""
        attention_cache, feed_forward_cache = cache
        dx = self.feed_forward_residual.backward(dx, feed_forward_cache, self.feed_forward.backward)
        return self.attention_residual.backward(dx, attention_cache, self.self_attention.backward)

    def weights(self, cache: tuple) -> Array:
        """The attention weights `(B, H, T, T)` of a forward."""
        return self.self_attention.weights(self.attention_residual.sublayer_cache(cache[0]))


class DecoderLayer(Layer):
    """Masked self-attention, attention to the encoder's output, then the feed-forward network."""

    def __init__(self, ops: Ops, config: BlockConfig, sites: Iterator[int]) -> None:
        super().__init__(ops)
        residual = _residuals(ops, config, sites)
        self.self_attention = _self_attention(ops, config, sites, causal=True)
        self.self_attention_residual = residual()
        self.cross_attention = CrossAttention(
            ops,
            config.d_model,
            config.num_heads,
            config.d_k,
            config.d_v,
            attention_dropout=config.attention_dropout,
            site=next(sites),
            gain=config.init_gain,
        )
        self.cross_attention_residual = residual()
        self.feed_forward = FeedForward(ops, config.d_model, config.d_ff, config.init_gain)
        self.feed_forward_residual = residual()

    def forward(
        self, x: Array, memory: Array, memory_mask: Array | None = None, dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """x `(B, Tt, C)`, memory `(B, Ts, C)`, memory_mask `(B, Ts)` → `(B, Tt, C)`.

        Padding stands on the right, where causality already hides it from every real position: x needs no mask.
        """
        attend = partial(self.self_attention.forward, dropout=dropout)
        attend_memory = partial(self.cross_attention.forward, memory=memory, key_mask=memory_mask, dropout=dropout)
        x, self_cache = self.self_attention_residual.forward(x, attend, dropout)
        x, cross_cache = self.cross_attention_residual.forward(x, attend_memory, dropout)
        x, feed_forward_cache = self.feed_forward_residual.forward(x, self.feed_forward.forward, dropout)
        return x, (self_cache, cross_cache, feed_forward_cache)

    def backward(self, dx: Array, cache: tuple) -> tuple[Array, Array]:
        """Returns (dx `(B, Tt, C)`, dmemory `(B, Ts, C)`)."""
        self_cache, cross_cache, feed_forward_cache = cache
        dx = self.feed_forward_residual.backward(dx, feed_forward_cache, self.feed_forward.backward)
        dx, dmemory = self.cross_attention_residual.backward(dx, cross_cache, self.cross_attention.backward)
        dx = self.self_attention_residual.backward(dx, self_cache, self.self_attention.backward)
        return dx, dmemory

    def step(
        self,
        x: Array,
        self_cache: tuple[Array, Array],
        memory_cache: tuple[Array, Array],
        memory_mask: Array | None,
        position: int,
    ) -> Array:
        """One new position of each of K beams: x `(B, K, C)` → `(B, K, C)`.

        `self_cache` holds the keys and values `(B·K, H, T, D)` of the positions so far, and takes the new ones;
        `memory_cache` those of the encoder's output, `(B, H, Ts, D)`.
        """
        batch, beams, width = x.shape

        def attend(x: Array) -> tuple[Array, None]:
            alone = x.reshape(batch * beams, 1, width)  # every beam is a sequence of its own
            return self.self_attention.step(alone, *self_cache, position).reshape(batch, beams, width), None

        def attend_memory(x: Array) -> tuple[Array, None]:
            return self.cross_attention.step(x, *memory_cache, memory_mask), None

        x, _ = self.self_attention_residual.forward(x, attend)
        x, _ = self.cross_attention_residual.forward(x, attend_memory)
        return self.feed_forward_residual.forward(x, self.feed_forward.forward)[0]

    def weights(self, cache: tuple) -> tuple[Array, Array]:
        """The weights of self-attention `(B, H, Tt, Tt)` and of cross-attention `(B, H, Tt, Ts)` of a forward."""
        self_cache, cross_cache, _ = cache
        return (
            self.self_attention.weights(self.self_attention_residual.sublayer_cache(self_cache)),
            self.cross_attention.weights(self.cross_attention_residual.sublayer_cache(cross_cache)),
        )


def _self_attention(ops: Ops, config: BlockConfig, sites: Iterator[int], causal: bool) -> SelfAttention:
    return SelfAttention(
        ops,
        config.d_model,
        config.num_heads,
        config.d_k,
        config.d_v,
        causal=causal,
        window=config.window,
        attention_dropout=config.attention_dropout,
        site=next(sites),
        gain=config.init_gain,
    )


def _residuals(ops: Ops, config: BlockConfig, sites: Iterator[int]) -> Callable[[], Residual]:
    """Makes residual connections, each with a dropout site of its own."""

    def make() -> Residual:
        return Residual(
            ops,
            config.d_model,
            norm_first=config.norm_first,
            eps=config.eps,
            dropout=config.dropout,
            site=next(sites),
        )

    return make
