"""Where tokens stand: vectors added to them, rotations of queries and keys, biases of attention's scores."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ..config import Config, choice, flag, positive, require, whole
from ..ops import Array, Ops
from ..ops.buckets import bucket_of
from ..ops.initialize import normal
from .parameter import Layer, Parameter

FIRST_POSITIONS = 8192
"""Rows of the tables that a model makes for its first sentence; it makes more once one is longer."""


# --- Added to the tokens --------------------------------------------------------------------------------------


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

    def forward(self, x: Array, start: int = 0, padding: Array | None = None) -> tuple[Array, None]:
        """x `(B, T, C)` plus the encodings of positions start, …, start + T − 1, less `padding` `(B,)` of each row."""
        stop = start + x.shape[1]
        table = self.table
        if len(table) < stop <= self.max_length:
            self.table = table = self._encodings(min(2 * stop, self.max_length))
        rows = table[start:stop] if padding is None else rows_of(self.ops, table, start, stop, padding)
        return x + rows, None

    def backward(self, dout: Array, cache: None) -> Array:
        """Returns dx, which is dout: a constant was added."""
        return dout

    def _encodings(self, count: int) -> Array:
        """The encodings of the first `count` positions, `(count, C)`."""
        half = self.d_model // 2
        cosines, sines = circle(self.ops, count, [10000 ** (-2 * i / self.d_model) for i in range(half)], self.dtype)
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
        """Returns dx, which is dout; adds its sum over the batch into the table's gradient. It knows no padding."""
        self.table.grad[cache] += dout.sum(0)
        return dout


def rows_of(ops: Ops, table: Array, start: int, stop: int, padding: Array) -> Array:
    """The rows start, …, stop − 1 of a table less `padding[b]` in row b of a batch, `(B, T, C)`.

    A position before a sentence's first is padding, whatever stands there: it gets row 0.
    """
    places = ops.asarray(range(start, stop), "int64") - padding[:, None]  # (B, T)
    places = places * (places > 0)
    return ops.take(table, places.reshape(-1)).reshape(*places.shape, table.shape[1])


def circle(ops: Ops, count: int, frequencies: list[float], dtype: str) -> tuple[Array, Array]:
    """The cosines and sines of `position · frequency` for the first `count` positions, `(count, frequencies)` each.

    The angles are Python floats: in float32 the angles of late positions would be wrong by a ten-thousandth.
    """
    angles = ops.asarray([math.fmod(pos * f, math.tau) for pos in range(count) for f in frequencies], dtype)
    angles = angles.reshape(count, len(frequencies))
    return ops.cos(angles), ops.sin(angles)


# --- Rotations of queries and keys ----------------------------------------------------------------------------


