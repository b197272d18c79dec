"""A text for language models: each line ends with </s>, and all of them are one stream of tokens.

    the dog barks </s> a cat sleeps </s> …

A text on disk is a `TokenDataset` of pairs without targets (see `minitransformer.data.token_dataset`).
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .batching import EOS_ID, OURS
from .rows import IGNORED, RowBatches, Rows, first_cut
from .sentence_pairs import StrPath
from .token_dataset import TokenDataset, Tokenizer


@dataclass(frozen=True)
class Marked:
    """A tokenizer that puts marks around each text, by default </s> after it: those that a dataset's ids hold.

    A target has no marks: it is a translation or, where there are `labels`, one of these, whose number becomes its id.
    """

    tokenizer: Tokenizer
    before: tuple[int, ...] = ()
    end: int | None = EOS_ID
    labels: tuple[str, ...] = ()

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def encode(self, text: str) -> list[int]:
        return [*self.before, *self.tokenizer.encode(text), *([] if self.end is None else [self.end])]

    def encode_target(self, text: str) -> Sequence[int]:
        if self.labels:
            if text not in self.labels:
                raise ValueError(f"the label {text!r} is none of the model's, {', '.join(self.labels)}")
            return [1 + self.labels.index(text)]  # 0 is padding
        return getattr(self.tokenizer, "encode_target", self.tokenizer.encode)(text)

    def to_json(self) -> str:
        return self.tokenizer.to_json()


class TextDataset:
    """The lines of a text as token ids, each with </s> at its end. Its batches train a language model.

    lines: a dataset of pairs whose sources are the lines, and whose targets are empty. Of its marks, `begin` stands
    before a line that an encoder reads, and `end` is the id of </s>.
    """

    def __init__(self, lines: TokenDataset) -> None:
        self.lines = lines

    @classmethod
    def from_lines(cls, lines: Iterable[Sequence[int] | NDArray[np.integer]], end: int = EOS_ID) -> Self:
        """Make a dataset in memory, of lines' ids without their end mark; `end`, by default our tokenizer's, is added.

        For a model of another library, give its `config.eos_id`. Raises as `TokenDataset.from_pairs` does.
        """
        return cls(TokenDataset.from_pairs((([*line, end], []) for line in lines), 0, OURS._replace(end=end)))

    @classmethod
    def from_marked(cls, rows: Iterable[Sequence[int]]) -> Self:
        """Make a dataset in memory, of lines' ids with another tokenizer's marks around them: BERT's [CLS] and [SEP].

        Raises ValueError if the rows do not begin with one mark, and as `TokenDataset.from_pairs` does.
        """
        rows = list(rows)
        begins = {row[0] if len(row) else None for row in rows}
        begin = begins.pop() if len(begins) == 1 else None
        if begin is None:
            raise ValueError("rows must all begin with the same mark")
        return cls(TokenDataset.from_pairs(((row[1:], []) for row in rows), 0, OURS._replace(begin=begin)))

    @classmethod
    def build(
        cls,
        lines: Iterable[str],
        tokenizer: Tokenizer,
        folder: StrPath,
        max_length: int = sys.maxsize,
        progress: bool = False,
        fingerprint: str = "",
        notes: Mapping[str, Any] | None = None,
    ) -> Self:
        """Write a dataset as `TokenDataset.build` does; blank lines and those of over `max_length` tokens are left out.

        A line's length counts two special tokens, <s> and </s>.
        """
        pairs = ((line, "") for line in lines)
        marked = tokenizer if isinstance(tokenizer, Marked) else Marked(tokenizer)
        return cls(TokenDataset.build(pairs, marked, folder, max_length, progress, fingerprint, notes, one_sided=True))

    @classmethod
    def open(cls, folder: StrPath) -> Self:
        """Memory-map a dataset that `build` wrote. Raises as `TokenDataset.open` does."""
        return cls(TokenDataset.open(folder))

    def __len__(self) -> int:
        """The number of lines."""
        return len(self.lines)

    def __getitem__(self, index: int) -> NDArray[np.integer]:
        """The ids of a line, with </s>."""
        return self.lines[index][0]

    @property
    def stream(self) -> NDArray[np.integer]:
        """The ids of all lines, one after another."""
        return self.lines.ids

    def checksum(self) -> int:
        """Return the CRC-32 of all ids and lengths."""
        return self.lines.checksum()

    def check(self, vocab_size: int) -> None:
        """Raise ValueError if an id is outside a vocabulary of this size."""
        if self.lines.max_id >= vocab_size:
            raise ValueError(
                f"the dataset holds token id {self.lines.max_id}, but the vocabulary has {vocab_size} tokens"
            )

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> RowBatches:
        """Return batches (ids, targets) of rows of T = `config.max_length` tokens, fewer if a batch or text is smaller.

        Each target is the token after its id; the first line follows an </s>. In training each epoch cuts the stream
        elsewhere and joins its ends, so each token is a target once, and at most T − 1 are targets twice. In validation
        the cuts are at multiples of T and each token is a target exactly once. A token sees only those before it in its
        row, so the loss is a little higher than with a context that moves along.

        Raises ValueError for an id outside the vocabulary, and for lines that don't end with the model's end mark.
        """
        self.check(config.vocab_size)
        eos_id, end = getattr(config, "eos_id", None), self.lines.marks.end
        if eos_id is not None and end not in (eos_id, *getattr(config, "other_eos_ids", ())):
            raise ValueError(f"the lines end with id {end}, but the model's texts with {eos_id}: give `end` its eos_id")
        stream = self.stream
        length = min(config.max_length, tokens_per_batch, len(stream))

        def make(rows: NDArray[np.int64], epoch: int, rng: np.random.Generator) -> Rows:
            places = rows[:, None] * length + np.arange(length)  # (B, T), the places of the targets
            beyond = places >= len(stream)
            places = (places + first_cut(seed, epoch, length)) % len(stream)
            ids, targets = stream[places - 1].astype(np.int64), stream[places].astype(np.int64)
            if seed is None:
                targets[beyond] = IGNORED
            return Rows((ids, targets))

        return RowBatches(-(-len(stream) // length), max(1, tokens_per_batch // length), seed, make)


class TextTask:
    """A text whose batches follow an objective of their own: the base of such datasets."""

    def __init__(self, text: TextDataset) -> None:
        self.text = text

    def __len__(self) -> int:
        """The number of lines."""
        return len(self.text)

    def checksum(self) -> int:
        """Return the CRC-32 of all ids and lengths."""
        return self.text.checksum()
