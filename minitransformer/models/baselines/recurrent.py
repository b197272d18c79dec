"""Recurrent encoder–decoders, with and without attention, which the Transformer replaced.

Without attention, the decoder knows only one vector a layer of the source: the encoder's last state
(Cho et al. 2014; Sutskever, Vinyals, Le 2014, with LSTM cells). With attention, every position of the decoder also
looks back at all of the encoder's states (Bahdanau, Cho, Bengio 2015).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ...config import LARGEST, SMALLEST, choice, flag, positive, rate, whole
from ...layers import (
    PLAIN,
    AdditiveAttention,
    Context,
    InputEmbedding,
    Layer,
    Linear,
    RecurrentStack,
    State,
    TokenEmbedding,
)
from ...ops import Array, Ops
from ..config import TranslationConfig
from ..encoder_decoder import EncoderDecoder

Memory = tuple[Array, list[State]]
"""The encoder's hidden states `(B, Ts, C)`, and the final state of each of its layers."""


@dataclass(frozen=True)
class RecurrentConfig(TranslationConfig):
    """The hyper-parameters of a recurrent model; `num_layers` in the encoder, and as many in the decoder.

    `max_length` is the longest sequence in tokens, with its begin or end mark; the model itself would read any length.
    Matrices start within `init_gain` times Xavier's bound. Raises `ValueError` or `TypeError` for values that give no
    model.
    """

    kind: ClassVar[str] = "recurrent"

    vocab_size: int = whole()
    d_model: int = whole(256)
    num_layers: int = whole(1)
    cell: Literal["tanh", "lstm"] = choice("tanh", "lstm", default="lstm")
    attention: bool = flag(True)
    dropout: float = rate(0.1)
    max_length: int = whole(512)
    init_gain: float = positive(1.0, least=SMALLEST, most=LARGEST)
    pad_id: int = whole(0, least=0)
    bos_id: int = whole(1, least=0)
    eos_id: int = whole(2, least=0)


class RecurrentEncoder(Layer):
    """Maps source ids, read from left to right, to a hidden state for each token and each layer's final state.

    Paper: Bahdanau's encoder reads the source in both directions, Sutskever's from right to left.
    """

    def __init__(self, ops: Ops, config: RecurrentConfig, tokens: TokenEmbedding) -> None:
        super().__init__(ops)
        self.embedding = InputEmbedding(ops, tokens, None, config.dropout)
        self.stack = _stack(ops, config)

    def forward(self, ids: Array, context: Context = PLAIN) -> tuple[Memory, tuple]:
        """ids `(B, Ts)`, with their mask → memory."""
        x, embedding_cache = self.embedding.forward(ids, context)
        memory, stack_cache = self.stack.forward(x, None, context)
        return memory, (embedding_cache, stack_cache)

    def backward(self, dx: Memory, cache: tuple) -> None:
        """Add into the gradient of every parameter; ids have none."""
        embedding_cache, stack_cache = cache
        dembedded, _ = self.stack.backward(*dx, stack_cache)
        self.embedding.backward(dembedded, embedding_cache)


class RecurrentDecoder(Layer):
    """Maps target ids and the memory to one vector for each target token: `h`, with attention `tanh(W [h; context])`.

    Its layers start from the encoder's final states.
    """

    def __init__(self, ops: Ops, config: RecurrentConfig, tokens: TokenEmbedding) -> None:
        super().__init__(ops)
        width, gain = config.d_model, config.init_gain
        self.embedding = InputEmbedding(ops, tokens, None, config.dropout)
        self.stack = _stack(ops, config)
        # Paper: in Bahdanau's model the query is the state before a step, and the attended vector goes into the step.
        # Here the query is the state after it (Luong, Pham, Manning 2015, §3, eq. 5): all positions attend at once.
        self.attention = AdditiveAttention(ops, width, gain) if config.attention else None
        self.combine = Linear(ops, 2 * width, width, gain=gain) if config.attention else None

    def forward(self, ids: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """ids `(B, Tt)`, with the memory → hidden `(B, Tt, C)`.

        ids need no mask: their padding stands on the right, and no real position comes after it. With a cache the first
        position starts from the memory's final states, copied for each beam of a sentence.
        """
        states, finals = context.memory or (None, None)
        x, embedding_cache = self.embedding.forward(ids, context)
        if finals is not None and context.cache is not None:
            sentences = [b for b in range(context.cache.batch) for _ in range(context.num_beams)]
            rows = self.ops.asarray(sentences, "int64")
            finals = [tuple(self.ops.take(array, rows) for array in final) for final in finals]  # (B·K, C)
        (hidden, _), stack_cache = self.stack.forward(x, finals, context)
        if self.attention is None or self.combine is None:
            return hidden, (embedding_cache, stack_cache, states)
        mixed, attention_cache = self.attention.forward(hidden, states, context)
        combined, combine_cache = self.combine.forward(self.ops.concatenate([hidden, mixed]))
        out, tanh_cache = self.ops.tanh.forward(combined)
        return out, (embedding_cache, stack_cache, attention_cache, combine_cache, tanh_cache)

    def backward(self, dx: Array, cache: tuple) -> Memory:
        """Return dmemory, the gradients of all the encoder's states and of its final ones."""
        embedding_cache, stack_cache, *attended = cache
        if self.attention is None or self.combine is None:
            dstates = self.ops.zeros(attended[0].shape, dx.dtype)  # without attention nothing reads them
        else:
            attention_cache, combine_cache, tanh_cache = attended
            dboth = self.combine.backward(self.ops.tanh.backward(dx, tanh_cache), combine_cache)
            width = dx.shape[-1]
            dquery, dstates = self.attention.backward(dboth[..., width:], attention_cache)
            dx = dboth[..., :width] + dquery
        dembedded, dfinals = self.stack.backward(dx, None, stack_cache)
        self.embedding.backward(dembedded, embedding_cache)
        return dstates, dfinals


class RecurrentTranslator(EncoderDecoder[RecurrentConfig, RecurrentEncoder, RecurrentDecoder]):
    """A recurrent encoder–decoder over token ids `(B, T)`, padded on the right: see `EncoderDecoder` for the rest."""

    def _stacks(self, ops: Ops) -> tuple[RecurrentEncoder, RecurrentDecoder]:
        parts = ops, self.config, self.tokens
        return RecurrentEncoder(*parts), RecurrentDecoder(*parts)


RecurrentConfig.model = RecurrentTranslator


def _stack(ops: Ops, config: RecurrentConfig) -> RecurrentStack:
    return RecurrentStack(
        ops, config.cell, config.d_model, config.num_layers, dropout=config.dropout, gain=config.init_gain
    )
