"""The convolutional encoder–decoder of Gehring et al. 2017 (ConvS2S) in small: what the Transformer was raced against.

All positions at once, as in the Transformer, but each layer sees only its kernel's width: two tokens that are n apart
meet after about n / K layers, where attention needs one (Vaswani 2017, §4).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from ..layers import (
    AttendingConvolution,
    DropoutStream,
    InputEmbedding,
    Layer,
    LearnedPositions,
    ResidualConvolution,
    TokenEmbedding,
)
from ..layers.convolution import HALVED
from ..ops import Array, Ops
from .decoder_state import RowState
from .model import Model
from .model_config import ModelConfig, check_counts, check_positive, check_rates, check_special_tokens

ConvolutionT = TypeVar("ConvolutionT", ResidualConvolution, AttendingConvolution)

Memory = tuple[Array, Array]
"""Keys, which are the encoder's output, and values, its output and its input together: `(B, Ts, C)` each."""


@dataclass(frozen=True)
class ConvolutionalConfig(ModelConfig):
    """The hyper-parameters of a convolutional model; `num_layers` in the encoder, and as many in the decoder.

    `kernel_width`, an odd number, is how many positions a convolution sees. Positions are learned, one table on each
    side, and `max_length` is the longest sequence, in tokens with its begin or end mark. `init_gain` scales where
    matrices and convolutions start. Raises `ValueError` or `TypeError` for what can't be one.
    """

    kind: ClassVar[str] = "convolutional"

    vocab_size: int
    d_model: int = 256
    num_layers: int = 4
    kernel_width: int = 3
    dropout: float = 0.1
    max_length: int = 512
    init_gain: float = 1.0
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        check_counts(self, 1, "vocab_size", "d_model", "num_layers", "kernel_width", "max_length")
        if self.kernel_width % 2 == 0:
            raise ValueError(f"kernel_width is {self.kernel_width}, expected an odd number: the encoder's has a middle")
        check_rates(self, "dropout")
        check_positive(self, "init_gain")
        check_special_tokens(self)

    @property
    def num_layers_in_all(self) -> int:
        """Layers of the encoder and of the decoder."""
        return 2 * self.num_layers

    @property
    def num_parameters(self) -> int:
        """All that is learned: a layer's convolution has K·C·2C + 2C, a decoder layer also a query of C·C + C."""
        width = self.d_model
        convolution, query = (self.kernel_width * width + 1) * 2 * width, (width + 1) * width
        tables = (self.vocab_size + 2 * self.max_length) * width
        return tables + self.num_layers * (2 * convolution + query)


class ConvolutionalEncoder(Layer):
    """Source ids to keys and values for the decoder. Source: Gehring et al. 2017, §3.1 to §3.3."""

    def __init__(self, ops: Ops, config: ConvolutionalConfig, sites: Iterator[int]) -> None:
        super().__init__(ops)
        self.embedding = _embedding(ops, config, sites)
        self.layers = _layers(ResidualConvolution, ops, config, sites)

    def forward(
        self, ids: Array, mask: Array, tokens: TokenEmbedding, dropout: DropoutStream | None = None
    ) -> tuple[Memory, tuple]:
        """ids `(B, Ts)`, mask `(B, Ts)` with `True` = real → memory."""
        embedded, embedding_cache = self.embedding.forward(ids, tokens, dropout)
        x, caches = embedded, []
        for layer in self.layers:
            x, cache = layer.forward(x, mask, dropout)
            caches.append(cache)
        return (x, (x + embedded) * HALVED), (embedding_cache, caches)

    def backward(self, dmemory: Memory, cache: tuple, tokens: TokenEmbedding) -> None:
        """Adds into the gradient of every parameter; ids have none."""
        embedding_cache, caches = cache
        dkeys, dvalues = dmemory
        dembedded = dvalues * HALVED  # values = √½ (x + embedded)
        dx = dkeys + dembedded
        for layer, layer_cache in zip(reversed(self.layers), reversed(caches), strict=True):
            dx = layer.backward(dx, layer_cache)
        self.embedding.backward(dx + dembedded, embedding_cache, tokens)


