"""Span corruption, T5's objective: gaps are cut into a text, and a model fills them (Raffel et al. 2020, §3.3.4).

text    the dog barks at a cat that sleeps
source  the <0> at a cat <1> </s>
target  <0> dog barks <1> that sleeps </s>
"""

# Paper: in figure 2 text follows the last gap, and one more mark ends the target. Here, as in the authors' code, a row
# ends in a gap, and no further <n> ends the target.

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batching import EOS_ID, Batch, check_special_ids
from .rows import RowBatches, first_cut
from .text import TextDataset, TextTask

NOISE, MEAN_SPAN = 0.15, 3.0
"""The share of the tokens that is cut out, and the mean length of a gap."""

SENTINELS = 100
"""Tokens that mark gaps, the last of the vocabulary; gap i has id `vocab_size - 1 - i` with our tokenizer."""


class SpanText(TextTask):
    """A text whose batches have gaps. The rows are pieces of the stream of lines, all of one length: none is padded.

    `sentinel` is the id that marks the first gap, by default the last of the vocabulary: needed if the tokenizer is not
    ours.
    """

    def __init__(self, text: TextDataset, sentinel: int | None = None) -> None:
        super().__init__(text)
        self.sentinel = sentinel

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> RowBatches:
        """Return batches for an encoder–decoder with sentinels; a source has at most `config.max_length` tokens.

        Each epoch cuts the stream elsewhere, and the stream's ends are joined. Raises ValueError for an id that is a
        sentinel's or outside the vocabulary, and for special ids that are not those of the data.
        """
        check_special_ids(config.pad_id, config.bos_id, config.eos_id, self.text.lines.marks)
        vocab_size = config.vocab_size if self.sentinel is None else 1 + self.sentinel
        self.text.check(vocab_size - SENTINELS)
        stream = self.text.stream
        length = min(row_length(min(config.max_length, tokens_per_batch, len(stream))), len(stream))

        def make(rows: NDArray[np.int64], epoch: int, rng: np.random.Generator) -> Batch:
            places = (rows[:, None] * length + np.arange(length) + first_cut(seed, epoch, length)) % len(stream)
            corrupted = [corrupt(row, vocab_size, rng, config.eos_id) for row in stream[places].astype(np.int64)]
            source, target = map(np.stack, zip(*corrupted, strict=True))
            begin = np.full((len(rows), 1), config.bos_id)
            target_in = np.concatenate((begin, target[:, :-1]), axis=1)
            return Batch(source, target_in, target, pad_id=config.pad_id)

        size = max(1, tokens_per_batch // max(lengths(length)))
        return RowBatches(-(-len(stream) // length), size, seed, make)


def gaps(length: int) -> tuple[int, int]:
    """Return the number of tokens to cut out of a row of this length, and the number of gaps that they leave."""
    noise = min(max(round(NOISE * length), 1), length - 1)
    return noise, min(max(round(noise / MEAN_SPAN), 1), SENTINELS)


def lengths(length: int) -> tuple[int, int]:
    """Return the lengths of source and target for a row of this length: both with a sentinel for each gap and </s>."""
    noise, count = gaps(length)
    return length - noise + count + 1, noise + count + 1


def row_length(longest: int) -> int:
    """Return the length of the longest row whose source and target have at most `longest` tokens.

    Raises ValueError if there is none.
    """
    fitting = [length for length in range(2, 2 * longest) if max(lengths(length)) <= longest]
    if not fitting:
        raise ValueError(f"rows of {longest} tokens are too short to cut gaps into them")
    return fitting[-1]


def corrupt(
    row: NDArray[np.int64], vocab_size: int, rng: np.random.Generator, end: int = EOS_ID
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut gaps into a row `(T,)`; return source and target. Kept and cut pieces take turns, and a kept one is first.

    Gap i has the id `vocab_size - 1 - i`; `end` stands at the end of both.
    """
    noise, count = gaps(len(row))
    kept, cut = _pieces(len(row) - noise, count, rng), _pieces(noise, count, rng)
    source, target, place = [], [], 0
    for number, (keep, drop) in enumerate(zip(kept, cut, strict=True)):
        sentinel = [vocab_size - 1 - number]
        source += [row[place : place + keep], sentinel]
        target += [sentinel, row[place + keep : place + keep + drop]]
        place += keep + drop
    return np.concatenate([*source, [end]]), np.concatenate([*target, [end]])


def _pieces(total: int, count: int, rng: np.random.Generator) -> list[int]:
    """Draw the lengths of `count` pieces, 1 or more each, that sum to `total`; all divisions are equally likely."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff([0, *cuts, total]).tolist()
