"""Scores: BLEU of translations, exact matches, accuracy, what a search finds, a language model's bits per byte."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .ops import cross_entropy_forward

ROWS = 256
"""Positions whose logits are computed at a time: those of a long text would need much memory."""


@dataclass(frozen=True)
class Evaluation:
    """Scores of a set of translations in percent; sacrebleu's signatures say how it computed the two BLEU scores."""

    bleu: float
    bleu_lowercase: float
    exact_match: float
    num_sentences: int
    signature: str
    signature_lowercase: str


class Accuracy(NamedTuple):
    """The number of sentences with a construction, and the percentage of them that are translated exactly."""

    name: str
    num_sentences: int
    percent: float


def accuracy(model: Any, batches: Iterable[Any], map: Callable[..., Iterable[Any]] = map) -> float:
    """Return the percentage of the targets of all batches to which the model gives the highest logit.

    The second of a batch's inputs is its targets, −100 where none counts; `model.forward` takes the others. `map` may
    be replaced by one that shares the batches among processes.
    """

    def counts(batch: Any) -> tuple[int, int]:
        first, targets, *others = batch.inputs
        logits, _ = model.forward(first, *others)
        found = model.ops.to_numpy(logits).argmax(-1)
        return int((found == targets).sum()), batch.num_targets

    right, count = zip(*map(counts, batches), strict=True)
    return 100 * sum(right) / sum(count)


def recall(similarities: np.ndarray, count: int = 1) -> np.ndarray:
    """Return for each row of `(N, N)` 1 if its own column, that on the diagonal, is among the `count` largest, else 0.

    Of equal ones any may come first, and a part counts: a model for which all are alike gets what chance gives. NaN is
    larger than all, so that a broken model finds nothing. Raises `ValueError` for another shape.
    """
    if similarities.ndim != 2 or len(set(similarities.shape)) != 1:
        raise ValueError(f"similarities have shape {similarities.shape}, expected (N, N)")
    own = np.diagonal(similarities)[:, None]
    larger, equal = (~(similarities <= own)).sum(1), (similarities == own).sum(1)
    return np.clip((count - larger) / np.maximum(equal, 1), 0, 1)


@dataclass(frozen=True)
class TextScore:
    """The score of a language model on a text.

    nats        the sum over all tokens of −log p(token | tokens before it), natural logarithms
    num_tokens  the number of tokens
    num_bytes   the length of the text in bytes of UTF-8
    """

    nats: float
    num_tokens: int
    num_bytes: int

    @property
    def perplexity(self) -> float:
        """The exponential of the nats per token; it depends on the vocabulary."""
        return math.exp(min(self.nats / self.num_tokens, 700.0))

    @property
    def bits_per_byte(self) -> float:
        """The bits per byte, which are comparable between models with different vocabularies."""
        return self.nats / math.log(2) / self.num_bytes


def text_nats(
    model: Any,
    ids: Sequence[int],
    first: int,
    stride: int | None = None,
    map: Callable[..., Iterable[Any]] = map,
    context: int | None = None,
) -> float:
    """Return Σ −log p(token | tokens before it) over a text's ids under a language model; the first follows `first`.

    The text is read in windows of `context` tokens (default: as many as the model can read), each `stride` after the
    one before it (default: half a window). A window's last `stride` tokens count, so the context of each has at least
    the window's other tokens; all of the first window's tokens count. Probabilities and sum are float64, also of a
    float32 model. `map` is as in `accuracy`. Raises `ValueError` for a context that the model can't read and for a
    stride outside 1..context, and `FloatingPointError` for a sum that is not finite.
    """
    most: int = model.config.max_length
    longest = most if context is None else context
    if not 1 <= longest <= most:
        raise ValueError(f"context is {longest}, expected 1 to {most}, the model's longest text")
    stride = max(1, longest // 2) if stride is None else stride
    if not 1 <= stride <= longest:
        raise ValueError(f"stride is {stride}, expected 1 to {longest}")
    tokens = np.array([first, *ids], np.int64)
    edges = sorted({0, *range(longest, len(ids), stride), len(ids)})

    def window_nats(window: tuple[int, int]) -> float:
        """Return Σ −log p over the tokens from one edge to the next."""
        done, stop = window
        start = max(0, stop - longest)
        hidden, nats = model.hidden_states(tokens[None, start:stop]), 0.0  # (1, T, C)
        for begin in range(done, stop, ROWS):
            end = min(begin + ROWS, stop)
            logits, _ = model.output.logits(hidden[:, begin - start : end - start])  # (1, ROWS, V)
            pairs = zip(model.ops.to_numpy(logits)[0], tokens[begin + 1 : end + 1], strict=True)
            nats += sum(float(cross_entropy_forward(row.astype(np.float64), target[...])[0]) for row, target in pairs)
        return nats

    total = sum(map(window_nats, pairwise(edges)))
    if not math.isfinite(total):
        raise FloatingPointError(f"the text's loss is {total}: the model's parameters are not finite or far too large")
    return total


def evaluate(hypotheses: Sequence[str], references: Sequence[str]) -> Evaluation:
    """Return corpus BLEU, cased and lower-cased, and exact matches, with one reference for each hypothesis.

    BLEU is sacrebleu's, with its defaults, on untokenised text: 13a tokenisation and exponential smoothing (Papineni
    2002; Post 2018). Raises `ValueError` if there are no sentences, or not as many hypotheses as references,
    and `ModuleNotFoundError` without sacrebleu.
    """
    from sacrebleu.metrics.bleu import BLEU

    matches = _matches(hypotheses, references)
    cased, lowercase = BLEU(), BLEU(lowercase=True)
    return Evaluation(
        bleu=cased.corpus_score(hypotheses, [references]).score,
        bleu_lowercase=lowercase.corpus_score(hypotheses, [references]).score,
        exact_match=100 * sum(matches) / len(matches),
        num_sentences=len(matches),
        signature=str(cased.get_signature()),
        signature_lowercase=str(lowercase.get_signature()),
    )


def exact_match_by(
    constructions: Sequence[Collection[str]], hypotheses: Sequence[str], references: Sequence[str]
) -> list[Accuracy]:
    """Count exact matches among the sentences with each construction, the most frequent first, ties by name.

    `constructions[i]` names the constructions of sentence i. Raises `ValueError` as `evaluate` does.
    """
    matches = _matches(hypotheses, references)
    if len(constructions) != len(matches):
        raise ValueError(f"there are {len(matches)} sentences but constructions for {len(constructions)}")
    count: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for names, matched in zip(constructions, matches, strict=True):
        count.update(set(names))
        correct.update(set(names) if matched else ())
    rows = [Accuracy(name, n, 100 * correct[name] / n) for name, n in count.items()]
    return sorted(rows, key=lambda row: (-row.num_sentences, row.name))


def _matches(hypotheses: Sequence[str], references: Sequence[str]) -> list[bool]:
    """Return True for each hypothesis that equals its reference to the last character."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError("hypotheses and references must be sequences of sentences, not one str")
    if len(hypotheses) != len(references):
        raise ValueError(f"there are {len(hypotheses)} hypotheses but {len(references)} references")
    if not hypotheses:
        raise ValueError("there are no sentences to evaluate")
    return [hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True)]
