"""Batches of sentence pairs of about the same length, measured in tokens (Vaswani 2017, §5.1).

A batch is a rectangle of token ids, so a short sentence beside a long one is mostly padding. Therefore `Batches`
sorts an epoch's pairs by length, with ties in random order, cuts them into batches of at most `tokens_per_batch`, and
shuffles the batches. All of this follows from (seed, epoch): batch i of epoch e does not depend on the batches made
before it, so a stopped training resumes exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .tokenizer import BPETokenizer

if TYPE_CHECKING:
    from .token_dataset import TokenDataset

PAD_ID, BOS_ID, EOS_ID = BPETokenizer.pad_id, BPETokenizer.bos_id, BPETokenizer.eos_id

# Pairs with the same longer side are sorted by the difference of their sides plus a random number below this.
# 0 pads least, but then every epoch groups nearly the same sentences.
LENGTH_NOISE = np.float32(3)


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentence pairs, one a row, padded on the right.

    A row of `source` is ids </s>, of `target_in` <s> ids, of `target_out` ids </s>. `first` is the number of the
    first row among all sentences of a step: a sentence's dropout depends on its number.
    """

    source: NDArray[np.int64]  # (B, Ts)
    target_in: NDArray[np.int64]  # (B, Tt)
    target_out: NDArray[np.int64]  # (B, Tt)
    first: int = 0

    @property
    def inputs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """What the loss of an encoder–decoder takes."""
        return self.source, self.target_in, self.target_out

    @property
    def num_sentences(self) -> int:
        """The number of rows, B."""
        return len(self.source)

    @property
    def num_tokens(self) -> int:
        """The number of tokens that are read and written."""
        return self.num_source_tokens + self.num_target_tokens

    @property
    def num_source_tokens(self) -> int:
        """The number of source tokens, with </s> and without padding."""
        return int(np.count_nonzero(self.source != PAD_ID))

    @property
    def num_target_tokens(self) -> int:
        """The number of predicted tokens, with </s> and without padding."""
        return int(np.count_nonzero(self.target_out != PAD_ID))

    num_targets = num_target_tokens

    def split(self, n: int) -> list["Batch"]:
        """Cut the rows into `n` parts with about equally many tokens, each padded to its own longest sentence.

        Rows keep their order and, through `first`, their number; a part without rows is left out.
        Raises ValueError unless n ≥ 1.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        tokens = (self.source != PAD_ID).sum(axis=1) + (self.target_out != PAD_ID).sum(axis=1)  # (B,)
        end = np.cumsum(tokens)
        boundaries = np.arange(1, n) * tokens.sum() / n
        cuts = np.searchsorted(end - tokens / 2, boundaries)  # a row belongs to the part that holds its middle
        edges = np.unique([0, *cuts, len(tokens)]).tolist()
        parts = []
        for start, stop in pairwise(edges):
            rows = slice(start, stop)
            source, target_in, target_out = self.source[rows], self.target_in[rows], self.target_out[rows]
            parts.append(Batch(_trimmed(source), _trimmed(target_in), _trimmed(target_out), self.first + start))
        return parts


def _trimmed(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ids without the columns on the right that hold only padding."""
    return np.ascontiguousarray(ids[:, : (ids != PAD_ID).sum(axis=1).max()])


def pad(sequences: Sequence[ArrayLike], pad_id: int = PAD_ID) -> NDArray[np.int64]:
    """Stack sequences of ids into a (B, T) array with `pad_id` on the right; T is the longest sequence's length."""
    rows = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    padded = np.full((len(rows), max(map(len, rows), default=0)), pad_id, dtype=np.int64)
    for padded_row, row in zip(padded, rows, strict=True):
        padded_row[: len(row)] = row
    return padded


def check_special_ids(pad_id: int, bos_id: int, eos_id: int) -> None:
    """Raise ValueError unless a model's special ids are those of batches."""
    if (pad_id, bos_id, eos_id) != (PAD_ID, BOS_ID, EOS_ID):
        raise ValueError(
            f"pad_id, bos_id, eos_id are {pad_id}, {bos_id}, {eos_id} in the model, "
            f"but {PAD_ID}, {BOS_ID}, {EOS_ID} in the data"
        )


def as_ids(ids: ArrayLike) -> NDArray[np.int64]:
    """A sentence's token ids as a new array (T,).

    Raises TypeError if they are not integers, ValueError if one is not positive (0 is padding).
    """
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"token ids must be integers, got {array.dtype}")
    if array.min() <= 0:
        raise ValueError(f"token ids must be positive (0 is padding), got {array.min()}")
    return array.astype(np.int64)


