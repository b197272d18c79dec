"""A small version of the convolutional encoder–decoder of Gehring et al. 2017 (ConvS2S).

It computes all positions at once, as the Transformer does, but each layer sees only K positions, its kernel's width:
two tokens that are n apart meet after about n / K layers, where attention needs one (Vaswani 2017, §4).
"""

from dataclasses import dataclass
from typing import ClassVar

from ...config import LARGEST, SMALLEST, positive, rate, require, whole
from ...layers import (
    PLAIN,
    AttendingConvolution,
    Context,
    InputEmbedding,
    Layer,
    LearnedPositions,
    ResidualConvolution,
    TokenEmbedding,
)
from ...layers.convolution import ROOT_HALF
from ...ops import Array, Ops
from ..config import TranslationConfig
from ..encoder_decoder import EncoderDecoder

Memory = tuple[Array, Array]
"""Keys (the encoder's output) and values (√½ times the sum of its output and its input), `(B, Ts, C)` each."""


@dataclass(frozen=True)
class ConvolutionalConfig(TranslationConfig):
    """The hyper-parameters of a convolutional model; `num_layers` in the encoder, and as many in the decoder.

    `kernel_width`, an odd number, is how many positions a convolution sees. Positions are learned, one table for the
    encoder and one for the decoder. `max_length` is the longest sequence in tokens, with its begin or end mark.
    `init_gain` scales the initial matrices and convolutions. Raises `ValueError` or `TypeError` for values that give no
    model.
    """

    kind: ClassVar[str] = "convolutional"

    vocab_size: int = whole()
    d_model: int = whole(256)
    num_layers: int = whole(4)
    kernel_width: int = whole(3)
    dropout: float = rate(0.1)
    max_length: int = whole(512)
    init_gain: float = positive(1.0, least=SMALLEST, most=LARGEST)
    pad_id: int = whole(0, least=0)
    bos_id: int = whole(1, least=0)
    eos_id: int = whole(2, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        odd = self.kernel_width % 2 == 1
        require(odd, f"kernel_width is {self.kernel_width}, expected an odd number: the encoder's has a middle")


class ConvolutionalEncoder(Layer):
    """Maps source ids to keys and values for the decoder. Source: Gehring et al. 2017, §3.1 to §3.3."""

    def __init__(self, ops: Ops, config: ConvolutionalConfig, tokens: TokenEmbedding) -> None:
        super().__init__(ops)
        self.embedding = _embedding(ops, config, tokens)
        options = {"dropout": config.dropout, "gain": config.init_gain}
        self.layers = [
            ResidualConvolution(ops, config.d_model, config.kernel_width, **options) for _ in range(config.num_layers)
        ]

    def forward(self, ids: Array, context: Context = PLAIN) -> tuple[Memory, tuple]:
        """ids `(B, Ts)`, with their mask → memory."""
        embedded, embedding_cache = self.embedding.forward(ids, context)
        x, caches = embedded, []
        for layer in self.layers:
            x, cache = layer.forward(x, context)
            caches.append(cache)
        return (x, (x + embedded) * ROOT_HALF), (embedding_cache, caches)

    def backward(self, dx: Memory, cache: tuple) -> None:
        """Add into the gradient of every parameter; ids have none."""
        embedding_cache, caches = cache
        dkeys, dvalues = dx
        dembedded = dvalues * ROOT_HALF  # values = √½ (x + embedded)
        dhidden = dkeys + dembedded
        for layer, layer_cache in zip(reversed(self.layers), reversed(caches), strict=True):
            dhidden = layer.backward(dhidden, layer_cache)
        self.embedding.backward(dhidden + dembedded, embedding_cache)


class ConvolutionalDecoder(Layer):
    """Maps target ids and the memory to one vector for each target token; every layer attends to the memory."""

    def __init__(self, ops: Ops, config: ConvolutionalConfig, tokens: TokenEmbedding) -> None:
        super().__init__(ops)
        self.embedding = _embedding(ops, config, tokens)
        options = {"dropout": config.dropout, "gain": config.init_gain}
        self.layers = [
            AttendingConvolution(ops, config.d_model, config.kernel_width, **options) for _ in range(config.num_layers)
        ]

    def forward(self, ids: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """ids `(B, Tt)`, with the memory → hidden `(B, Tt, C)`."""
        if context.cache is not None and context.memory is not None:
            context.cache.shared["memory"] = context.memory
        embedded, embedding_cache = self.embedding.forward(ids, context)
        x, caches = embedded, []
        for layer in self.layers:
            x, cache = layer.forward(x, embedded, context)
            caches.append(cache)
        return x, (embedding_cache, caches)

    def backward(self, dx: Array, cache: tuple) -> Memory:
        """Return dmemory, the sum over the layers; add into the gradient of every parameter."""
        embedding_cache, caches = cache
        dembedded, dkeys, dvalues = 0.0, 0.0, 0.0
        for layer, layer_cache in zip(reversed(self.layers), reversed(caches), strict=True):
            dx, dembedded_here, dkeys_here, dvalues_here = layer.backward(dx, layer_cache)
            dembedded, dkeys, dvalues = dembedded + dembedded_here, dkeys + dkeys_here, dvalues + dvalues_here
        self.embedding.backward(dx + dembedded, embedding_cache)
        return dkeys, dvalues


class ConvolutionalTranslator(EncoderDecoder[ConvolutionalConfig, ConvolutionalEncoder, ConvolutionalDecoder]):
    """A convolutional encoder–decoder over token ids, padded on the right: see `EncoderDecoder` for the rest."""

    def _stacks(self, ops: Ops) -> tuple[ConvolutionalEncoder, ConvolutionalDecoder]:
        parts = ops, self.config, self.tokens
        return ConvolutionalEncoder(*parts), ConvolutionalDecoder(*parts)


ConvolutionalConfig.model = ConvolutionalTranslator


def _embedding(ops: Ops, config: ConvolutionalConfig, tokens: TokenEmbedding) -> InputEmbedding:
    return InputEmbedding(ops, tokens, LearnedPositions(ops, config.max_length, config.d_model), config.dropout)
