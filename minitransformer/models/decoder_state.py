"""What a translation under way remembers of the positions so far, for every beam of every sentence."""

from abc import ABC, abstractmethod

from ..ops import Array, Ops

FIRST_ROOM = 32
"""Positions that a fresh cache has room for; the room doubles when it is full."""


class BeamState(ABC):
    """B sentences with K beams each. `position`: how many tokens each beam has.

    `memory_caches`: for each layer that attends to the memory its keys and values, `(B, …)`, shared by a sentence's
    beams. What a beam remembers of its own tokens is a row of B·K, and belongs to the kinds of model.
    """

    def __init__(self, ops: Ops, memory_caches: list[tuple[Array, Array]], memory_mask: Array, num_beams: int) -> None:
        self.ops = ops
        self.memory_caches = memory_caches
        self.memory_mask = None if memory_mask.all() else memory_mask  # (B, Ts); None: nothing is padded
        self.batch, self.num_beams = memory_mask.shape[0], num_beams
        self.position = 0

    def reorder(self, beams: Array) -> None:
        """beams `(B, K)`, on the host: the new beam k of sentence b goes on from its old beam `beams[b, k]`.

        Raises `ValueError` for another shape or a beam that there is not.
        """
        if tuple(beams.shape) != (self.batch, self.num_beams):
            raise ValueError(f"beams has shape {tuple(beams.shape)}, expected (B, K), {(self.batch, self.num_beams)}")
        if ((beams < 0) | (beams >= self.num_beams)).any():
            raise ValueError(f"beams must be numbers from 0 to {self.num_beams - 1}, got {beams.tolist()}")
        first = self.ops.asarray(range(self.batch), "int64")[:, None] * self.num_beams  # (B, 1)
        self._take_rows((first + self.ops.asarray(beams, "int64")).reshape(-1))

    def select(self, sentences: Array) -> None:
        """sentences `(B′,)`, on the host: keeps only these, in this order, with all their beams.

        Raises `ValueError` for a sentence that there is not, or for none.
        """
        if sentences.ndim != 1 or not len(sentences) or sentences.min() < 0 or sentences.max() >= self.batch:
            raise ValueError(f"sentences must be some numbers from 0 to {self.batch - 1}, got {sentences.tolist()}")
        sentences = self.ops.asarray(sentences, "int64")
        rows = sentences[:, None] * self.num_beams + self.ops.asarray(range(self.num_beams), "int64")  # (B′, K)
        self._take_rows(rows.reshape(-1))
        take = self.ops.take
        self.memory_caches = [(take(keys, sentences), take(values, sentences)) for keys, values in self.memory_caches]
        if self.memory_mask is not None:
            self.memory_mask = take(self.memory_mask, sentences)
        self.batch = len(sentences)

    @abstractmethod
    def _take_rows(self, rows: Array) -> None:
        """Keeps only these rows of B·K, in this order."""


class DecoderState(BeamState):
    """The Transformer's: the keys and values of every position so far.

    `memory_caches` are `(B, H, Ts, D)` each; `self_caches`: for each layer those of the tokens so far, `(B·K, H, room,
    D)`.
    """

    def __init__(self, ops: Ops, memory_caches: list[tuple[Array, Array]], memory_mask: Array, num_beams: int) -> None:
        super().__init__(ops, memory_caches, memory_mask, num_beams)
        self.self_caches = [
            (self._zeros(keys, FIRST_ROOM), self._zeros(values, FIRST_ROOM)) for keys, values in memory_caches
        ]

    def room(self) -> list[tuple[Array, Array]]:
        """Each layer's keys and values `(B·K, H, room, D)`, with room for one position more."""
        if self.self_caches and self.self_caches[0][0].shape[2] == self.position:
            self.self_caches = [(self._doubled(keys), self._doubled(values)) for keys, values in self.self_caches]
        return self.self_caches

    def _take_rows(self, rows: Array) -> None:
        self.self_caches = [(self._taken(keys, rows), self._taken(values, rows)) for keys, values in self.self_caches]

    def _taken(self, cache: Array, rows: Array) -> Array:
        """The rows of a cache; only the positions so far are copied."""
        _, heads, room, width = cache.shape
        taken = self.ops.zeros((len(rows), heads, room, width), cache.dtype)
        taken[:, :, : self.position] = self.ops.take(cache[:, :, : self.position], rows)
        return taken

    def _zeros(self, like: Array, room: int) -> Array:
        _, heads, _, width = like.shape
        return self.ops.zeros((self.batch * self.num_beams, heads, room, width), like.dtype)

    def _doubled(self, cache: Array) -> Array:
        return self.ops.concatenate([cache, self._zeros(cache, cache.shape[2])], axis=2)


class RowState(BeamState):
    """What a beam remembers stays of one size as it grows: `rows`, for each layer some arrays `(B·K, …)`."""

    def __init__(
        self,
        ops: Ops,
        rows: list[tuple[Array, ...]],
        memory_caches: list[tuple[Array, Array]],
        memory_mask: Array,
        num_beams: int,
    ) -> None:
        super().__init__(ops, memory_caches, memory_mask, num_beams)
        self.rows = rows

    def _take_rows(self, rows: Array) -> None:
        self.rows = [tuple(self.ops.take(array, rows) for array in layer) for layer in self.rows]
