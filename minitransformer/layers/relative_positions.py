"""Positions inside attention: rotations of queries and keys, and biases of its scores by distance."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ..config import Config, choice, flag, positive, require, whole
from ..ops import Array, Ops
from ..ops.initialize import normal
from ..ops.rope import bucket_of
from .parameter import Layer, Parameter
from .positions import FIRST_POSITIONS, waves


@dataclass(frozen=True)
class RotaryConfig(Config):
    """Rotary positions: pairs of the first `width` channels (default: all of a head) turn with the position.

    Pair i turns by `theta^(−2i/width)` a position. A pair is two neighbours as in the paper or, by default, channel i
    of each half as in Llama's files. `factor` and its three companions stretch slow rotations to reach beyond the
    length that a model was trained with, as Llama 3.1 does. `full_theta` is the theta of layers that see all, where
    other layers of the stack have a window (`SparseConfig.full_every`).
    """

    width: int | None = whole(None, least=2)
    theta: float = positive(10_000.0)
    interleaved: bool = flag(False)
    factor: float | None = positive(None)
    low_freq_factor: float = positive(1.0)
    high_freq_factor: float = positive(4.0)
    original_max_length: int = whole(8192)
    full_theta: float | None = positive(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.width is None or self.width % 2 == 0, f"width is {self.width}: rotary positions turn pairs")
        fits = self.low_freq_factor < self.high_freq_factor
        require(fits, f"low_freq_factor is {self.low_freq_factor}, expected less than {self.high_freq_factor}")

    def of_full_layers(self) -> "RotaryConfig":
        """Return the rotary positions of layers that see all."""
        return replace(self, theta=self.full_theta or self.theta, full_theta=None)

    def frequencies(self, width: int) -> list[float]:
        """Return the angle by which each pair turns in one position, for heads of this width."""
        width = self.width or width
        return [self._stretched(self.theta ** (-2 * i / width)) for i in range(width // 2)]

    def _stretched(self, frequency: float) -> float:
        """Llama 3.1's frequency: short waves stay, long ones turn `factor` times slower, between them interpolated."""
        if self.factor is None:
            return frequency
        turns = self.original_max_length * frequency / math.tau  # full turns within the length of training
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

    def make_tables(self) -> None:
        _ = self.tables

    def forward(self, x: Array, start: int = 0) -> tuple[Array, tuple]:
        """x `(B, H, T, D)` → x turned by the angles of positions start, …, start + T − 1."""
        stop = start + x.shape[2]
        cos, sin = self.tables
        if len(cos) < stop <= self.max_length:
            self.tables = cos, sin = self._tables(min(2 * stop, self.max_length))
        return self.ops.rope.forward(x, cos[start:stop], sin[start:stop], self.interleaved)

    def backward(self, dy: Array, cache: tuple) -> Array:
        """Return dx: dy, turned back."""
        return self.ops.rope.backward(dy, cache)

    def _tables(self, count: int) -> tuple[Array, Array]:
        cosines, sines = waves(self.ops, count, self.config.frequencies(self.width), self.dtype)
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
        self.known = -1, self.ops.zeros(0)  # the farthest distance r, and the buckets or biases of −r, …, r

    def forward(self, num_queries: int, num_keys: int) -> tuple[Array, tuple | None]:
        """Return the bias `(1, H, Tq, Tk)` of queries that end where the keys end."""
        reach, by_distance = self.known
        if reach < num_keys:
            reach, of_distances = 2 * num_keys, self._buckets if self.table else self._lines
            by_distance = of_distances(range(-reach, reach + 1))  # of the key's position less the query's
            self.known = reach, by_distance
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
        """Add dbias `(1, H, Tq, Tk)` into the gradient of T5's table."""
        if self.table is not None and self.table.trained and cache is not None:
            drows = dbias[0].swapaxes(0, 1).swapaxes(1, 2)  # (Tq, Tk, H)
            self.ops.embedding.backward(drows, cache, out=self.table.grad)

    def _buckets(self, distances: range) -> Array:
        buckets, longest = self.config.buckets, self.config.max_distance
        return self.ops.asarray([bucket_of(each, buckets, longest, self.causal) for each in distances], "int64")

    def _lines(self, distances: range) -> Array:
        slopes = [2 ** (-8 * h / self.num_heads) for h in range(1, self.num_heads + 1)]
        lines = [[-slope * abs(distance) for slope in slopes] for distance in distances]
        return self.ops.activations(self.ops.asarray(lines, self.dtype))
