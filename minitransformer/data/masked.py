"""Masked tokens, BERT's objective: some tokens of a text are hidden, and a model guesses them (Devlin et al. 2019)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batching import BOS_ID, PAD_ID, Batches, pad
from .rows import IGNORED, Rows
from .text import TextDataset
from .tokenizer import FIRST_BYTE

CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1
"""The share of a text's tokens that are targets; of these the share that is masked, and that is replaced by chance."""


class MaskedText:
    """A text whose batches hide tokens: a row is `<s> line </s>`, padded, so that rows are texts as a reader has them.

    Source: Devlin 2019, §3.1 and appendix A.1; masks are drawn anew each epoch, as in RoBERTa (Liu et al. 2019, §4.1).
    """

    def __init__(self, text: TextDataset) -> None:
        self.text = text

    def __len__(self) -> int:
        """The number of lines."""
        return len(self.text)

    def checksum(self) -> int:
        """The CRC-32 of all ids and lengths."""
        return self.text.checksum()

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> "MaskedBatches":
        """Batches (ids, targets, None, mask) of rows of about the same length.

        Raises ValueError for an id outside the vocabulary, a line that is too long for the model or for a batch, and a
        model without a mask's id.
        """
        if config.mask_id is None:
            raise ValueError("the model has no mask_id, the token that hides others")
        self.text.check(config.mask_id)
        return MaskedBatches(self.text, tokens_per_batch, seed, config)


class MaskedBatches:
    """The lines of each of `Batches`' batches, with tokens hidden by chance; what is hidden follows from its place."""

    def __init__(self, text: TextDataset, tokens_per_batch: int, seed: int | None, config: Any) -> None:
        # `Batches` counts one special token a line, and here the other one is counted already.
        self._batches = Batches(text.lines, tokens_per_batch, seed or 0, config.vocab_size, config.max_length)
        self._text, self._seed, self._mask_id = text, seed, config.mask_id

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._batches)

    def batch(self, epoch: int, index: int) -> Rows:
        """Batch `index` of `epoch`; the batches before it are not made."""
        epoch = 0 if self._seed is None else epoch
        ids = pad([[BOS_ID, *self._text[line]] for line in self._batches.indices(epoch, index)])
        rng = np.random.default_rng([self._seed or 0, epoch, index])
        hidden, targets = hide(ids, self._mask_id, rng)
        return Rows((hidden, targets, None, ids != PAD_ID))

    def epoch(self, epoch: int, start: int = 0) -> Any:
        """The batches of `epoch` in order, from batch `start` on."""
        return (self.batch(epoch, index) for index in range(start, len(self)))


def hide(ids: NDArray[np.int64], mask_id: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """ids `(B, T)` → the ids with some hidden, and the targets: what was there, −100 where nothing is asked.

    Of each row's tokens, the special ones aside, 15 % are targets, rounded, and at least one. Of the targets 80 %
    become `mask_id`, 10 % any token of the text's vocabulary, and 10 % stay.
    """
    is_text = ids >= FIRST_BYTE
    counts = np.maximum(1, np.rint(CHOSEN * is_text.sum(1))).astype(int)  # (B,)
    order = np.where(is_text, rng.random(ids.shape), 2.0).argsort(1).argsort(1)  # a token's place in a random order
    chosen = (order < counts[:, None]) & is_text
    kind = rng.random(ids.shape)
    hidden = np.where(chosen & (kind < MASKED), mask_id, ids)
    by_chance = chosen & (kind >= MASKED) & (kind < MASKED + RANDOM)
    hidden[by_chance] = rng.integers(FIRST_BYTE, mask_id, by_chance.sum())
    return hidden, np.where(chosen, ids, IGNORED)
