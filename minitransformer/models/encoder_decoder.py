"""Encoder–decoders: a model reads a source, makes a memory of it, and writes a target that attends to the memory."""

from abc import abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from ..layers import IGNORED, Cache, Context, DropoutStream, OutputLayer, Parameter, TokenEmbedding
from ..ops import Array, Ops, without_spurious_warnings
from ..ops.initialize import constant
from .config import TranslationConfig
from .decoding import Decoding
from .model import Model

MANY_ROWS = 16
"""From this many beams of all sentences on, decoding copies the table of the output layer: fewer don't repay it."""


class Coder(Protocol):
    """An encoder, which makes the memory of source ids, or a decoder, which makes vectors of target ids and memory."""

    def forward(self, ids: Array, context: Context) -> tuple[Any, tuple]:
        """ids `(B, T)`, with their mask or the memory in the context → (memory or hidden `(B, T, C)`, cache)."""
        ...

    def backward(self, dx: Any, cache: tuple) -> Any:
        """Return the gradient of the memory, in a decoder; add into the gradient of every parameter."""
        ...


ConfigT = TypeVar("ConfigT", bound=TranslationConfig)
EncoderT = TypeVar("EncoderT", bound=Coder)
DecoderT = TypeVar("DecoderT", bound=Coder)