def collate(sources: Sequence[ArrayLike], targets: Sequence[ArrayLike], first: int = 0) -> Batch:
    """Make a batch of sentence pairs, given as ids without special tokens; row i is pair i.

    Raises ValueError if there are not as many sources as targets, and as `as_ids` does.
    """
    if len(sources) != len(targets):
        raise ValueError(f"sources and targets must be pairs, got {len(sources)} sources and {len(targets)} targets")
    source_ids, target_ids = list(map(as_ids, sources)), list(map(as_ids, targets))
    return Batch(
        source=pad([np.append(ids, EOS_ID) for ids in source_ids]),
        target_in=pad([np.append(BOS_ID, ids) for ids in target_ids]),
        target_out=pad([np.append(ids, EOS_ID) for ids in target_ids]),
        first=first,
    )


class Batches:
    """A dataset's batches: every pair once an epoch, with pairs of about the same length together.

    The padded size of a batch, its longest side (with </s> or <s>) × its pairs, is at most `tokens_per_batch`. The
    grouping of pairs and the order of batches follow from (seed, epoch). Every epoch has `len(batches)` batches, so
    batch i of a whole training is `batches.batch(*divmod(i, len(batches)))`.

    Raises ValueError if the dataset is empty, if its longest sentence does not fit into a batch or has more than
    `max_length` tokens (with </s> or <s>), or if it holds an id outside a vocabulary of `vocab_size`.
    """

    def __init__(
        self,
        dataset: "TokenDataset",
        tokens_per_batch: int,
        seed: int = 0,
        vocab_size: int | None = None,
        max_length: int | None = None,
    ) -> None:
        if len(dataset) == 0:
            raise ValueError("the dataset has no sentence pairs")
        if vocab_size is not None and dataset.max_id >= vocab_size:
            raise ValueError(f"the dataset holds token id {dataset.max_id}, but the vocabulary has {vocab_size} tokens")
        self._dataset = dataset
        self._seed = seed
        self._longer = np.maximum(dataset.source_lengths, dataset.target_lengths) + 1  # (N,)
        longest = self._longer.max()
        if max_length is not None and longest > max_length:
            raise ValueError(f"max_length is {max_length}, but the longest sentence has {longest} tokens")
        self._edges = _cut(np.sort(self._longer), tokens_per_batch)
        self._epoch_order = lru_cache(maxsize=1)(self._shuffle)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._edges) - 1

    def indices(self, epoch: int, index: int) -> NDArray[np.int64]:
        """The numbers of the pairs in batch `index` of `epoch`, sorted by source length, then by target length.

        Sorted rows need less padding once the batch is split. Raises IndexError if the epoch has fewer batches.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"an epoch has batches 0 to {len(self) - 1}, got {index}")
        pairs, batches = self._epoch_order(epoch)
        start, stop = self._edges[batches[index] :][:2]
        chosen = pairs[start:stop]
        by_length = (self._dataset.target_lengths[chosen], self._dataset.source_lengths[chosen])
        return chosen[np.lexsort(by_length)]

    def batch(self, epoch: int, index: int) -> Batch:
        """Batch `index` of `epoch`; the batches before it are not made."""
        sources, targets = zip(*map(self._dataset.__getitem__, self.indices(epoch, index)), strict=True)
        return collate(sources, targets)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of `epoch` in order, from batch `start` on."""
        return (self.batch(epoch, index) for index in range(start, len(self)))

    def _shuffle(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of all pairs (N,), sorted by length with random ties, and the order of the batches."""
        rng = np.random.default_rng([self._seed, epoch])
        ties = LENGTH_NOISE * rng.random(len(self._longer), dtype=np.float32)
        ties += self._dataset.source_lengths - self._dataset.target_lengths
        # The cuts depend only on the sorted longer sides, which are the same in every epoch.
        pairs = np.lexsort((ties, self._longer))
        return pairs, rng.permutation(len(self))


def _cut(lengths: NDArray[np.integer], tokens_per_batch: int) -> NDArray[np.int64]:
    """The edges of the largest batches of ascending `lengths` in which longest × sentences ≤ tokens_per_batch."""
    if lengths[-1] > tokens_per_batch:
        raise ValueError(f"tokens_per_batch is {tokens_per_batch}, but the longest sentence has {lengths[-1]} tokens")
    edges = [0]
    while edges[-1] < len(lengths):
        start = edges[-1]
        candidates = lengths[start : start + tokens_per_batch // int(lengths[start])]
        padded_sizes = candidates.astype(np.int64) * np.arange(1, len(candidates) + 1)
        edges.append(start + int(np.searchsorted(padded_sizes, tokens_per_batch, side="right")))
    return np.array(edges)
