"""Bootstrap intervals: the uncertainty of a score that comes from the choice of the test sentences.

A metric of a corpus follows from sums over its sentences. Each sample draws as many sentences as the corpus has, with
replacement, and scores their sums; the interval is the middle 95 % of 1,000 samples. Two systems are compared on the
same samples, so that a sentence that is hard for both does not count as chance (Koehn 2004, "Statistical significance
tests for machine translation evaluation").
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .brackets import bracket_counts

SAMPLES, CONFIDENCE = 1000, 95.0


@dataclass(frozen=True)
class Interval:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def text(self, digits: int = 1, sign: bool = False) -> str:
        """The interval as text, such as `25.8 (24.9 to 26.6)`; with `sign`, positive numbers have a plus."""
        value, low, high = (f"{x:{'+' if sign else ''},.{digits}f}" for x in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})".replace("-", "−")

    @property
    def of_percentage(self) -> "Interval":
        """The interval of a percentage: cut off at 0 and 100."""
        return Interval(self.value, max(self.low, 0.0), min(self.high, 100.0))

    @property
    def excludes_zero(self) -> bool:
        """True if zero is outside the interval, so that a difference is more than chance."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Metric:
    """A metric: its name, and the score of a corpus from the sums `(k,)` of its sentences' statistics."""

    name: str
    score: Callable[[NDArray[np.float64]], float]


def _bleu(sums: NDArray[np.float64]) -> float:
    from sacrebleu.metrics.bleu import BLEU

    whole = [int(count) for count in sums]
    result = BLEU.compute_bleu(whole[:4], whole[4:8], sys_len=whole[8], ref_len=whole[9], smooth_method="exp")
    return result.score


def _f1(sums: NDArray[np.float64]) -> float:
    """The harmonic mean of precision (matched ÷ written) and recall (matched ÷ wanted)."""
    matched, written, wanted = sums[:3]
    return float(100 * 2 * matched / max(written + wanted, 1))


def _perplexity(sums: NDArray[np.float64]) -> float:
    return math.exp(min(sums[0] / sums[1], 700.0))


def _mean(sums: NDArray[np.float64]) -> float:
    return float(sums[0] / sums[1])


BLEU = Metric("BLEU", _bleu)
F1 = Metric("F1", _f1)
PERPLEXITY = Metric("perplexity", _perplexity)
MEAN = Metric("mean", _mean)
"""The mean of values; the statistics `(N, 2)` of each are the value and 1."""


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """For each sentence the n-grams that match and those written, for n = 1 to 4, and both lengths: `(N, 10)`."""
    from sacrebleu.metrics.bleu import BLEU as SacreBLEU

    scorer = SacreBLEU(effective_order=True)  # this changes no count, only the score of a single sentence
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found = scorer.sentence_score(hypothesis, [reference])
        rows.append([*found.counts, *found.totals, found.sys_len, found.ref_len])
    return np.array(rows, dtype=np.float64)


def bracket_statistics(outputs: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """Count for each parse the constituents that match, are written and are wanted, and 1 if malformed: `(N, 4)`."""
    counts = [bracket_counts(*pair) for pair in zip(outputs, references, strict=True)]
    return np.array(counts, dtype=np.float64)


def interval(metric: Metric, statistics: NDArray[np.float64]) -> Interval:
    """The score of a test set, statistics `(N, k)`, and its interval. Raises `ValueError` without sentences."""
    samples = [metric.score(sums) for sums in _samples(statistics)]
    return _interval(metric.score(statistics.sum(0)), samples)


def difference(metric: Metric, ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Interval:
    """Our score minus theirs on the same sentences, statistics `(N, k)` each, and its interval.

    Raises `ValueError` without sentences, or if the two have not equally many.
    """
    if ours.shape != theirs.shape:
        raise ValueError(f"the statistics have shapes {ours.shape} and {theirs.shape}, expected the same sentences")
    pairs = zip(_samples(ours), _samples(theirs), strict=True)
    samples = [metric.score(a) - metric.score(b) for a, b in pairs]
    return _interval(metric.score(ours.sum(0)) - metric.score(theirs.sum(0)), samples)


def _samples(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sums `(SAMPLES, k)` of the samples; systems with equally many sentences get the same ones."""
    count = len(statistics)
    if not count:
        raise ValueError("there are no sentences to score")
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=SAMPLES)  # (SAMPLES, N)
    return drawn @ statistics


def _interval(value: float, samples: list[float]) -> Interval:
    low, high = np.percentile(samples, [(100 - CONFIDENCE) / 2, (100 + CONFIDENCE) / 2])
    return Interval(float(value), float(low), float(high))
