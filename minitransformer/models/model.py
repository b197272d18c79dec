"""What any model is to those who train, search and save it: an encoder, a decoder, and one table of tokens."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar

from ..layers import DropoutStream, FlatParameters, Layer, TokenEmbedding
from ..ops import Array, Ops, numpy_ops
from .decoder_state import BeamState
from .model_config import ModelConfig

ConfigT = TypeVar("ConfigT", bound=ModelConfig)


class Model(Layer, ABC, Generic[ConfigT]):
    """A model over token ids `(B, T)`, padded on the right with `config.pad_id`.

    `ops` and `dtype` choose the backend, `seed` the initial weights. All weights are one flat array,
    `parameters.data`, and every backward adds into `parameters.grad`; a tied weight is one parameter. One table of
    tokens serves the source, the target and the output layer.

    A kind of model is its two stacks. What the encoder makes of the source, the memory, is theirs to agree on:

        encoder.forward(ids, mask, tokens, dropout) → memory, cache           ids, mask `(B, Ts)`
        encoder.backward(dmemory, cache, tokens)
        decoder.forward(ids, memory, mask, tokens, dropout) → hidden, cache   ids `(B, Tt)`, hidden `(B, Tt, C)`
        decoder.backward(dhidden, cache, tokens) → dmemory
        decoder.start(memory, mask, num_beams) → state                        a BeamState
        decoder.step(ids, state, tokens) → hidden                             ids `(B, K)`, hidden `(B, K, C)`
    """

    encoder: Any
    decoder: Any

    def __init__(self, config: ConfigT, ops: Ops = numpy_ops, dtype: str = "float32", seed: int = 0) -> None:
        self._assemble(config, ops, dtype)
        self.parameters = FlatParameters(dict(self.named_parameters()), ops, dtype)
        self.parameters.initialize(seed)

    def _assemble(self, config: ConfigT, ops: Ops, dtype: str) -> None:
        super().__init__(ops)
        self.config, self.dtype = config, _dtype_name(dtype)
        sites = itertools.count()
        self.tokens = TokenEmbedding(ops, config.vocab_size, config.d_model)
        self.encoder, self.decoder = self._stacks(sites)
        self.num_dropout_sites = next(sites)

    @abstractmethod
    def _stacks(self, sites: Iterator[int]) -> tuple[Any, Any]:
        """The encoder and the decoder, which take their dropout sites from `sites`."""

    def replica(self) -> Self:
        """A model that shares these weights and has gradients of its own: for another thread and part of a batch."""
        twin = type(self).__new__(type(self))
        twin._assemble(self.config, self.ops, self.dtype)
        twin.parameters = FlatParameters(dict(twin.named_parameters()), self.ops, self.dtype, self.parameters)
        return twin

    def encode(self, source: Array, dropout: DropoutStream | None = None) -> tuple[Array, tuple]:
        """source `(B, Ts)` → the memory, what the encoder makes of it."""
        ids, mask = self._ids("source", source)
        return self.encoder.forward(ids, mask, self.tokens, dropout)

    def forward(self, source: Array, target: Array, dropout: DropoutStream | None = None) -> tuple[Array, tuple]:
        """source `(B, Ts)`, target `(B, Tt)`, which begins with bos → logits `(B, Tt, V)` of each next token.

        Raises `ValueError` for an id outside the vocabulary and a sequence longer than `config.max_length`.
        """
        hidden, hidden_cache = self._hidden(source, target, dropout)
        logits, logits_cache = self.tokens.logits(hidden)
        return logits, (hidden_cache, logits_cache)

    def backward(self, dlogits: Array, cache: tuple) -> None:
        """dlogits `(B, Tt, V)`: adds into the gradient of every parameter."""
        hidden_cache, logits_cache = cache
        dlogits = self.ops.activations(self.ops.cast(self.ops.asarray(dlogits), self.dtype))
        self._hidden_backward(self.tokens.logits_backward(dlogits, logits_cache), hidden_cache)

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

        target_in is target_out moved right by one, with bos in front. `with_grad=False` for evaluation.
        """
        hidden, hidden_cache = self._hidden(source, target_in, dropout)
        batch, time, width = hidden.shape
        targets = self.ops.asarray(target_out)
        if tuple(targets.shape) != (batch, time):
            raise ValueError(f"target_out has shape {tuple(targets.shape)}, expected target_in's {(batch, time)}")
        loss, loss_cache = self.tokens.loss(
            hidden.reshape(batch * time, width),
            targets.reshape(-1),
            label_smoothing=label_smoothing,
            ignore_index=self.config.pad_id,
            with_grad=with_grad,
        )
        return loss, (hidden_cache, loss_cache, hidden.shape)

    def loss_backward(self, dloss: float, cache: tuple) -> None:
        """Adds `dloss` times the loss's gradient into that of every parameter."""
        hidden_cache, loss_cache, shape = cache
        dhidden = self.tokens.loss_backward(dloss, loss_cache)  # (B·Tt, C)
        self._hidden_backward(dhidden.reshape(shape), hidden_cache)

    def start_decoding(self, source: Array, num_beams: int = 1) -> BeamState:
        """Encodes source `(B, Ts)`: the state from which `decode_step` writes each sentence's K beams."""
        if num_beams < 1:
            raise ValueError(f"num_beams is {num_beams}, expected 1 or more")
        memory, _ = self.encode(source)
        _, mask = self._ids("source", source)
        return self.decoder.start(memory, mask, num_beams)

    def decode_step(self, ids: Array, state: Any) -> Array:
        """ids `(B, K)`, each beam's newest token (at first bos) → logits `(B, K, V)` of the next one.

        The state is brought forward by one position. Raises `ValueError` past `config.max_length`.
        """
        if state.position >= self.config.max_length:
            raise ValueError(f"position {state.position} is beyond the model's max_length of {self.config.max_length}")
        ids = self.ops.asarray(ids)
        if tuple(ids.shape) != (state.batch, state.num_beams):
            raise ValueError(f"ids has shape {tuple(ids.shape)}, expected (B, K), {(state.batch, state.num_beams)}")
        hidden = self.decoder.step(ids, state, self.tokens)  # (B, K, C)
        return self.tokens.logits(hidden)[0]

    def _hidden(self, source: Array, target: Array, dropout: DropoutStream | None) -> tuple[Array, tuple]:
        """The decoder's output `(B, Tt, C)`, before the output layer."""
        source_ids, mask = self._ids("source", source)
        target_ids, _ = self._ids("target", target)
        if len(source_ids) != len(target_ids):
            raise ValueError(f"source has {len(source_ids)} sentences and target {len(target_ids)}")
        memory, encoder_cache = self.encoder.forward(source_ids, mask, self.tokens, dropout)
        hidden, decoder_cache = self.decoder.forward(target_ids, memory, mask, self.tokens, dropout)
        return hidden, (encoder_cache, decoder_cache)

    def _hidden_backward(self, dhidden: Array, cache: tuple) -> None:
        encoder_cache, decoder_cache = cache
        dmemory = self.decoder.backward(dhidden, decoder_cache, self.tokens)
        self.encoder.backward(dmemory, encoder_cache, self.tokens)

    def _ids(self, name: str, ids: Any) -> tuple[Array, Array]:
        """The ids on the backend, and their mask: `True` where a token is real."""
        ids = self.ops.asarray(ids)
        if ids.ndim != 2:
            raise ValueError(f"{name} has shape {tuple(ids.shape)}, expected (B, T)")
        if ids.shape[1] > self.config.max_length:
            raise ValueError(
                f"{name} has {ids.shape[1]} tokens, more than the model's max_length of {self.config.max_length}"
            )
        return ids, ids != self.config.pad_id


def _dtype_name(dtype: Any) -> str:
    """`"float32"` of "float32", `np.float32`, `np.dtype("float32")`, `torch.float32`. Raises `TypeError` for others."""
    name = (getattr(dtype, "__name__", None) or str(dtype)).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise TypeError(f"dtype is {name}, expected float32 or float64: that of activations is the table's of ops")
    return name