class EncoderDecoder(Model[ConfigT], Generic[ConfigT, EncoderT, DecoderT]):
    """A model with an encoder, a decoder and one table of tokens for source, target and output layer.

    Where the configuration is not `tied`, the output layer has a table of its own.
    """

    encoder: EncoderT
    decoder: DecoderT

    def _build(self, ops: Ops) -> None:
        config = self.config
        shape = config.vocab_size, config.d_model
        self.tokens = TokenEmbedding(ops, *shape, config.embedding_scale, config.embedding_std)
        self.encoder, self.decoder = self._stacks(ops)
        table = self.tokens.table if config.tied else TokenEmbedding(ops, *shape).table
        self.logits_bias = Parameter((config.vocab_size,), constant(0.0)) if config.output_bias else None
        self.output = OutputLayer(ops, table, self.logits_bias)

    @abstractmethod
    def _stacks(self, ops: Ops) -> tuple[EncoderT, DecoderT]:
        """Return the encoder and the decoder, which share `self.tokens` and compute with `ops`."""

    @without_spurious_warnings
    def encode(
        self, source: Array, dropout: DropoutStream | None = None, source_mask: Array | None = None
    ) -> tuple[Any, tuple]:
        """source `(B, Ts)` → the memory, the encoder's output. source_mask as in `forward`."""
        source, mask = self._source(source, source_mask)
        return self.encoder.forward(source, Context(mask=mask, dropout=dropout))

    @without_spurious_warnings
    def forward(
        self,
        source: Array,
        target: Array,
        dropout: DropoutStream | None = None,
        *,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
    ) -> tuple[Array, tuple]:
        """source `(B, Ts)`, target `(B, Tt)`, which begins with `bos_id` → logits `(B, Tt, V)` of each next token.

        Masks are `True` where a token is real. A target padded on the right needs none: no position sees those after.
        Without a mask of the source, tokens equal to `pad_id` are padding, unless targets begin with that token (T5,
        Marian). Raises `ValueError` for an id outside the vocabulary and for more than `config.max_length` of them.
        """
        source, target, mask = self._pair(source, target, source_mask)
        memory, encoder_cache = self.encoder.forward(source, Context(mask=mask, dropout=dropout))
        own_mask = self._mask("target_mask", target_mask, target)
        context = Context(mask=own_mask, memory=memory, memory_mask=mask, dropout=dropout)
        hidden, decoder_cache = self.decoder.forward(target, context)
        logits, logits_cache = self.output.logits(hidden)
        return logits, (encoder_cache, decoder_cache, logits_cache, logits.shape)

    @without_spurious_warnings
    def backward(self, dlogits: Array, cache: tuple) -> None:
        """dlogits `(B, Tt, V)`: add into the gradient of every parameter."""
        encoder_cache, decoder_cache, logits_cache, shape = cache
        dhidden = self.output.logits_backward(self._received(dlogits, shape), logits_cache)
        dmemory = self.decoder.backward(dhidden, decoder_cache)
        self.encoder.backward(dmemory, encoder_cache)

    @without_spurious_warnings
    def loss(
        self,
        source: Array,
        target_in: Array,
        target_out: Array,
        label_smoothing: float = 0.0,
        dropout: DropoutStream | None = None,
        with_grad: bool = True,
        *,
        source_mask: Array | None = None,
        weights: Array | None = None,
    ) -> tuple[Array, tuple]:
        """Return the mean cross-entropy of the tokens of target_out `(B, Tt)`; `pad_id` and −100 do not count.

        target_in is target_out moved right by one, with `bos_id` in front and `pad_id` for −100; source_mask as in
        `forward`, weights `(B, Tt)` as in `GPT.loss`. Evaluation passes `with_grad=False`.
        """
        source, target, mask = self._pair(source, target_in, source_mask)
        targets, pad_id = self.ops.asarray(target_out), self.config.pad_id
        targets = targets + (pad_id - IGNORED) * (targets == IGNORED)  # where it is −100: pad_id
        keep = with_grad is not False
        memory, encoder_cache = self.encoder.forward(source, Context(mask=mask, dropout=dropout, keep=keep))
        context = Context(memory=memory, memory_mask=mask, dropout=dropout, keep=keep)
        hidden, decoder_cache = self.decoder.forward(target, context)
        weights = None if weights is None else self._weights(weights, targets)
        loss, loss_cache = self.output.loss(hidden, targets, label_smoothing, pad_id, with_grad, weights)
        return loss, (encoder_cache, decoder_cache, loss_cache)

    @without_spurious_warnings
    def loss_backward(self, dloss: float, cache: tuple) -> None:
        """Add `dloss` times the loss's gradient into the gradient of every parameter."""
        encoder_cache, decoder_cache, loss_cache = cache
        dmemory = self.decoder.backward(self.output.loss_backward(dloss, loss_cache), decoder_cache)
        self.encoder.backward(dmemory, encoder_cache)

    @without_spurious_warnings
    def start_decoding(self, source: Array, num_beams: int = 1, source_mask: Array | None = None) -> Decoding:
        """Encode source `(B, Ts)`; return the state with which `decode_step` continues each sentence's K beams.

        Without a mask tokens equal to `pad_id` are padding, in every model: a source holds none of its own.
        """
        if num_beams < 1:
            raise ValueError(f"num_beams is {num_beams}, expected 1 or more")
        source, mask = self._source(source, source_mask, infers=True)
        memory, _ = self.encoder.forward(source, Context(mask=mask, keep=False))
        state = Decoding(Cache(self.ops, len(source), num_beams), memory, mask)
        if len(source) * num_beams >= MANY_ROWS:
            state.output = self.output.transposed()
        return state

    @without_spurious_warnings
    def decode_step(self, ids: Array, state: Decoding) -> Array:
        """ids `(B, K)`, each beam's newest token (at first `bos_id`) → logits `(B, K, V)` of the next one.

        `state` moves on by one position. Raises `ValueError` beyond `config.max_length`.
        """
        ids = state.newest(ids, self.most_tokens)
        hidden, _ = self.decoder.forward(ids, state.context(1))  # (B·K, 1, C)
        state.cache.position += 1
        state.memory = None  # the cache holds now what the layers need of it
        hidden = hidden.reshape(*state.shape, hidden.shape[-1])
        return self.output.logits(hidden, state.output)[0]

    def _pair(self, source: Any, target: Any, source_mask: Any = None) -> tuple[Array, Array, Array | None]:
        """Return both as arrays of the backend, and the source's mask, `True` where a token is real."""
        (source, mask), target = self._source(source, source_mask), self._ids("target", target)
        if len(source) != len(target):
            raise ValueError(f"source has {len(source)} sentences and target {len(target)}")
        return source, target, mask

    def _source(self, source: Any, given: Any = None, infers: bool | None = None) -> tuple[Array, Array | None]:
        """Return the source as the encoder takes it, and the mask that was given or, if it `infers` one, its own.

        By default it does unless the padding token begins targets too: then sources may hold that token.
        """
        source = self._ids("source", source)
        infers = self.config.pad_id != self.config.bos_id if infers is None else infers
        infers = infers and given is None
        return source, source != self.config.pad_id if infers else self._mask("source_mask", given, source)
