"""Searches many sources in batches, which threads or processes share."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..data.batching import pad
from ..models import EncoderDecoder
from ..system.threads import Threads
from ..system.workers import Workers
from .search import Hypothesis, beam_search, greedy_search

SMALLEST_PART = 256
"""In padded source tokens: batches are not made smaller than this to give each thread one."""

MOST_LOGITS = 1 << 26
"""A batch of several sentences has at most this many logits at a step, however wide the beam is."""

Found = tuple[list[int], list[list[Hypothesis]]]
"""The indices of a batch's sources, and their hypotheses."""


class BatchSearch:
    """A context manager that searches sources, token ids with `</s>`, in batches.

    Sources of about the same length go together, the longest first; empty ones are left out. Each batch goes to the
    next free thread: by default there is one for each core, and only one if the backend has threads of its own. With
    `forks`, processes replace threads where they can be forked: this is faster for many batches, since Python's threads
    take turns. A beam of one is greedy search.

    A call raises as `beam_search` does; the constructor raises `ValueError` for batch_tokens below 1.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        batch_tokens: int = 2048,
        threads: int | None = None,
        *,
        beam: int = 4,
        length_penalty: float = 0.6,
        n_best: int = 1,
        max_extra: int = 50,
        forks: bool = False,
    ) -> None:
        if batch_tokens < 1:
            raise ValueError(f"batch_tokens is {batch_tokens}, expected at least 1")
        self.model, self.batch_tokens, self.beam, self.n_best = model, batch_tokens, beam, n_best
        self.options = {"length_penalty": length_penalty, "max_extra": max_extra}
        self._threads = Threads(1 if model.ops.has_threads else threads)
        self._forks, self._workers = forks and self._threads.count > 1, None
        self._context = ExitStack()

    def __enter__(self) -> Self:
        self._context.enter_context(self._threads)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)

    def __call__(self, sources: Sequence[Sequence[int]]) -> Iterator[Found]:
        """Yield the indices of each batch's sources and their n_best best hypotheses, the best first."""
        most = max(1, MOST_LOGITS // (max(self.beam, 1) * self.model.config.vocab_size))
        lengths = [len(ids) for ids in sources]
        batches = list(_batches(lengths, self.batch_tokens, self._threads.count, most))
        padded = [pad([sources[i] for i in batch], self.model.config.pad_id) for batch in batches]
        if len(batches) == 1:
            found = map(self.search_batch, padded)
        else:
            found = self._map(padded)
        yield from zip(batches, found, strict=True)

    def _map(self, padded: list[Any]) -> Iterator[list[list[Hypothesis]]]:
        """Search batches in processes, or in threads where no process can be forked."""
        if self._forks and self._workers is None and Workers.supported():
            self._workers = self._context.enter_context(Workers(self.search_batch, self._threads.count))
        if self._workers is not None:
            return self._workers.map(padded)
        return self._threads.map(self.search_batch, padded)

    def search_batch(self, source: Any) -> list[list[Hypothesis]]:
        """Return the hypotheses of sources `(B, Ts)`, padded."""
        if self.beam == self.n_best == 1:
            return [[hypothesis] for hypothesis in greedy_search(self.model, source, **self.options)]
        return beam_search(self.model, source, self.beam, n_best=self.n_best, **self.options)


def search(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    batch_tokens: int = 2048,
    threads: int | None = None,
    **options: Any,
) -> Generator[Found, None, None]:
    """Search sources once, and yield as a `BatchSearch` with these options does."""
    with BatchSearch(model, batch_tokens, threads, **options) as batches:
        yield from batches(sources)


def padded_batches(
    encoded: Sequence[Sequence[int]], pad_id: int, batch_tokens: int
) -> Iterator[tuple[list[int], NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield the indices of some texts, given as ids, their ids `(B, T)` with padding, and True for each real token.

    Texts of about the same length go together, the longest first: at most `batch_tokens` tokens, padding included.
    """
    for batch in _batches([len(ids) for ids in encoded], batch_tokens, 1, len(encoded)):
        ids = pad([encoded[i] for i in batch], pad_id)
        lengths = np.array([len(encoded[i]) for i in batch])
        yield batch, ids, np.arange(ids.shape[1]) < lengths[:, None]


def _batches(lengths: list[int], batch_tokens: int, num_threads: int, most: int) -> Iterator[list[int]]:
    """Yield batches of indices of non-empty sentences, the longest first, padded to at most batch_tokens tokens.

    A batch has at most `most` sentences. Batches are smaller where that gives all threads equally many, but not below
    SMALLEST_PART tokens. A sentence longer than batch_tokens is a batch of its own.
    """
    by_length = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    total, longest = sum(lengths), max(lengths, default=0)
    num_parts = num_threads * -(-total // (num_threads * batch_tokens))
    num_parts = min(num_parts, max(1, total // SMALLEST_PART))
    batch_tokens = min(batch_tokens, -(-total // max(num_parts, 1)) + longest - 1)  # so that the last is not small
    start = 0
    while start < len(by_length):
        count = min(max(1, batch_tokens // lengths[by_length[start]]), most)
        yield by_length[start : start + count]
        start += count
