"""The positions of tokens as vectors that are added to them: sinusoids, or learned."""

import math
from functools import cached_property

from ..ops import Array, Ops
from ..ops.initialize import normal
from .parameter import Layer, Parameter

FIRST_POSITIONS = 8192
"""Rows of the tables that a new model makes; it makes more once a sentence is longer."""


class SinusoidalPositions(Layer):
    """`PE(pos, 2i) = sin(pos / 10000^{2i/d_model})`, `PE(pos, 2i+1) = cos(…)`, added. Source: Vaswani 2017, §3.5.

    With `halves` all sines stand before all cosines, as in the authors' tensor2tensor and in Marian: the same numbers
    in another order.
    """

    def __init__(self, ops: Ops, max_length: int, d_model: int, dtype: str, halves: bool = False) -> None:
        super().__init__(ops)
        self.max_length, self.d_model, self.dtype, self.halves = max_length, d_model, dtype, halves

    @cached_property
    def table(self) -> Array:
        """The encodings of the first positions, or of more once they were needed, `(positions, C)`."""
        return self._encodings(min(self.max_length, FIRST_POSITIONS))

    def make_tables(self) -> None:
        _ = self.table

    def forward(self, x: Array, start: int = 0, padding: Array | None = None) -> tuple[Array, None]:
        """x `(B, T, C)` plus the encodings of positions start, …, start + T − 1, less `padding` `(B,)` of each row."""
        stop = start + x.shape[1]
        table = self.table
        if len(table) < stop <= self.max_length:
            self.table = table = self._encodings(min(2 * stop, self.max_length))
        rows = table[start:stop] if padding is None else rows_of(self.ops, table, start, stop, padding)
        return x + rows, None

    def backward(self, dout: Array, cache: None) -> Array:
        """Return dx, which is dout: a constant was added."""
        return dout

    def _encodings(self, count: int) -> Array:
        """Return the encodings of the first `count` positions, `(count, C)`."""
        half = self.d_model // 2
        cosines, sines = waves(self.ops, count, [10000 ** (-2 * i / self.d_model) for i in range(half)], self.dtype)
        table = self.ops.zeros((count, self.d_model), self.dtype)
        table[:, slice(0, half) if self.halves else slice(0, None, 2)] = sines
        table[:, slice(half, None) if self.halves else slice(1, None, 2)] = cosines
        return self.ops.activations(table)


class LearnedPositions(Layer):
    """A learned vector for each position, added: Table 3, row (E). Source: Vaswani 2017, §3.5; Gehring et al. 2017."""

    def __init__(self, ops: Ops, max_length: int, d_model: int, std: float | None = None) -> None:
        super().__init__(ops)
        self.table = Parameter((max_length, d_model), normal(std or 1 / math.sqrt(d_model)))

    def forward(self, x: Array, start: int = 0, padding: Array | None = None) -> tuple[Array, slice]:
        """x `(B, T, C)` plus the vectors of positions start, …, start + T − 1, less `padding` `(B,)` of each row."""
        places = slice(start, start + x.shape[1])
        if padding is not None:
            return x + rows_of(self.ops, self.table.value, places.start, places.stop, padding), places
        return x + self.table.value[places], places

    def backward(self, dout: Array, cache: slice) -> Array:
        """Return dx, which is dout; add its sum over the batch into the table's gradient. It knows no padding."""
        if self.table.trained:
            self.table.grad[cache] += dout.sum(0)
        return dout


def rows_of(ops: Ops, table: Array, start: int, stop: int, padding: Array) -> Array:
    """Return the rows of a table `(positions, C)` for the places start, …, stop − 1 of each sentence, `(B, T, C)`.

    Sentence b begins after `padding[b]` places, so place t is its position `t − padding[b]`. Padding gets row 0.
    """
    places = ops.asarray(range(start, stop), "int64") - padding[:, None]  # (B, T)
    places = places * (places > 0)
    return ops.take(table, places.reshape(-1)).reshape(*places.shape, table.shape[1])


def waves(ops: Ops, count: int, frequencies: list[float], dtype: str) -> tuple[Array, Array]:
    """Return the cosines and the sines of `position · frequency` for positions 0, …, `(count, frequencies)` each.

    The angles are Python floats: in float32 the angles of late positions would be wrong by a ten-thousandth.
    """
    angles = ops.asarray([math.fmod(pos * f, math.tau) for pos in range(count) for f in frequencies], dtype)
    angles = angles.reshape(count, len(frequencies))
    return ops.cos(angles), ops.sin(angles)
