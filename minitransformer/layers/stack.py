"""A stack of blocks over an input embedding: an encoder, or a decoder. Source: Vaswani 2017, §3.1."""

from dataclasses import dataclass, replace
from typing import Literal

from ..config import Config, choice, flag, positive, require, whole
from ..ops import Array, Ops
from .block import Block, BlockConfig
from .context import PLAIN, Context
from .embedding import InputEmbedding, TokenEmbedding
from .norm import Norm
from .parameter import Layer
from .patches import PatchEmbedding
from .positions import LearnedPositions, SinusoidalPositions
from .relative_positions import RelativeBias, Rotary, RotaryConfig


@dataclass(frozen=True)
class StackConfig(Config):
    """`num_layers` blocks over at most `max_length` tokens with positions; pre-norm stacks end with a norm.

    `embedding_norm` normalises the input before its dropout, and `token_types` is the number of types of tokens, as in
    BERT. Learned positions and types start as N(0, embedding_std²), with 1/d_model for the variance unless it is given.
    `output_scale` multiplies what leaves the stack.
    """

    block: BlockConfig
    num_layers: int = whole()
    positions: Literal["sinusoidal", "sinusoidal_halves", "learned", "none"] = choice(
        "sinusoidal", "sinusoidal_halves", "learned", "none", default="sinusoidal"
    )
    max_length: int = whole(512)
    embedding_norm: bool = flag(False)
    token_types: int | None = whole(None)
    embedding_std: float | None = positive(None)
    output_scale: float = positive(1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        width = self.block.d_model
        fits = not self.positions.startswith("sinusoidal") or width % 2 == 0
        require(fits, f"d_model is {width}: sinusoidal positions need an even width")


class Stack(Layer):
    """Maps token ids, or images, to one vector for each token.

    Stacks may share sinusoids, not learned positions. All blocks share attention's rotary positions or relative bias.
    """

    def __init__(
        self,
        ops: Ops,
        config: StackConfig,
        tokens: TokenEmbedding | PatchEmbedding,
        dtype: str,
        positions: SinusoidalPositions | None = None,
    ) -> None:
        super().__init__(ops)
        block, length, std = config.block, config.max_length, config.embedding_std
        width, attention = block.d_model, block.attention
        places = None
        if config.positions.startswith("sinusoidal"):
            halves = config.positions == "sinusoidal_halves"
            places = positions or SinusoidalPositions(ops, length, width, dtype, halves)
        elif config.positions == "learned":
            places = LearnedPositions(ops, length, width, std)
        types = TokenEmbedding(ops, config.token_types, width, 1.0, std) if config.token_types else None
        norm = Norm(ops, width, block.norm) if config.embedding_norm else None
        self.embedding = InputEmbedding(ops, tokens, places, block.dropout, types, norm)
        relative = None
        if attention.relative:
            relative = RelativeBias(ops, attention.relative, attention.num_heads, block.causal, dtype, width**-0.5)
        attentions = [attention.of_layer(i) for i in range(config.num_layers)]
        rotary: dict[RotaryConfig | None, Rotary] = {}
        for each in {a.rotary for a in attentions if a.rotary}:
            rotary[each] = Rotary(ops, each, attention.d_k, length, dtype)
        self.layers = [
            Block(ops, replace(block, attention=each), rotary.get(each.rotary), relative) for each in attentions
        ]
        self.final_norm = Norm(ops, width, block.norm) if block.norm.first else None
        self.output_scale = config.output_scale

    def forward(self, ids: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """ids `(B, T)` → `(B, T, C)`."""
        x, embedding_cache = self.embedding.forward(ids, context)
        caches = []
        for block in self.layers:
            x, cache = block.forward(x, context)
            caches.append(cache if context.keep else None)
            del cache  # what a block has computed would otherwise stay while the next one computes
        x, norm_cache = self.final_norm.forward(x) if self.final_norm else (x, None)
        return (x if self.output_scale == 1 else x * self.output_scale), (embedding_cache, caches, norm_cache)

    def backward(self, dx: Array, cache: tuple) -> Array | None:
        """Return dmemory `(B, Ts, C)`, the sum over the blocks, or `None`; add into the parameters' gradients."""
        embedding_cache, caches, norm_cache = cache
        dx = dx if self.output_scale == 1 else dx * self.output_scale
        dx = self.final_norm.backward(dx, norm_cache) if self.final_norm else dx
        dmemory = None
        for block, block_cache in zip(reversed(self.layers), reversed(caches), strict=True):
            dx, here = block.backward(dx, block_cache)
            dmemory = here if dmemory is None else dmemory + here
        self.embedding.backward(dx, embedding_cache)
        return dmemory
