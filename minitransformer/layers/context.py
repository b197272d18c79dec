"""The context of a forward: its masks, memory, dropout and decoding cache in one value."""

from dataclasses import dataclass
from typing import Any

from ..ops import Array, Dropout, dropout_key
from .cache import Cache


@dataclass(frozen=True)
class DropoutStream:
    """The dropout of one training step: its seed, its number, and the number of the batch's first sentence.

    Each layer that drops has a site, a number that follows from its name, and takes its own mask from the stream.
    Replicas that work on parts of a batch get the same seed and step and the number of their own first sentence, so
    their masks are those of the whole batch.
    """

    seed: int
    step: int
    sentence: int = 0

    def at(self, site: int, rate: float) -> Dropout:
        """The dropout of one site."""
        return Dropout(rate, dropout_key(self.seed, self.step, site), self.sentence)


@dataclass(frozen=True)
class Context:
    """The context of a forward, which a model hands to its stacks, a stack to its blocks, a block to its layers.

    mask         `(B, T)`, `True` = a real position of the sequence, not padding; `None`: all are real; with a cache of
                 all positions so far
    memory       the encoder's output: for a Transformer `(B, Ts, C)`
    memory_mask  `(B, Ts)`, `True` = a real position of the memory; `None`: all are real
    dropout      the dropout of a training step; `None`: nothing is dropped
    cache        the cache of decoding, of earlier positions; `None`: the sequence is whole
    padding      `(B,)`, how many positions of padding stand to the left of each sequence; `None`: none
    token_types  `(B, T)`, BERT's number of the sentence that each token belongs to
    start        the position of a sequence's first token
    keep         whether a backward follows; if none does, a stack drops each block's cache, and attention on NumPy
                 takes the queries of a long sequence in blocks
    """

    mask: Array | None = None
    memory: Any = None
    memory_mask: Array | None = None
    dropout: DropoutStream | None = None
    cache: Cache | None = None
    padding: Array | None = None
    token_types: Array | None = None
    start: int = 0
    keep: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.dropout, DropoutStream | None):
            raise TypeError(f"dropout must be a DropoutStream or None, got {type(self.dropout).__name__}")

    @property
    def position(self) -> int:
        """The position of the first of these tokens."""
        return self.start if self.cache is None else self.cache.position

    @property
    def num_beams(self) -> int:
        """K: how many rows of the input belong to one sentence of the memory."""
        return 1 if self.cache is None else self.cache.num_beams

    def dropout_at(self, site: int, rate: float) -> Dropout | None:
        """The dropout of a layer with this site and rate; `None` where nothing is dropped."""
        return None if self.dropout is None or rate == 0 else self.dropout.at(site, rate)


PLAIN = Context()
"""No mask, no memory, no dropout, no past."""
