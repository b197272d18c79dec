"""Encoder–decoders: a model reads a source, makes a memory of it, and writes a target that attends to the memory."""

from abc import abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from ..layers import Cache, Context, DropoutStream, TokenEmbedding
from ..ops import Array, Ops, without_spurious_warnings
from .model import ConfigT, Model
from .objectives import next_token_loss, next_token_loss_backward


class Encoder(Protocol):
    """Maps source ids to the memory, in whatever form the decoder takes it."""

    def forward(self, ids: Array, context: Context) -> tuple[Any, tuple]:
        """ids `(B, Ts)`, with `context.mask` `(B, Ts)` → (memory, cache)."""
        ...

    def backward(self, dx: Any, cache: tuple) -> Any:
        """Takes the gradient of the memory; adds into the gradient of every parameter."""
        ...


class Decoder(Protocol):
    """Maps target ids and the memory to one vector for each target token."""

    def forward(self, ids: Array, context: Context) -> tuple[Array, tuple]:
        """ids `(B, Tt)`, with `context.memory` and its mask → (hidden `(B, Tt, C)`, cache)."""
        ...

    def backward(self, dx: Array, cache: tuple) -> Any:
        """Returns the gradient of the memory; adds into the gradient of every parameter."""
        ...


EncoderT = TypeVar("EncoderT", bound=Encoder)
DecoderT = TypeVar("DecoderT", bound=Decoder)


