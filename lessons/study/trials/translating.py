"""Evaluates a translator: its translations of the test set, and how probable the references are."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import collate
from minitransformer.data.preparation import PreparedData
from minitransformer.data.sentence_pairs import SentencePair
from minitransformer.decoding import search
from minitransformer.models import EncoderDecoder

from .bootstrap import bleu_statistics, bracket_statistics
from .likelihood import row_losses
from .trial import Answers

SENTENCES_AT_ONCE = 32
BATCH_TOKENS = 1024


@dataclass(frozen=True)
class Translating:
    """A translator is asked to translate the test set.

    sentences  the number of sentences, from the beginning of the test set
    lengths    the least and most tokens, with the end mark, that both sides of a pair may have, or None for all pairs
    averaged   evaluate the mean of the last checkpoints instead of the last
    beam, length_penalty, max_extra  options of the search (Vaswani 2017, §6.1)
    """

    name: str = "evaluation"
    sentences: int = 1000
    lengths: tuple[int, int] | None = None
    averaged: bool = False
    beam: int = 4
    length_penalty: float = 0.6
    max_extra: int = 50

    def answer(self, model: EncoderDecoder, data: PreparedData) -> Answers:
        """Translate. Raises `ValueError` if no test sentence is within the lengths."""
        start = perf_counter()
        pairs = self._sentences(data)
        encode = data.tokenizer.encode
        sources, targets = ([encode(text) for text in side] for side in zip(*pairs, strict=True))
        options = {"beam": self.beam, "length_penalty": self.length_penalty, "max_extra": self.max_extra}
        hypotheses = [data.tokenizer.decode(ids) for ids in translations(model, sources, **options)]
        references = [pair.target for pair in pairs]
        statistics = bracket_statistics if data.choice.target == "tree" else bleu_statistics
        return Answers(
            statistics=statistics(hypotheses, references),
            likelihood=likelihood(model, sources, targets),
            hypotheses=hypotheses,
            references=references,
            seconds=perf_counter() - start,
        )

    def _sentences(self, data: PreparedData) -> list[SentencePair]:
        pairs = data.choice.pairs("test")
        if self.lengths is not None:
            low, high = self.lengths
            encode = data.tokenizer.encode
            pairs = (pair for pair in pairs if all(low <= len(encode(text)) + 1 <= high for text in pair))
        chosen = list(islice(pairs, self.sentences))
        if not chosen:
            raise ValueError(f"no pair of the test set has {self.lengths} tokens on both sides")
        return chosen


def translations(model: EncoderDecoder, sources: Sequence[Sequence[int]], **options: Any) -> list[list[int]]:
    """The ids of the best translation of each source, both without `</s>`; options are those of `search`."""
    found: list[list[int]] = [[] for _ in sources]
    asked = [[*ids, model.config.eos_id] for ids in sources]
    for numbers, hypotheses in search(model, asked, BATCH_TOKENS, threads=1, **options):
        for number, (best, *_) in zip(numbers, hypotheses, strict=True):
            found[number] = list(best.ids)
    return found


def likelihood(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """For each target minus its log-probability, and its number of tokens with `</s>`: `(N, 2)`."""
    order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i])))
    rows = np.zeros((len(sources), 2))
    for start in range(0, len(order), SENTENCES_AT_ONCE):
        chosen = order[start : start + SENTENCES_AT_ONCE]
        batch = collate([np.array(sources[i]) for i in chosen], [np.array(targets[i]) for i in chosen])
        rows[chosen] = row_losses(model, batch)
    return rows