@dataclass(frozen=True)
class RotaryConfig(Config):
    """Rotary positions: pairs of the first `width` channels (default: all of a head) turn with the position.

    Pair i turns by `theta^(−2i/width)` a position. A pair is two neighbours as in the paper or, by default, channel i
    of each half as in Llama's files. `factor` and its three companions stretch slow rotations to reach beyond the
    length that a model was trained with, as Llama 3.1 does.
    """

    width: int | None = whole(None, least=2)
    theta: float = positive(10_000.0)
    interleaved: bool = flag(False)
    factor: float | None = positive(None)
    low_freq_factor: float = positive(1.0)
    high_freq_factor: float = positive(4.0)
    original_max_length: int = whole(8192)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.width is None or self.width % 2 == 0, f"width is {self.width}: rotary positions turn pairs")
        fits = self.low_freq_factor < self.high_freq_factor
        require(fits, f"low_freq_factor is {self.low_freq_factor}, expected less than {self.high_freq_factor}")

    def frequencies(self, width: int) -> list[float]:
        """The angle by which each pair turns in one position, for heads of this width."""
        width = self.width or width
        return [self._stretched(self.theta ** (-2 * i / width)) for i in range(width // 2)]

    def _stretched(self, frequency: float) -> float:
        """Llama 3.1's: short waves stay, long ones turn `factor` times slower, those between are interpolated."""
        if self.factor is None:
            return frequency
        turns = self.original_max_length * frequency / math.tau  # within the length of training
        share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        share = min(max(share, 0.0), 1.0)
        return (1 - share) * frequency / self.factor + share * frequency


class Rotary(Layer):
    """Turns pairs of channels of queries and keys, so that their products depend on distances alone.

    Source: Su et al. 2021, §3.2.2, eq. 15 and 34.
    """

    def __init__(self, ops: Ops, config: RotaryConfig, width: int, max_length: int, dtype: str) -> None:
        super().__init__(ops)
        self.config, self.width, self.interleaved = config, width, config.interleaved
        self.max_length, self.dtype = max_length, dtype

    @cached_property
    def tables(self) -> tuple[Array, Array]:
        """The cosines and sines of the first positions, or of more once they were needed."""
        return self._tables(min(self.max_length, FIRST_POSITIONS))

    def forward(self, x: Array, start: int = 0) -> tuple[Array, tuple]:
        """x `(B, H, T, D)`, turned as its positions start, …, start + T − 1 say."""
        stop = start + x.shape[2]
        cos, sin = self.tables
        if len(cos) < stop <= self.max_length:
            self.tables = cos, sin = self._tables(min(2 * stop, self.max_length))
        return self.ops.rope.forward(x, cos[start:stop], sin[start:stop], self.interleaved)

    def backward(self, dy: Array, cache: tuple) -> Array:
        """Returns dx: dy, turned back."""
        return self.ops.rope.backward(dy, cache)

    def _tables(self, count: int) -> tuple[Array, Array]:
        cosines, sines = circle(self.ops, count, self.config.frequencies(self.width), self.dtype)
        return self.ops.activations(cosines), self.ops.activations(sines)


# --- Biases of the scores -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BiasConfig(Config):
    """A bias of attention's scores by distance: T5's, learned for `buckets` of distances, or ALiBi's, a straight line.

    T5's buckets hold one distance each at first and then ever more, up to `max_distance` and beyond in the last.
    """

    kind: Literal["t5", "alibi"] = choice("t5", "alibi", default="t5")
    buckets: int = whole(32, least=4)
    max_distance: int = whole(128)

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.buckets % 2 == 0 and self.max_distance > self.buckets // 2
        require(fits, f"buckets is {self.buckets}, expected an even number below twice max_distance")


class RelativeBias(Layer):
    """A bias of every head's scores that depends on how far a key stands from the query.

    T5's table `(buckets, H)` is learned, from N(0, std²) on; all blocks of a stack share it. ALiBi subtracts
    `2^(−8h/H) · distance` for heads h = 1, …, H. Source: Raffel et al. 2020, §2.1; Press, Smith, Lewis 2022, §3.
    """

    def __init__(
        self, ops: Ops, config: BiasConfig, num_heads: int, causal: bool, dtype: str, std: float = 1.0
    ) -> None:
        super().__init__(ops)
        self.config, self.num_heads, self.causal, self.dtype = config, num_heads, causal, dtype
        self.table = Parameter((config.buckets, num_heads), normal(std)) if config.kind == "t5" else None
        self.known = -1, self.ops.zeros(0)  # the farthest distance, and what belongs to each from −it to it

    def forward(self, num_queries: int, num_keys: int) -> tuple[Array, tuple | None]:
        """The bias `(1, H, Tq, Tk)` of queries that end where the keys end."""
        reach, by_distance = self.known
        if reach < num_keys:
            distances = range(-2 * num_keys, 2 * num_keys + 1)  # of a key from its query: before it is negative
            self.known = reach, by_distance = 2 * num_keys, (self._buckets if self.table else self._lines)(distances)
        key = self.ops.asarray(range(num_keys), "int64")
        query = self.ops.asarray(range(num_keys - num_queries, num_keys), "int64")
        places = (key - query[:, None] + reach).reshape(-1)
        found = self.ops.take(by_distance, places)
        shape = num_queries, num_keys
        if self.table is None:
            return found.reshape(1, *shape, self.num_heads).swapaxes(2, 3).swapaxes(1, 2), None
        bias, cache = self.ops.embedding.forward(found.reshape(shape), self.table.value)  # (Tq, Tk, H)
        return bias.swapaxes(1, 2).swapaxes(0, 1)[None], cache

    def backward(self, dbias: Array, cache: tuple | None) -> None:
        """Adds dbias `(1, H, Tq, Tk)` into the gradient of T5's table."""
        if self.table is not None and cache is not None:
            drows = dbias[0].swapaxes(0, 1).swapaxes(1, 2)  # (Tq, Tk, H)
            self.ops.embedding.backward(drows, cache, out=self.table.grad)

    def _buckets(self, distances: range) -> Array:
        buckets, longest = self.config.buckets, self.config.max_distance
        return self.ops.asarray([bucket_of(each, buckets, longest, self.causal) for each in distances], "int64")

    def _lines(self, distances: range) -> Array:
        slopes = [2 ** (-8 * h / self.num_heads) for h in range(1, self.num_heads + 1)]
        lines = [[-slope * abs(distance) for slope in slopes] for distance in distances]
        return self.ops.activations(self.ops.asarray(lines, self.dtype))
