"""Recurrent encoder–decoders, with and without attention: what the Transformer came to replace.

Without attention, all that the decoder knows of the source is one vector a layer, the encoder's last state
(Cho et al. 2014; Sutskever, Vinyals, Le 2014, with LSTM cells). With it, every position of the decoder also looks back
at all of the encoder's states (Bahdanau, Cho, Bengio 2015).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from ..layers import (
    AdditiveAttention,
    DropoutStream,
    InputEmbedding,
    Layer,
    Linear,
    RecurrentStack,
    State,
    TokenEmbedding,
)
from ..ops import Array, Ops
from .decoder_state import RowState
from .model import Model
from .model_config import (
    ModelConfig,
    check_counts,
    check_flags,
    check_positive,
    check_rates,
    check_special_tokens,
)

Memory = tuple[Array, list[State]]
"""The encoder's hidden states `(B, Ts, C)`, and the final state of each of its layers."""


@dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    """The hyper-parameters of a recurrent model; `num_layers` in the encoder, and as many in the decoder.

    `max_length` is the longest sequence, in tokens with its begin or end mark: memory sets it, not the model.
    `init_gain` times Xavier's bound is where matrices start. Raises `ValueError` or `TypeError` for what can't be one.
    """

    kind: ClassVar[str] = "recurrent"

    vocab_size: int
    d_model: int = 256
    num_layers: int = 1
    cell: Literal["tanh", "lstm"] = "lstm"
    attention: bool = True
    dropout: float = 0.1
    max_length: int = 512
    init_gain: float = 1.0
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        check_counts(self, 1, "vocab_size", "d_model", "num_layers", "max_length")
        if self.cell not in ("tanh", "lstm"):
            raise ValueError(f"cell is {self.cell!r}, expected 'tanh' or 'lstm'")
        check_flags(self, "attention")
        check_rates(self, "dropout")
        check_positive(self, "init_gain")
        check_special_tokens(self)

    @property
    def num_layers_in_all(self) -> int:
        """Layers of the encoder and of the decoder."""
        return 2 * self.num_layers

    @property
    def num_parameters(self) -> int:
        """All that is learned: a layer's cell has one or four gates of C·C + C for its input and C·C for its state."""
        width, gates = self.d_model, 4 if self.cell == "lstm" else 1
        layers = 2 * self.num_layers * gates * (2 * width + 1) * width
        attention = (2 * width + 1) * width + width  # query, key and score
        combine = (2 * width + 1) * width
        return self.vocab_size * width + layers + (attention + combine) * self.attention


class RecurrentEncoder(Layer):
    """Source ids, read from left to right, to a hidden state for each token and the final state of each layer.

    Paper: Bahdanau's reads from both ends; Sutskever's backwards.
    """

    def __init__(self, ops: Ops, config: RecurrentConfig, sites: Iterator[int]) -> None:
        super().__init__(ops)
        self.embedding = InputEmbedding(ops, None, config.dropout, next(sites))
        self.stack = _stack(ops, config, sites)

    def forward(
        self, ids: Array, mask: Array, tokens: TokenEmbedding, dropout: DropoutStream | None = None
    ) -> tuple[Memory, tuple]:
        """ids `(B, Ts)`, mask `(B, Ts)` with `True` = real → memory."""
        x, embedding_cache = self.embedding.forward(ids, tokens, dropout)
        memory, stack_cache = self.stack.forward(x, None, mask, dropout)
        return memory, (embedding_cache, stack_cache)

    def backward(self, dmemory: Memory, cache: tuple, tokens: TokenEmbedding) -> None:
        """Adds into the gradient of every parameter; ids have none."""
        embedding_cache, stack_cache = cache
        dx, _ = self.stack.backward(*dmemory, stack_cache)
        self.embedding.backward(dx, embedding_cache, tokens)


