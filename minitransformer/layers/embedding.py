"""Tokens and positions as vectors."""

import math

from ..ops import Array, Ops
from ..ops.initialize import normal
from .context import PLAIN, Context
from .parameter import Layer, Parameter


class TokenEmbedding(Layer):
    """One table `(V, C)` for source tokens, target tokens and the output layer. Source: Vaswani 2017, §3.4.

    Look-ups are scaled by √d_model; the output layer is not. Entries start as N(0, 1/d_model), so a scaled look-up has
    variance 1, which is near that of the sinusoids added to it.
    """

    def __init__(self, ops: Ops, vocab_size: int, d_model: int) -> None:
        super().__init__(ops)
        self.scale = math.sqrt(d_model)
        self.table = Parameter((vocab_size, d_model), normal(1 / math.sqrt(d_model)))

    def forward(self, ids: Array) -> tuple[Array, tuple]:
        """ids `(B, T)` → `√d_model · table[ids]`, `(B, T, C)`."""
        return self.ops.embedding.forward(ids, self.table.value, self.scale)

    def backward(self, dout: Array, cache: tuple) -> None:
        """Adds into the table's gradient; ids have none."""
        self.ops.embedding.backward(dout, cache, out=self.table.grad)

    def logits(self, hidden: Array) -> tuple[Array, tuple]:
        """hidden `(..., C)` → `hidden @ tableᵀ`, `(..., V)`."""
        return self.ops.linear.forward(hidden, self.table.value.swapaxes(0, 1), None)

    def logits_backward(self, dlogits: Array, cache: tuple) -> Array:
        """Returns dhidden `(..., C)`; adds into the table's gradient."""
        dhidden, _, _ = self.ops.linear.backward(dlogits, cache, out=(self.table.grad.swapaxes(0, 1), None))
        return dhidden


FIRST_POSITIONS = 8192
"""Rows of the table of sinusoids that a new model makes; it makes more once a sentence is longer."""


class SinusoidalPositions(Layer):
    """`PE(pos, 2i) = sin(pos / 10000^{2i/d_model})`, `PE(pos, 2i+1) = cos(…)`, added. Source: Vaswani 2017, §3.5."""

    def __init__(self, ops: Ops, max_length: int, d_model: int, dtype: str) -> None:
        super().__init__(ops)
        self.max_length, self.d_model, self.dtype = max_length, d_model, dtype
        self.table = self._encodings(min(max_length, FIRST_POSITIONS))

    def forward(self, x: Array, start: int = 0) -> tuple[Array, None]:
        """x `(B, T, C)` plus the encodings of positions start, …, start + T − 1."""
        stop = start + x.shape[1]
        if len(self.table) < stop <= self.max_length:
            self.table = self._encodings(min(2 * stop, self.max_length))
        return x + self.table[start:stop], None

    def backward(self, dout: Array, cache: None) -> Array:
        """Returns dx, which is dout: a constant was added."""
        return dout

    def _encodings(self, count: int) -> Array:
        """The encodings of the first `count` positions, `(count, C)`."""
        frequencies = [10000 ** (-2 * i / self.d_model) for i in range(self.d_model // 2)]
        # The angles are Python floats: in float32 the angles of late positions would be wrong by a ten-thousandth.
        angles = [[math.fmod(pos * f, math.tau) for f in frequencies] for pos in range(count)]
        angles = self.ops.asarray(angles, self.dtype)
        table = self.ops.zeros((count, self.d_model), self.dtype)
        table[:, 0::2] = self.ops.sin(angles)
        table[:, 1::2] = self.ops.cos(angles)
        return self.ops.activations(table)


class LearnedPositions(Layer):
    """A learned vector for each position, added: Table 3, row (E). Source: Vaswani 2017, §3.5; Gehring et al. 2017."""

    def __init__(self, ops: Ops, max_length: int, d_model: int) -> None:
        super().__init__(ops)
        self.table = Parameter((max_length, d_model), normal(1 / math.sqrt(d_model)))

    def forward(self, x: Array, start: int = 0) -> tuple[Array, slice]:
        """x `(B, T, C)` plus the vectors of positions start, …, start + T − 1."""
        places = slice(start, start + x.shape[1])
        return x + self.table.value[places], places

    def backward(self, dout: Array, cache: slice) -> Array:
        """Returns dx, which is dout; adds its sum over the batch into the table's gradient."""
        self.table.grad[cache] += dout.sum(0)
        return dout


class InputEmbedding(Layer):
    """The input of a stack: `Dropout(√d_model · table[ids] + positions)`.

    Several stacks may share the table of tokens. A recurrent network reads one token after the other and needs no
    positions: they are `None`.
    """

    def __init__(
        self,
        ops: Ops,
        tokens: TokenEmbedding,
        positions: SinusoidalPositions | LearnedPositions | None,
        dropout: float,
    ) -> None:
        super().__init__(ops)
        self.tokens, self.positions, self.rate = tokens, positions, dropout

    def forward(self, ids: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """ids `(B, T)` → `(B, T, C)`; with a cache, ids stand at the positions that come next."""
        x, token_cache = self.tokens.forward(ids)
        x, position_cache = self.positions.forward(x, context.position) if self.positions else (x, None)
        x, dropout_cache = self.ops.dropout.forward(x, context.dropout_at(self.site, self.rate))
        return x, (token_cache, position_cache, dropout_cache)

    def backward(self, dx: Array, cache: tuple) -> None:
        """Adds into the gradients of the token table and of learned positions; ids have none."""
        token_cache, position_cache, dropout_cache = cache
        dx = self.ops.dropout.backward(dx, dropout_cache)
        dx = self.positions.backward(dx, position_cache) if self.positions else dx
        self.tokens.backward(dx, token_cache)
