"""Dropout: in training an element is set to 0 with probability `rate` and the others are divided by 1 − rate.

So the expectation does not change, and in evaluation nothing is dropped: `dropout_forward` and `dropout_backward` do
that. The rest of this file replaces a random generator: the mask is a function of where an element is, not of when it
was drawn. A site is one place in the model that drops; packed tokens are sentences end to end, unpadded, `(N, C)`.

Every element's 16 random bits are a hash of a key (seed, step, site) and of the element's coordinates (sentence,
position, channel; for attention weights sentence, head, query, key). So a mask does not depend on how a batch is split
over threads, packed or padded; a run repeats from its seed; and a GPU kernel computes the very same mask from the same
numbers.

The hash is Chris Wellons's `lowbias32` ("Prospecting for Hash Functions", 2018): a permutation of 32 bits, found by a
search for the least bias between each input bit and each output bit. One hash serves two neighbouring channels.
"""

from dataclasses import dataclass

import numpy as np

from .arguments import Array, arguments, check_integer, check_number, gradient_of, unchecked

RESOLUTION = 1 << 16
"""A mask compares 16 random bits with the rate: the rate is rounded to a multiple of 1/65536, and the scale with it."""

GOLDEN = 0x9E3779B9
"""2³² divided by the golden ratio, odd: its multiples spread evenly, so neighbouring channels start far apart."""


@dataclass(frozen=True)
class Dropout:
    """A rate in [0, 1), the key of one dropout site in one step, and the coordinates of the rows it is applied to.

    `sentence` and `position` number the first row of x `(B, T, C)`; for packed tokens `(N, C)` they may be arrays
    `(N,)` that number each row. A GPU's backend may keep the key in the GPU's memory, as two int32.
    Raises `ValueError` for a rate outside [0, 1), `TypeError` for a rate, key or coordinate that is not a number.
    """

    rate: float
    key: int | Array
    sentence: int | Array = 0
    position: int | Array = 0

    def __post_init__(self) -> None:
        if type(self.rate) is not float:
            check_number("rate", self.rate)
        if not 0 <= self.rate < 1:
            raise ValueError(f"rate is {self.rate}, expected a number in [0, 1)")
        for name in ("key", "sentence", "position"):
            value = getattr(self, name)
            if type(value) is not int and not hasattr(value, "dtype"):  # a backend may keep it in an array of its own
                check_integer(name, value)

    @property
    def threshold(self) -> int:
        """An element is dropped if its 16 random bits are below this number."""
        return min(round(self.rate * RESOLUTION), RESOLUTION - 1)

    @property
    def scale(self) -> float:
        """`1 / (1 − rate)` with the rate as rounded, so that the expectation is kept exactly."""
        return RESOLUTION / (RESOLUTION - self.threshold)


def dropout_key(seed: int, step: int, site: int) -> int:
    """Return the 64-bit key of a site in a step: three rounds of SplitMix64's finaliser (Steele, Lea, Flood 2014)."""
    state = 0
    for number in (seed, step, site):
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state


def check_dropout(name: str, value: object) -> None:
    """Raise `TypeError` unless the value is a `Dropout`."""
    if not isinstance(value, Dropout):
        raise TypeError(f"{name} must be a Dropout or None, got {type(value).__name__}")


@arguments("x ... C", dropout=check_dropout)
def dropout_forward(x: Array, dropout: Dropout | None) -> tuple[Array, tuple | None]:
    """`y = x · mask / (1 − rate)`, any shape; the identity when `dropout` is `None` or its rate rounds to 0.

    Source: Srivastava et al. 2014, in the inverted form; Vaswani 2017, §5.4.
    """
    if dropout is None or dropout.threshold == 0:
        return x, None
    kept, scale = dropout_mask(x.shape, dropout), x.dtype.type(dropout.scale)
    return x * kept * scale, (kept, scale)


@gradient_of(lambda kept, scale: (kept.shape, scale.dtype))
def dropout_backward(dy: Array, cache: tuple | None) -> Array:
    """`dx = dy · mask / (1 − rate)`: the forward is a diagonal matrix, which is its own transpose."""
    if cache is None:
        return dy
    kept, scale = cache
    return dy * kept * scale


drop, drop_backward = unchecked(dropout_forward), unchecked(dropout_backward)
"""For other ops, which have checked their arguments already."""


def dropout_mask(shape: tuple[int, ...], dropout: Dropout) -> Array:
    """Return the boolean mask, `True` = kept, of an x of this shape.

    The last axis is the channel; the axes before it give the row: `(B, T)` for sentence and position, `(B, H, T)` for
    attention weights, `(N,)` for packed tokens or for the positions of one sentence.
    """
    rows, width = row_hashes(shape[:-1], dropout), shape[-1]  # (N,)
    pairs = np.arange((width + 1) // 2, dtype=np.uint32) * np.uint32(GOLDEN)
    words = mix(rows[:, None] + pairs)  # (N, pairs of channels), 32 bits each
    # The low half belongs to the even channel and the high half to the odd one, on every machine.
    kept = words.astype("<u4", copy=False).view("<u2") >= dropout.threshold
    return kept[:, :width].reshape(shape)


def row_hashes(shape: tuple[int, ...], dropout: Dropout, last: Array | None = None) -> Array:
    """Return a 32-bit hash of each row, `(N,)`: the key's low half, the coordinates and the key's high half, mixed.

    `last` numbers the last axis, by default 0, 1, …
    """
    if not 0 <= len(shape) <= 3:
        raise ValueError(f"x has {len(shape) + 1} axes, expected (N, C), (B, T, C) or (B, H, Tq, Tk)")
    sentence, position = np.asarray(dropout.sentence), np.asarray(dropout.position)
    if sentence.ndim or position.ndim:
        if len(shape) != 1 or not sentence.shape == position.shape == shape:
            given = f"sentence {sentence.shape} and position {position.shape}"
            raise ValueError(f"dropout has {given}, expected two arrays {shape}, one number for each row of x (N, C)")
        coordinates = [sentence, position]
    else:
        numbers = list(map(np.arange, (1,) * (2 - len(shape)) + shape))
        numbers[-1] = numbers[-1] if last is None else last
        axes = np.meshgrid(*numbers, indexing="ij", sparse=True)
        coordinates = [axes[0] + sentence, *axes[1:-1], axes[-1] + position]
    hashes = np.array([dropout.key & 0xFFFFFFFF], dtype=np.uint32)  # an array: of a scalar's overflow NumPy warns
    for coordinate in (*coordinates, np.asarray(dropout.key >> 32)):
        hashes = mix(hashes ^ coordinate.astype(np.uint32))
    return hashes.reshape(-1)


def mix(x: Array) -> Array:
    """`lowbias32` of every element, uint32."""
    x = (x ^ x >> np.uint32(16)) * np.uint32(0x7FEB352D)
    x = (x ^ x >> np.uint32(15)) * np.uint32(0x846CA68B)
    return x ^ x >> np.uint32(16)