class RecurrentDecoder(Layer):
    """Target ids and the memory to one vector for each target token: `h`, or with attention `tanh(W [h; context])`.

    Its layers start from the encoder's final states.
    """

    def __init__(self, ops: Ops, config: RecurrentConfig, sites: Iterator[int]) -> None:
        super().__init__(ops)
        width, gain = config.d_model, config.init_gain
        self.embedding = InputEmbedding(ops, None, config.dropout, next(sites))
        self.stack = _stack(ops, config, sites)
        # Paper: Bahdanau's attention is asked with the state before each step, and its answer goes into the step. Here
        # it is asked with the state after it, as by Luong, Pham, Manning 2015, §3, eq. 5: all positions ask at once.
        self.attention = AdditiveAttention(ops, width, gain) if config.attention else None
        self.combine = Linear(ops, 2 * width, width, gain=gain) if config.attention else None

    def forward(
        self, ids: Array, memory: Memory, mask: Array, tokens: TokenEmbedding, dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """ids `(B, Tt)`, mask `(B, Ts)` of the source → hidden `(B, Tt, C)`.

        Padding stands on the right, where no real position comes after it: ids need no mask.
        """
        states, finals = memory
        x, embedding_cache = self.embedding.forward(ids, tokens, dropout)
        (hidden, _), stack_cache = self.stack.forward(x, finals, None, dropout)
        if self.attention is None or self.combine is None:
            return hidden, (embedding_cache, stack_cache, states)
        context, attention_cache = self.attention.forward(hidden, states, mask)
        combined, combine_cache = self.combine.forward(self.ops.concatenate([hidden, context]))
        out, tanh_cache = self.ops.tanh.forward(combined)
        return out, (embedding_cache, stack_cache, attention_cache, combine_cache, tanh_cache)

    def backward(self, dhidden: Array, cache: tuple, tokens: TokenEmbedding) -> Memory:
        """Returns dmemory: of the encoder's states, which attention looks at, and of its final ones."""
        embedding_cache, stack_cache, *attended = cache
        if self.attention is None or self.combine is None:
            dstates = self.ops.zeros(attended[0].shape, dhidden.dtype)  # nobody looks at them
        else:
            attention_cache, combine_cache, tanh_cache = attended
            dboth = self.combine.backward(self.ops.tanh.backward(dhidden, tanh_cache), combine_cache)
            width = dhidden.shape[-1]
            dquery, dstates = self.attention.backward(dboth[..., width:], attention_cache)
            dhidden = dboth[..., :width] + dquery
        dx, dfinals = self.stack.backward(dhidden, None, stack_cache)
        self.embedding.backward(dx, embedding_cache, tokens)
        return dstates, dfinals

    def start(self, memory: Memory, mask: Array, num_beams: int) -> RowState:
        """The state of a translation before its first token: each beam starts from the encoder's final states."""
        states, finals = memory
        sentences = self.ops.asarray([b for b in range(len(mask)) for _ in range(num_beams)], "int64")  # (B·K,)
        rows = [tuple(self.ops.take(array, sentences) for array in final) for final in finals]
        memory_caches = [] if self.attention is None else [self.attention.keys_and_values(states)]
        return RowState(self.ops, rows, memory_caches, mask, num_beams)

    def step(self, ids: Array, state: RowState, tokens: TokenEmbedding) -> Array:
        """The newest token of each beam, ids `(B, K)` → hidden `(B, K, C)`; the state goes a position further."""
        batch, beams = ids.shape
        x = self.embedding.step(ids, tokens, state.position)  # (B, K, C)
        hidden, state.rows = self.stack.step(x.reshape(batch * beams, x.shape[2]), state.rows)
        hidden = hidden.reshape(x.shape)
        state.position += 1
        if self.attention is None or self.combine is None:
            return hidden
        context = self.attention.step(hidden, *state.memory_caches[0], state.memory_mask)
        combined, _ = self.combine.forward(self.ops.concatenate([hidden, context]))
        return self.ops.tanh.forward(combined)[0]


class RecurrentTranslator(Model[RecurrentConfig]):
    """A recurrent encoder–decoder over token ids `(B, T)`, padded on the right: see `Model` for the rest."""

    encoder: RecurrentEncoder
    decoder: RecurrentDecoder

    def _stacks(self, sites: Iterator[int]) -> tuple[RecurrentEncoder, RecurrentDecoder]:
        encoder = RecurrentEncoder(self.ops, self.config, sites)
        return encoder, RecurrentDecoder(self.ops, self.config, sites)


def _stack(ops: Ops, config: RecurrentConfig, sites: Iterator[int]) -> RecurrentStack:
    return RecurrentStack(
        ops,
        config.cell,
        config.d_model,
        config.num_layers,
        sites,
        dropout=config.dropout,
        gain=config.init_gain,
    )
