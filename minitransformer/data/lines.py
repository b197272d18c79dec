"""Batches of a text's lines for an encoder: each row is `<s> line </s>`."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batching import pad
from .rows import Rows
from .text import TextDataset
from .token_dataset import Batches

Ids = NDArray[np.int64]


class LineBatches:
    """Batches (ids, targets, None, mask) of lines of about the same length, padded; each line once an epoch.

    `make(ids, lines, rng)` takes the ids `(B, T)` of the lines with the numbers `lines`, and returns the ids that the
    model sees and the targets. `rng` follows from the seed, the epoch and the number of the batch. Without a seed, all
    epochs equal the first. Raises ValueError as `Batches` does.
    """

    def __init__(
        self,
        text: TextDataset,
        tokens_per_batch: int,
        seed: int | None,
        config: Any,
        make: Callable[[Ids, Ids, np.random.Generator], tuple[Ids, Ids]],
    ) -> None:
        # `Batches` adds one special token to each line's length, for <s>: the text already has </s>.
        self._batches = Batches(text.lines, tokens_per_batch, seed or 0, config.vocab_size, config.max_length)
        self._text, self._seed, self._make, self._pad_id = text, seed, make, config.pad_id

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._batches)

    def batch(self, epoch: int, index: int) -> Rows:
        """Return batch `index` of `epoch`; the batches before it are not made."""
        epoch = 0 if self._seed is None else epoch
        lines = self._batches.indices(epoch, index)
        rows = [[self._text.lines.marks.begin, *self._text[line]] for line in lines]
        ids, lengths = pad(rows, self._pad_id), np.array(list(map(len, rows)))  # (B, T), (B,)
        seen, targets = self._make(ids, lines, np.random.default_rng([self._seed or 0, epoch, index]))
        return Rows((seen, targets, None, np.arange(ids.shape[1]) < lengths[:, None]))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Rows]:
        """Return the batches of `epoch` in order, from batch `start` on."""
        return (self.batch(epoch, index) for index in range(start, len(self)))
