"""A stack of blocks over an input embedding: an encoder, or a decoder. Source: Vaswani 2017, §3.1."""

from dataclasses import dataclass
from typing import Literal

from ..config import Config, choice, require, whole
from ..ops import Array, Ops
from .block import Block, BlockConfig
from .context import PLAIN, Context
from .embedding import InputEmbedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from .norm import LayerNorm
from .parameter import Layer


@dataclass(frozen=True)
class StackConfig(Config):
    """`num_layers` blocks over at most `max_length` tokens with positions; pre-norm stacks end with a norm."""

    block: BlockConfig
    num_layers: int = whole()
    positions: Literal["sinusoidal", "learned"] = choice("sinusoidal", "learned", default="sinusoidal")
    max_length: int = whole(512)

    def __post_init__(self) -> None:
        super().__post_init__()
        width = self.block.d_model
        fits = self.positions == "learned" or width % 2 == 0
        require(fits, f"d_model is {width}: sinusoidal positions need an even width")

    def num_parameters(self) -> int:
        """The number of parameters, without the table of tokens, which belongs to the model."""
        width, norm = self.block.d_model, self.block.norm
        positions = self.max_length * width if self.positions == "learned" else 0
        final_norm = norm.num_parameters(width) if norm.first else 0
        return positions + self.num_layers * self.block.num_parameters() + final_norm


class Stack(Layer):
    """Maps token ids to one vector for each token. Stacks may share sinusoids; each has its own learned positions."""

    def __init__(
        self,
        ops: Ops,
        config: StackConfig,
        tokens: TokenEmbedding,
        dtype: str,
        positions: SinusoidalPositions | None = None,
    ) -> None:
        super().__init__(ops)
        width = config.block.d_model
        if config.positions == "learned":
            places = LearnedPositions(ops, config.max_length, width)
        else:
            places = positions or SinusoidalPositions(ops, config.max_length, width, dtype)
        self.embedding = InputEmbedding(ops, tokens, places, config.block.dropout)
        self.layers = [Block(ops, config.block) for _ in range(config.num_layers)]
        self.final_norm = LayerNorm(ops, width, config.block.norm) if config.block.norm.first else None

    def forward(self, ids: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """ids `(B, T)` → `(B, T, C)`."""
        x, embedding_cache = self.embedding.forward(ids, context)
        caches = []
        for block in self.layers:
            x, cache = block.forward(x, context)
            caches.append(cache)
        x, norm_cache = self.final_norm.forward(x) if self.final_norm else (x, None)
        return x, (embedding_cache, caches, norm_cache)

    def backward(self, dx: Array, cache: tuple) -> Array | None:
        """Returns dmemory `(B, Ts, C)`, the sum over the blocks, or `None`; adds into the parameters' gradients."""
        embedding_cache, caches, norm_cache = cache
        dx = self.final_norm.backward(dx, norm_cache) if self.final_norm else dx
        dmemory = None
        for block, block_cache in zip(reversed(self.layers), reversed(caches), strict=True):
            dx, here = block.backward(dx, block_cache)
            dmemory = here if dmemory is None else dmemory + here
        self.embedding.backward(dx, embedding_cache)
        return dmemory
