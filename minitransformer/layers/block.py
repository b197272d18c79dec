"""The block: encoders and decoders are stacks of it. Source: Vaswani 2017, §3.1 and figure 1."""

from dataclasses import dataclass

from ..config import Config, flag, rate, whole
from ..ops import Array, Ops
from .attention import AttentionConfig, CrossAttention, SelfAttention
from .context import PLAIN, Context
from .feed_forward import FeedForward, FeedForwardConfig
from .linear import XAVIER, InitConfig
from .linear_attention import LinearSelfAttention
from .norm import NormConfig, ResidualNorm, SandwichNorm
from .parameter import Layer
from .relative_positions import RelativeBias, Rotary


@dataclass(frozen=True)
class BlockConfig(Config):
    """A block of width d_model. `causal`: each position sees those at or before it; `cross`: it attends to the memory.

    `dropout` is the rate on each sub-layer's output; `init` says how matrices start.
    """

    attention: AttentionConfig
    feed_forward: FeedForwardConfig
    norm: NormConfig
    d_model: int = whole()
    causal: bool = flag(False)
    cross: bool = flag(False)
    dropout: float = rate(0.0)
    init: InitConfig = XAVIER


class Block(Layer):
    """Self-attention, attention to the memory where `config.cross`, then the feed-forward network, if there is one.

    Each of them stands in a residual connection with its normalisation: see `ResidualNorm` for the two orders.
    """

    def __init__(
        self, ops: Ops, config: BlockConfig, rotary: Rotary | None = None, relative: RelativeBias | None = None
    ) -> None:
        super().__init__(ops)
        width, attention, norm = config.d_model, config.attention, config.norm
        residual = SandwichNorm if "outputs" in norm.extra else ResidualNorm
        kind = SelfAttention if attention.kind == "softmax" else LinearSelfAttention
        self.self_attention = kind(
            *(ops, width, attention),
            causal=config.causal,
            init=config.init,
            rotary=rotary,
            relative=relative,
            head_norm=norm if "heads" in norm.extra else None,
        )
        self.self_attention_norm = residual(ops, width, norm, config.dropout)
        self.cross = config.cross
        if self.cross:
            self.cross_attention = CrossAttention(ops, width, attention, init=config.init)
            self.cross_attention_norm = residual(ops, width, norm, config.dropout)
        self.has_network = config.feed_forward.d_ff > 0
        if self.has_network:
            self.feed_forward = FeedForward(ops, width, config.feed_forward, config.init)
            self.feed_forward_norm = residual(ops, width, norm, config.dropout)

    def forward(self, x: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """x `(B, T, C)` → `(B, T, C)`."""
        h, enter_cache = self.self_attention_norm.enter(x)  # h goes through the sub-layer, x past it
        h, attention_cache = self.self_attention.forward(h, context)
        x, leave_cache = self.self_attention_norm.leave(x, h, context)
        self_caches, cross_caches, network_caches = (enter_cache, attention_cache, leave_cache), None, None

        if self.cross:
            h, enter_cache = self.cross_attention_norm.enter(x)
            h, attention_cache = self.cross_attention.forward(h, context)
            x, leave_cache = self.cross_attention_norm.leave(x, h, context)
            cross_caches = enter_cache, attention_cache, leave_cache

        if self.has_network:
            h, enter_cache = self.feed_forward_norm.enter(x)
            h, feed_forward_cache = self.feed_forward.forward(h)
            x, leave_cache = self.feed_forward_norm.leave(x, h, context)
            network_caches = enter_cache, feed_forward_cache, leave_cache
        return x, (self_caches, cross_caches, network_caches)

    def backward(self, dx: Array, cache: tuple) -> tuple[Array, Array | None]:
        """Return (dx, dmemory or `None`); add into the parameters' gradients."""
        self_caches, cross_caches, network_caches = cache
        dmemory = None

        if self.has_network:
            enter_cache, feed_forward_cache, leave_cache = network_caches
            dx, dh = self.feed_forward_norm.leave_backward(dx, leave_cache)
            dh = self.feed_forward.backward(dh, feed_forward_cache)
            dx = dx + self.feed_forward_norm.enter_backward(dh, enter_cache)  # the way past it + the way through it

        if self.cross:
            enter_cache, attention_cache, leave_cache = cross_caches
            dx, dh = self.cross_attention_norm.leave_backward(dx, leave_cache)
            dh, dmemory = self.cross_attention.backward(dh, attention_cache)
            dx = dx + self.cross_attention_norm.enter_backward(dh, enter_cache)

        enter_cache, attention_cache, leave_cache = self_caches
        dx, dh = self.self_attention_norm.leave_backward(dx, leave_cache)
        dh = self.self_attention.backward(dh, attention_cache)
        return dx + self.self_attention_norm.enter_backward(dh, enter_cache), dmemory
