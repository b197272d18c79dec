"""The encoder and the decoder: an input embedding and a stack of layers. Source: Vaswani 2017, §3.1."""

from collections.abc import Iterator

from ..layers import (
    DecoderLayer,
    DropoutStream,
    EncoderLayer,
    InputEmbedding,
    Layer,
    LayerNorm,
    LearnedPositions,
    SinusoidalPositions,
    TokenEmbedding,
)
from ..ops import Array, Ops
from .config import TransformerConfig
from .decoder_state import DecoderState

Positions = SinusoidalPositions | LearnedPositions


class Encoder(Layer):
    """Source ids to one vector for each token, the memory. Pre-norm stacks end with a layer normalisation."""

    def __init__(self, ops: Ops, config: TransformerConfig, positions: Positions, sites: Iterator[int]) -> None:
        super().__init__(ops)
        self.embedding = InputEmbedding(ops, positions, config.dropout, next(sites))
        self.layers = [EncoderLayer(ops, config.block(), sites) for _ in range(config.num_layers)]
        self.final_norm = LayerNorm(ops, config.d_model, config.layernorm_eps) if config.norm_first else None

    def forward(
        self, ids: Array, mask: Array, tokens: TokenEmbedding, dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """ids `(B, Ts)`, mask `(B, Ts)` with `True` = real → memory `(B, Ts, C)`."""
        x, embedding_cache = self.embedding.forward(ids, tokens, dropout)
        caches = []
        for layer in self.layers:
            x, cache = layer.forward(x, mask, dropout)
            caches.append(cache)
        x, norm_cache = self.final_norm.forward(x) if self.final_norm else (x, None)
        return x, (embedding_cache, caches, norm_cache)

    def backward(self, dmemory: Array, cache: tuple, tokens: TokenEmbedding) -> None:
        """Adds into the gradient of every parameter; ids have none."""
        embedding_cache, caches, norm_cache = cache
        dx = self.final_norm.backward(dmemory, norm_cache) if self.final_norm else dmemory
        for layer, layer_cache in zip(reversed(self.layers), reversed(caches), strict=True):
            dx = layer.backward(dx, layer_cache)
        self.embedding.backward(dx, embedding_cache, tokens)

    def weights(self, cache: tuple) -> list[Array]:
        """Each layer's attention weights `(B, H, Ts, Ts)` of a forward."""
        return [layer.weights(layer_cache) for layer, layer_cache in zip(self.layers, cache[1], strict=True)]


class Decoder(Layer):
    """Target ids and the memory to one vector for each target token."""

    def __init__(self, ops: Ops, config: TransformerConfig, positions: Positions, sites: Iterator[int]) -> None:
        super().__init__(ops)
        self.embedding = InputEmbedding(ops, positions, config.dropout, next(sites))
        self.layers = [DecoderLayer(ops, config.block(), sites) for _ in range(config.decoder_layers)]
        self.final_norm = LayerNorm(ops, config.d_model, config.layernorm_eps) if config.norm_first else None

    def forward(
        self, ids: Array, memory: Array, mask: Array, tokens: TokenEmbedding, dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """ids `(B, Tt)`, memory `(B, Ts, C)`, mask `(B, Ts)` → hidden `(B, Tt, C)`."""
        x, embedding_cache = self.embedding.forward(ids, tokens, dropout)
        caches = []
        for layer in self.layers:
            x, cache = layer.forward(x, memory, mask, dropout)
            caches.append(cache)
        x, norm_cache = self.final_norm.forward(x) if self.final_norm else (x, None)
        return x, (embedding_cache, caches, norm_cache)

    def backward(self, dhidden: Array, cache: tuple, tokens: TokenEmbedding) -> Array:
        """Returns dmemory `(B, Ts, C)`: every layer attends to the memory, so it is the sum over the layers."""
        embedding_cache, caches, norm_cache = cache
        dx = self.final_norm.backward(dhidden, norm_cache) if self.final_norm else dhidden
        dmemory = 0.0
        for layer, layer_cache in zip(reversed(self.layers), reversed(caches), strict=True):
            dx, dmemory_here = layer.backward(dx, layer_cache)
            dmemory = dmemory + dmemory_here
        self.embedding.backward(dx, embedding_cache, tokens)
        return dmemory

    def start(self, memory: Array, mask: Array, num_beams: int) -> DecoderState:
        """The state of a translation before its first token: the memory's keys and values, computed once."""
        memory_caches = [layer.cross_attention.keys_and_values(memory) for layer in self.layers]
        return DecoderState(self.ops, memory_caches, mask, num_beams)

    def step(self, ids: Array, state: DecoderState, tokens: TokenEmbedding) -> Array:
        """The newest token of each beam, ids `(B, K)` → hidden `(B, K, C)`; the state takes its keys and values."""
        x = self.embedding.step(ids, tokens, state.position)  # (B, K, C)
        for layer, self_cache, memory_cache in zip(self.layers, state.room(), state.memory_caches, strict=True):
            x = layer.step(x, self_cache, memory_cache, state.memory_mask, state.position)
        state.position += 1
        return self.final_norm.forward(x)[0] if self.final_norm else x

    def weights(self, cache: tuple) -> tuple[list[Array], list[Array]]:
        """Each layer's self-attention `(B, H, Tt, Tt)` and cross-attention `(B, H, Tt, Ts)` of a forward."""
        pairs = [layer.weights(layer_cache) for layer, layer_cache in zip(self.layers, cache[1], strict=True)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def make_positions(ops: Ops, config: TransformerConfig, dtype: str) -> tuple[Positions, Positions]:
    """The positions of the source and of the target: one table of sinusoids, or two that are learned apart."""
    if config.positions == "learned":
        source, target = (LearnedPositions(ops, config.max_length, config.d_model) for _ in range(2))
        return source, target
    shared = SinusoidalPositions(ops, config.max_length, config.d_model, dtype)
    return shared, shared
