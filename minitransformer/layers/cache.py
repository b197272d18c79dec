"""The cache of decoding: keys, values and states of the positions so far, for every beam."""

from ..ops import Array, Ops

FIRST_ROOM = 32
"""New arrays of keys and values have room for this many positions; the room doubles when it is full."""


class Cache:
    """The cache of the positions before `position`, by layer name, for B sentences with K beams each.

    A row is one beam of one sentence; there are B·K. Layers keep three kinds of arrays: the keys and values of a
    self-attention, which grow by one position a step; arrays of constant size, such as a recurrent state; and arrays
    that all beams of a sentence share (the keys and values of the memory), computed at the first position.
    """

    def __init__(self, ops: Ops, batch: int, num_beams: int) -> None:
        self.ops, self.batch, self.num_beams = ops, batch, num_beams
        self.position = 0
        self.least = 0  # how far `go_back` can go
        self.grown: dict[str, tuple[Array, Array, int]] = {}  # (B·K, Hk, room, D) each, and their first position
        self.rows: dict[str, tuple[Array, ...]] = {}  # (B·K, …) each
        self.shared: dict[str, tuple[Array, ...]] = {}  # (B, …) each

    def extended(self, name: str, key: Array, value: Array, window: int | None = None) -> tuple[Array, Array]:
        """Store keys and values `(B·K, Hk, T, D)` from `position` on, and return those of all positions so far.

        They are copied into free room, so that a step costs only what it adds. With a `window` only the `window`
        positions before the new ones are returned, and no more are kept than twice as many.
        """
        keys, values, first = self.grown.get(name) or (key[:, :, :0], value[:, :, :0], self.position)
        start, room = self.position - first, keys.shape[2]  # where new positions go, and the room
        stop = start + key.shape[2]
        if room < stop:
            kept = start if window is None else min(start, window)
            self.least = self.position if kept < start else self.least
            start, stop, old = kept, kept + key.shape[2], slice(start - kept, start)
            room = max(2 * kept, FIRST_ROOM, stop)
            keys, values = self._with_room(keys[:, :, old], room), self._with_room(values[:, :, old], room)
            self.grown[name] = keys, values, self.position - kept
        keys[:, :, start:stop], values[:, :, start:stop] = key, value
        seen = slice(0 if window is None else max(start - window, 0), stop)
        return keys[:, :, seen], values[:, :, seen]

    def go_back(self, position: int) -> bool:
        """Forget what is at this position and after it; return False, and forget nothing, if that can't be done.

        A recurrent state has no past, and a window lets go of what it needs before `least`.
        """
        if position < self.position and (self.rows or position < self.least):
            return False
        self.position = position
        return True

    def spread(self, num_beams: int) -> None:
        """Copy each sentence's one row to `num_beams` beams."""
        if num_beams > 1:
            copies = self.ops.asarray([row for row in range(self.batch) for _ in range(num_beams)], "int64")
            take = self.ops.take
            self.rows = {name: tuple(take(array, copies) for array in kept) for name, kept in self.rows.items()}
            for name, (keys, values, first) in self.grown.items():
                self.grown[name] = take(keys, copies), take(values, copies), first
            self.num_beams = num_beams

    def reorder(self, beams: Array) -> None:
        """Let new beam k of sentence b continue its old beam `beams[b, k]`; beams `(B, K)` is on the host.

        Raises `ValueError` for another shape and for a number that is not a beam.
        """
        if tuple(beams.shape) != (self.batch, self.num_beams):
            raise ValueError(f"beams has shape {tuple(beams.shape)}, expected (B, K), {(self.batch, self.num_beams)}")
        if ((beams < 0) | (beams >= self.num_beams)).any():
            raise ValueError(f"beams must be numbers from 0 to {self.num_beams - 1}, got {beams.tolist()}")
        self._keep_rows([b * self.num_beams + k for b, row in enumerate(beams.tolist()) for k in row])

    def select(self, sentences: Array) -> None:
        """Keep only these sentences `(B′,)`, an array on the host, in this order and with all their beams.

        Raises `ValueError` for no sentence, for one that comes twice and for a number that is not a sentence.
        """
        kept = sentences.tolist()
        if sentences.ndim != 1 or not kept or min(kept) < 0 or max(kept) >= self.batch or len({*kept}) < len(kept):
            raise ValueError(f"sentences must be some numbers from 0 to {self.batch - 1}, none twice, got {kept}")
        self._keep_rows([b * self.num_beams + k for b in kept for k in range(self.num_beams)])
        moves = self._moves(kept)
        self.shared = {name: tuple(moved(array, *moves) for array in each) for name, each in self.shared.items()}
        self.batch = len(kept)

    def _keep_rows(self, rows: list[int]) -> None:
        """Keep only these of the B·K rows, in this order; copy growing arrays up to `position` only."""
        moves, all_rows = self._moves(rows), self.ops.asarray(rows, "int64")
        self.rows = {name: tuple(self.ops.take(array, all_rows) for array in kept) for name, kept in self.rows.items()}
        for name, (keys, values, first) in self.grown.items():
            filled = self.position - first
            self.grown[name] = moved(keys, *moves, filled), moved(values, *moves, filled), first

    def _moves(self, kept: list[int]) -> tuple[Array, Array, int]:
        """Return the places whose row changes, the old rows that come there, and how many rows are kept."""
        places = [place for place, row in enumerate(kept) if place != row]
        asarray = self.ops.asarray
        return asarray(places, "int64"), asarray([kept[place] for place in places], "int64"), len(kept)

    def _with_room(self, array: Array, room: int) -> Array:
        """Return a copy of `(N, H, T, D)` with room for `room` positions."""
        rows, heads, time, width = array.shape
        copy = self.ops.zeros((rows, heads, room, width), array.dtype)
        copy[:, :, :time] = array
        return copy


class ByteCache(Cache):
    """A cache whose growing keys and values are whole numbers of a byte, times a scale of each head and position.

    The scale is max |k| / 127, so each number is wrong by at most max |k| / 254. (The scale itself is rounded to the
    dtype of the keys: coarsely where it is below 6e-5 in float16.) They take (D + 4) / 4D of float32's memory.
    """

    def extended(self, name: str, key: Array, value: Array, window: int | None = None) -> tuple[Array, Array]:
        """Store keys and values as `Cache` does; return what is kept of them, in their own dtype."""
        (key, key_scale), (value, value_scale) = self._in_bytes(key), self._in_bytes(value)
        keys, values = super().extended(name, key, value, window)
        key_scales, value_scales = super().extended(f"{name}: scales", key_scale, value_scale, window)
        cast, dtype = self.ops.cast, key_scales.dtype
        return (cast(keys, dtype) - 127) * key_scales, (cast(values, dtype) - 127) * value_scales

    def _in_bytes(self, x: Array) -> tuple[Array, Array]:
        """Round `(N, H, T, D)` to scale · (q − 127), q = 0, …, 254; return q and the scales `(N, H, T, 1)`."""
        most = self.ops.topk(abs(x), 1)[0]
        parts = x / (most + (most == 0))  # at most 1, also where a 127th of it is no normal number
        return self.ops.cast(parts * 127 + 127.5, "uint8"), most * (1 / 127)  # cut off: the nearest number


def moved(array: Array, places: Array, rows: Array, count: int, filled: int | None = None) -> Array:
    """Copy `rows` to `places` of the array itself, and return its first `count` rows.

    filled: of `(N, H, T, D)` only the first positions hold something.
    """
    if len(places):
        content = array if filled is None else array[:, :, :filled]
        content[places] = content[rows]
    return array[:count]