class EncoderDecoder(Model[ConfigT], Generic[ConfigT, EncoderT, DecoderT]):
    """A model with an encoder, a decoder and one table of tokens for source, target and output layer."""

    encoder: EncoderT
    decoder: DecoderT

    def _build(self) -> None:
        self.tokens = TokenEmbedding(self.ops, self.config.vocab_size, self.config.d_model)
        # Ids and targets come in through `tokens`, whose ops check them; inside the stacks nothing can be wrong.
        self.encoder, self.decoder = self._stacks(self.ops.unchecked())

    @abstractmethod
    def _stacks(self, ops: Ops) -> tuple[EncoderT, DecoderT]:
        """The encoder and the decoder, which share `self.tokens` and compute with `ops`."""

    @without_spurious_warnings
    def encode(self, source: Array, dropout: DropoutStream | None = None) -> tuple[Any, tuple]:
        """source `(B, Ts)` → the memory, the encoder's output."""
        source = self._ids("source", source)
        return self.encoder.forward(source, Context(mask=source != self.config.pad_id, dropout=dropout))

    @without_spurious_warnings
    def forward(self, source: Array, target: Array, dropout: DropoutStream | None = None) -> tuple[Array, tuple]:
        """source `(B, Ts)`, target `(B, Tt)`, which begins with bos → logits `(B, Tt, V)` of each next token.

        Raises `ValueError` for an id outside the vocabulary and for a sequence longer than `config.max_length`.
        """
        source, target, mask = self._pair(source, target)
        memory, encoder_cache = self.encoder.forward(source, Context(mask=mask, dropout=dropout))
        # The target needs no mask: its padding stands on the right, and no position sees those after it.
        context = Context(memory=memory, memory_mask=mask, dropout=dropout)
        hidden, decoder_cache = self.decoder.forward(target, context)
        logits, logits_cache = self.tokens.logits(hidden)
        return logits, (encoder_cache, decoder_cache, logits_cache)

    @without_spurious_warnings
    def backward(self, dlogits: Array, cache: tuple) -> None:
        """dlogits `(B, Tt, V)`: adds into the gradient of every parameter."""
        encoder_cache, decoder_cache, logits_cache = cache
        dlogits = self.ops.cast(self.ops.asarray(dlogits), self.dtype)
        dhidden = self.tokens.logits_backward(self.ops.activations(dlogits), logits_cache)
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
    ) -> tuple[Array, tuple]:
        """The mean cross-entropy of the tokens of target_out `(B, Tt)` that are not padding.

        target_in is target_out moved right by one, with bos in front. Evaluation passes `with_grad=False`.
        """
        source, target, mask = self._pair(source, target_in)
        memory, encoder_cache = self.encoder.forward(source, Context(mask=mask, dropout=dropout))
        context = Context(memory=memory, memory_mask=mask, dropout=dropout)
        hidden, decoder_cache = self.decoder.forward(target, context)
        loss, loss_cache = next_token_loss(
            self.tokens, hidden, target_out, label_smoothing, self.config.pad_id, with_grad
        )
        return loss, (encoder_cache, decoder_cache, loss_cache)

    @without_spurious_warnings
    def loss_backward(self, dloss: float, cache: tuple) -> None:
        """Adds `dloss` times the loss's gradient into the gradient of every parameter."""
        encoder_cache, decoder_cache, loss_cache = cache
        dhidden = next_token_loss_backward(self.tokens, dloss, loss_cache)
        dmemory = self.decoder.backward(dhidden, decoder_cache)
        self.encoder.backward(dmemory, encoder_cache)

    def start_decoding(self, source: Array, num_beams: int = 1) -> "Decoding":
        """Encodes source `(B, Ts)`; returns the state with which `decode_step` continues each sentence's K beams."""
        if num_beams < 1:
            raise ValueError(f"num_beams is {num_beams}, expected 1 or more")
        memory, _ = self.encode(source)
        mask = self.ops.asarray(source) != self.config.pad_id
        return Decoding(Cache(self.ops, len(mask), num_beams), memory, mask)

    @without_spurious_warnings
    def decode_step(self, ids: Array, state: "Decoding") -> Array:
        """ids `(B, K)`, each beam's newest token (at first bos) → logits `(B, K, V)` of the next one.

        `state` moves on by one position. Raises `ValueError` beyond `config.max_length`.
        """
        if state.position >= self.config.max_length:
            raise ValueError(f"position {state.position} is beyond the model's max_length of {self.config.max_length}")
        ids = self.ops.asarray(ids)
        if tuple(ids.shape) != state.shape:
            raise ValueError(f"ids has shape {tuple(ids.shape)}, expected (B, K), {state.shape}")
        context = Context(memory=state.memory, memory_mask=state.memory_mask, cache=state.cache)
        hidden, _ = self.decoder.forward(ids.reshape(-1, 1), context)  # (B·K, 1, C)
        state.cache.position += 1
        state.memory = None  # the cache holds now what the layers need of it
        return self.tokens.logits(hidden.reshape(*state.shape, hidden.shape[-1]))[0]

    def _pair(self, source: Any, target: Any) -> tuple[Array, Array, Array]:
        """Both as arrays of the backend, and the source's mask, `True` where a token is real."""
        source, target = self._ids("source", source), self._ids("target", target)
        if len(source) != len(target):
            raise ValueError(f"source has {len(source)} sentences and target {len(target)}")
        return source, target, source != self.config.pad_id


class Decoding:
    """The state of an unfinished translation: the layers' cache, and the memory until the layers have read it."""

    def __init__(self, cache: Cache, memory: Any, memory_mask: Array) -> None:
        self.cache, self.memory = cache, memory
        self.memory_mask = None if memory_mask.all() else memory_mask  # (B, Ts); None: nothing is padded

    @property
    def position(self) -> int:
        """The number of tokens that each beam has."""
        return self.cache.position

    @property
    def shape(self) -> tuple[int, int]:
        """Sentences and beams, (B, K)."""
        return self.cache.batch, self.cache.num_beams

    def reorder(self, beams: Array) -> None:
        """Continues from other beams: see `Cache.reorder`."""
        self.cache.reorder(beams)

    def select(self, sentences: Array) -> None:
        """Keeps only these sentences: see `Cache.select`."""
        self.cache.select(sentences)
        self.memory, self.memory_mask = self._rows((self.memory, self.memory_mask), sentences)

    def _rows(self, value: Any, sentences: Array) -> Any:
        """The rows of these sentences of every array `(B, …)` in nested tuples and lists; `None` stays `None`."""
        if isinstance(value, tuple | list):
            return type(value)(self._rows(item, sentences) for item in value)
        ops = self.cache.ops
        return None if value is None else ops.take(value, ops.asarray(sentences, "int64"))
