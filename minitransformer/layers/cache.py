"""The cache of decoding: what each layer remembers of the positions so far, for every beam."""

from ..ops import Array, Ops

FIRST_ROOM = 32
"""New arrays of keys and values have room for this many positions; the room doubles when it is full."""


class Cache:
    """What layers keep of the positions before `position`, each under its name, for B sentences with K beams each.

    A row is one beam of one sentence; there are B·K. Layers keep three kinds of arrays: the keys and values of a
    self-attention, which grow by one position a step; arrays of constant size, such as a recurrent state; and arrays
    that all beams of a sentence share (the keys and values of the memory), computed at the first position.
    """

    def __init__(self, ops: Ops, batch: int, num_beams: int) -> None:
        self.ops, self.batch, self.num_beams = ops, batch, num_beams
        self.position = 0
        self.grown: dict[str, tuple[Array, Array, int]] = {}  # (B·K, Hk, room, D) each, and their first position
        self.rows: dict[str, tuple[Array, ...]] = {}  # (B·K, …) each
        self.shared: dict[str, tuple[Array, ...]] = {}  # (B, …) each

    def extended(self, name: str, key: Array, value: Array, window: int | None = None) -> tuple[Array, Array]:
        """Stores keys and values `(B·K, Hk, T, D)` from `position` on, and returns those of all positions so far.

        They are copied into free room, so that a step costs only what it adds. With a `window` only the `window`
        positions before the new ones are returned, and no more are kept than twice as many.
        """
        keys, values, first = self.grown.get(name) or (key[:, :, :0], value[:, :, :0], self.position)
        start, room = self.position - first, keys.shape[2]  # within the arrays
        stop = start + key.shape[2]
        if room < stop:
            kept = start if window is None else min(start, window)
            start, stop, old = kept, kept + key.shape[2], slice(start - kept, start)
            room = max(2 * kept, FIRST_ROOM, stop)
            keys, values = self._with_room(keys[:, :, old], room), self._with_room(values[:, :, old], room)
            self.grown[name] = keys, values, self.position - kept
        keys[:, :, start:stop], values[:, :, start:stop] = key, value
        seen = slice(0 if window is None else max(start - window, 0), stop)
        return keys[:, :, seen], values[:, :, seen]

    def spread(self, num_beams: int) -> None:
        """Gives each sentence, which has one row so far, `num_beams` beams that have the same past."""
        if num_beams > 1:
            copies = self.ops.asarray([0] * num_beams, "int64")
            self._take_rows((self.ops.asarray(range(self.batch), "int64")[:, None] + copies).reshape(-1))
            self.num_beams = num_beams

    def reorder(self, beams: Array) -> None:
        """beams `(B, K)`, on the host: the new beam k of sentence b continues the old beam `beams[b, k]`.

        Raises `ValueError` for another shape and for a number that is not a beam.
        """
        if tuple(beams.shape) != (self.batch, self.num_beams):
            raise ValueError(f"beams has shape {tuple(beams.shape)}, expected (B, K), {(self.batch, self.num_beams)}")
        if ((beams < 0) | (beams >= self.num_beams)).any():
            raise ValueError(f"beams must be numbers from 0 to {self.num_beams - 1}, got {beams.tolist()}")
        first = self.ops.asarray(range(self.batch), "int64")[:, None] * self.num_beams  # (B, 1)
        self._take_rows((first + self.ops.asarray(beams, "int64")).reshape(-1))

    def select(self, sentences: Array) -> None:
        """sentences `(B′,)`, on the host: keeps only these, in this order, with all their beams.

        Raises `ValueError` for no sentence and for a number that is not a sentence.
        """
        if sentences.ndim != 1 or not len(sentences) or sentences.min() < 0 or sentences.max() >= self.batch:
            raise ValueError(f"sentences must be some numbers from 0 to {self.batch - 1}, got {sentences.tolist()}")
        sentences = self.ops.asarray(sentences, "int64")
        rows = sentences[:, None] * self.num_beams + self.ops.asarray(range(self.num_beams), "int64")  # (B′, K)
        self._take_rows(rows.reshape(-1))
        take = self.ops.take
        self.shared = {name: tuple(take(array, sentences) for array in kept) for name, kept in self.shared.items()}
        self.batch = len(sentences)

    def _take_rows(self, rows: Array) -> None:
        """Keeps only these of the B·K rows, in this order; copies growing arrays up to `position` only."""
        take, grown = self.ops.take, self.grown
        self.rows = {name: tuple(take(array, rows) for array in kept) for name, kept in self.rows.items()}
        for name, (*kept, first) in grown.items():
            filled = self.position - first
            keys, values = (self._with_room(take(array[:, :, :filled], rows), array.shape[2]) for array in kept)
            grown[name] = keys, values, first

    def _with_room(self, array: Array, room: int) -> Array:
        """A copy of `(N, H, T, D)` with room for `room` positions."""
        rows, heads, time, width = array.shape
        copy = self.ops.zeros((rows, heads, room, width), array.dtype)
        copy[:, :, :time] = array
        return copy
