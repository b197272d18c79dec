"""A batch of sentence pairs: a rectangle of token ids, with padding beside the shorter sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .tokenizer import BPETokenizer

PAD_ID, BOS_ID, EOS_ID = BPETokenizer.pad_id, BPETokenizer.bos_id, BPETokenizer.eos_id


class Marks(NamedTuple):
    """The ids that pad, begin and end sentences; by default our tokenizer's."""

    pad: int = PAD_ID
    begin: int = BOS_ID
    end: int = EOS_ID


OURS = Marks()


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentence pairs, one in each row, padded on the right.

    A row of `source` is ids </s>, of `target_in` <s> ids, of `target_out` ids </s>. `first` is the number of the
    first row among all sentences of a step: a sentence's dropout depends on its number. `pad_id` is the padding.
    `masks` are those that the loss gets by name.
    """

    source: NDArray[np.int64]  # (B, Ts)
    target_in: NDArray[np.int64]  # (B, Tt)
    target_out: NDArray[np.int64]  # (B, Tt)
    first: int = 0
    pad_id: int = PAD_ID
    masks: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The arguments of an encoder–decoder's loss."""
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
        return int(np.count_nonzero(self.source != self.pad_id))

    @property
    def num_target_tokens(self) -> int:
        """The number of predicted tokens, with </s> and without padding."""
        return int(np.count_nonzero(self.target_out != self.pad_id))

    num_targets = num_target_tokens

    def split(self, n: int) -> list["Batch"]:
        """Cut the rows into `n` parts with about equally many tokens, each padded to its own longest sentence.

        Rows keep their order and, through `first`, their number; a part without rows is left out.
        Raises ValueError unless n ≥ 1.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        reads, writes = ((ids != self.pad_id).sum(axis=1) for ids in (self.source, self.target_out))
        tokens = reads + writes  # (B,)
        end = np.cumsum(tokens)
        boundaries = np.arange(1, n) * tokens.sum() / n
        cuts = np.searchsorted(end - tokens / 2, boundaries)  # a row belongs to the part that holds its middle
        edges = np.unique([0, *cuts, len(tokens)]).tolist()
        parts = []
        for start, stop in pairwise(edges):
            rows = slice(start, stop)
            source = self.source[rows, : reads[rows].max()]  # without columns that hold only padding
            targets = (ids[rows, : writes[rows].max()] for ids in (self.target_in, self.target_out))
            source, target_in, target_out = map(np.ascontiguousarray, (source, *targets))
            masks = {name: mask[rows, : source.shape[1]] for name, mask in self.masks.items()}
            parts.append(Batch(source, target_in, target_out, self.first + start, self.pad_id, masks))
        return parts


def pad(sequences: Sequence[ArrayLike], pad_id: int = PAD_ID) -> NDArray[np.int64]:
    """Stack sequences of ids into a (B, T) array with `pad_id` on the right; T is the longest sequence's length."""
    rows = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    padded = np.full((len(rows), max(map(len, rows), default=0)), pad_id, dtype=np.int64)
    for padded_row, row in zip(padded, rows, strict=True):
        padded_row[: len(row)] = row
    return padded


def check_special_ids(pad_id: int, bos_id: int, eos_id: int, marks: Marks = OURS) -> None:
    """Raise ValueError unless a model's special ids are those of batches."""
    if (pad_id, bos_id, eos_id) != marks:
        raise ValueError(
            f"pad_id, bos_id, eos_id are {pad_id}, {bos_id}, {eos_id} in the model, "
            f"but {', '.join(map(str, marks))} in the data"
        )


def as_ids(ids: ArrayLike, least: int = 1) -> NDArray[np.int64]:
    """Return a sentence's token ids as a new array (T,).

    Raises TypeError if they are not integers, ValueError if one is less than `least`: by default 0 is padding.
    """
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"token ids must be integers, got {array.dtype}")
    if array.min() < least:
        raise ValueError(f"token ids must be {'positive (0 is padding)' if least else '0 or more'}, got {array.min()}")
    return array.astype(np.int64)


def collate(sources: Sequence[ArrayLike], targets: Sequence[ArrayLike], first: int = 0, marks: Marks = OURS) -> Batch:
    """Make a batch of sentence pairs, given as ids without special tokens; row i is pair i.

    Raises ValueError if there are not as many sources as targets, and as `as_ids` does.
    """
    if len(sources) != len(targets):
        raise ValueError(f"sources and targets must be pairs, got {len(sources)} sources and {len(targets)} targets")
    source_ids, target_ids = list(map(as_ids, sources)), list(map(as_ids, targets))
    source = pad([np.append(ids, marks.end) for ids in source_ids], marks.pad)
    return Batch(
        source=source,
        target_in=pad([np.append(marks.begin, ids) for ids in target_ids], marks.pad),
        target_out=pad([np.append(ids, marks.end) for ids in target_ids], marks.pad),
        first=first,
        pad_id=marks.pad,
        # Where targets begin with the padding token, no model infers this mask.
        masks={"source_mask": source != marks.pad} if marks.pad == marks.begin else {},
    )
