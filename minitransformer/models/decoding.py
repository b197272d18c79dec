"""The state of an unfinished text: the layers' cache, and the context of each step."""

from typing import Any

from ..layers import Cache, Context
from ..ops import Array


class Decoding:
    """The layers' cache of B sentences with K beams each, and what all steps have in common.

    memory, memory_mask  of an encoder–decoder; the memory itself only until the layers have read it
    output               the output layer's weight `(C, V)`, where a copy serves decoding better than the model's own
    padding              `(B,)`: how many positions of padding stand to the left of each prompt; `None`: none
    """

    def __init__(
        self, cache: Cache, memory: Any = None, memory_mask: Array | None = None, padding: Array | None = None
    ) -> None:
        self.cache, self.memory, self.padding = cache, memory, padding
        self.output: Array | None = None
        padded = memory_mask is not None and not memory_mask.all()
        self.memory_mask = memory_mask if padded else None  # (B, Ts)

    @property
    def position(self) -> int:
        """The number of tokens that each beam has."""
        return self.cache.position

    @property
    def shape(self) -> tuple[int, int]:
        """Sentences and beams, (B, K)."""
        return self.cache.batch, self.cache.num_beams

    def newest(self, ids: Any, longest: int) -> Array:
        """Return ids `(B, K)` as `(B·K, 1)`. Raises `ValueError` for another shape, and beyond the longest text."""
        ids, shape = self.cache.ops.asarray(ids), self.shape
        if self.cache.position >= longest:
            raise ValueError(f"position {self.cache.position} is beyond the model's max_length of {longest}")
        if tuple(ids.shape) != shape:
            raise ValueError(f"ids has shape {tuple(ids.shape)}, expected (B, K), {shape}")
        return ids.reshape(-1, 1)

    def context(self, num_tokens: int) -> Context:
        """Return the context in which layers read the next `num_tokens` tokens of every beam."""
        if self.padding is None:
            return Context(memory=self.memory, memory_mask=self.memory_mask, cache=self.cache, keep=False)
        asarray, (batch, beams) = self.cache.ops.asarray, self.shape
        padding = (self.padding[:, None] + asarray([0] * beams, "int64")).reshape(batch * beams)
        mask = asarray(range(self.position + num_tokens), "int64") >= padding[:, None]  # (B·K, Tk)
        return Context(mask, cache=self.cache, padding=padding, keep=False)

    def reorder(self, beams: Array) -> None:
        """Continue from other beams: see `Cache.reorder`."""
        self.cache.reorder(beams)

    def select(self, sentences: Array) -> None:
        """Keep only these sentences: see `Cache.select`."""
        self.cache.select(sentences)
        kept = self._rows((self.memory, self.memory_mask, self.padding), sentences)
        self.memory, self.memory_mask, self.padding = kept

    def _rows(self, value: Any, sentences: Array) -> Any:
        """Return these sentences' rows of every array `(B, …)` in nested tuples and lists; `None` stays `None`."""
        if isinstance(value, tuple | list):
            return type(value)(self._rows(item, sentences) for item in value)
        ops = self.cache.ops
        return None if value is None else ops.take(value, ops.asarray(sentences, "int64"))
