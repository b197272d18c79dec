"""Masked tokens, BERT's objective: some tokens of a text are hidden, and a model guesses them (Devlin et al. 2019)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .lines import LineBatches
from .rows import IGNORED
from .text import TextDataset, TextTask
from .tokenizer import FIRST_BYTE

MASK = "[MASK]"
"""The text of a masked token."""

CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1
"""The share of a text's words that are targets, and the shares of targets that are masked or become any word."""


class MaskedText(TextTask):
    """A text whose batches hide tokens: a row is `<s> line </s>`, padded.

    words: the ids that may be hidden and that may replace others, needed if the tokenizer is not ours: the `words` of a
    `PretrainedTokenizer`.
    Source: Devlin 2019, §3.1 and appendix A.1; masks are drawn anew each epoch, as in RoBERTa (Liu et al. 2019, §4.1).
    """

    def __init__(self, text: TextDataset, words: ArrayLike | None = None) -> None:
        super().__init__(text)
        self.words = None if words is None else np.asarray(words, np.int64)

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> LineBatches:
        """Return batches (ids, targets, None, mask) of rows of about the same length.

        Raises ValueError for an id outside the vocabulary, a line that is too long for the model or for a batch, and a
        model without a mask's id.
        """
        if config.mask_id is None:
            raise ValueError("the model has no mask_id, the token that hides others")
        self.text.check(config.mask_id if self.words is None else config.vocab_size)
        return LineBatches(
            self.text,
            tokens_per_batch,
            seed,
            config,
            lambda ids, lines, rng: hide(ids, config.mask_id, rng, self.words),
        )


def hide(
    ids: NDArray[np.int64], mask_id: int, rng: np.random.Generator, words: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hide some of the ids `(B, T)`; return the ids with masks, and the targets: the chosen ids, elsewhere −100.

    15 % of each row's words are targets, rounded, and at least one. 80 % of the targets become `mask_id`, 10 % any
    word, and 10 % stay. Words are by default the ids from our tokenizer's first byte up to the mask; all other tokens
    are special, and are never targets.
    """
    words = np.arange(FIRST_BYTE, mask_id) if words is None else words
    is_text = np.isin(ids, words)
    counts = np.maximum(1, np.rint(CHOSEN * is_text.sum(1))).astype(int)  # (B,)
    order = np.where(is_text, rng.random(ids.shape), 2.0).argsort(1).argsort(1)  # a token's place in a random order
    chosen = (order < counts[:, None]) & is_text
    kind = rng.random(ids.shape)
    hidden = np.where(chosen & (kind < MASKED), mask_id, ids)
    by_chance = chosen & (kind >= MASKED) & (kind < MASKED + RANDOM)
    hidden[by_chance] = words[rng.integers(len(words), size=by_chance.sum())]
    return hidden, np.where(chosen, ids, IGNORED)