class ConvolutionalDecoder(Layer):
    """Target ids and the memory to one vector for each target token; every layer attends to the memory."""

    def __init__(self, ops: Ops, config: ConvolutionalConfig, sites: Iterator[int]) -> None:
        super().__init__(ops)
        self.embedding = _embedding(ops, config, sites)
        self.layers = _layers(AttendingConvolution, ops, config, sites)

    def forward(
        self, ids: Array, memory: Memory, mask: Array, tokens: TokenEmbedding, dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """ids `(B, Tt)`, mask `(B, Ts)` of the source → hidden `(B, Tt, C)`."""
        embedded, embedding_cache = self.embedding.forward(ids, tokens, dropout)
        x, caches = embedded, []
        for layer in self.layers:
            x, cache = layer.forward(x, embedded, *memory, mask, dropout)
            caches.append(cache)
        return x, (embedding_cache, caches)

    def backward(self, dhidden: Array, cache: tuple, tokens: TokenEmbedding) -> Memory:
        """Returns dmemory, the sum over the layers, each of which attends to it."""
        embedding_cache, caches = cache
        dx, dembedded, dkeys, dvalues = dhidden, 0.0, 0.0, 0.0
        for layer, layer_cache in zip(reversed(self.layers), reversed(caches), strict=True):
            dx, dembedded_here, dkeys_here, dvalues_here = layer.backward(dx, layer_cache)
            dembedded, dkeys, dvalues = dembedded + dembedded_here, dkeys + dkeys_here, dvalues + dvalues_here
        self.embedding.backward(dx + dembedded, embedding_cache, tokens)
        return dkeys, dvalues

    def start(self, memory: Memory, mask: Array, num_beams: int) -> RowState:
        """The state of a translation before its first token: each layer's last K_w − 1 inputs, at first zeros."""
        keys, _ = memory
        past = [
            (self.ops.zeros((len(mask) * num_beams, conv.kernel_width - 1, conv.width), keys.dtype),)
            for conv in (layer.convolution for layer in self.layers)
        ]
        return RowState(self.ops, past, [memory], mask, num_beams)

    def step(self, ids: Array, state: RowState, tokens: TokenEmbedding) -> Array:
        """The newest token of each beam, ids `(B, K)` → hidden `(B, K, C)`; the state takes each layer's input."""
        x = embedded = self.embedding.step(ids, tokens, state.position)  # (B, K, C)
        for index, layer in enumerate(self.layers):
            (past,) = state.rows[index]
            x, past = layer.step(x, embedded, past, *state.memory_caches[0], state.memory_mask)
            state.rows[index] = (past,)
        state.position += 1
        return x


class ConvolutionalTranslator(Model[ConvolutionalConfig]):
    """A convolutional encoder–decoder over token ids `(B, T)`, padded on the right: see `Model` for the rest."""

    encoder: ConvolutionalEncoder
    decoder: ConvolutionalDecoder

    def _stacks(self, sites: Iterator[int]) -> tuple[ConvolutionalEncoder, ConvolutionalDecoder]:
        encoder = ConvolutionalEncoder(self.ops, self.config, sites)
        return encoder, ConvolutionalDecoder(self.ops, self.config, sites)


def _layers(
    kind: type[ConvolutionT], ops: Ops, config: ConvolutionalConfig, sites: Iterator[int]
) -> list[ConvolutionT]:
    """A stack's layers, each with a dropout site of its own."""
    width, options = config.d_model, {"dropout": config.dropout, "gain": config.init_gain}
    return [kind(ops, width, config.kernel_width, site=next(sites), **options) for _ in range(config.num_layers)]


def _embedding(ops: Ops, config: ConvolutionalConfig, sites: Iterator[int]) -> InputEmbedding:
    return InputEmbedding(ops, LearnedPositions(ops, config.max_length, config.d_model), config.dropout, next(sites))
