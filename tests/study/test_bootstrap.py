"""Bootstrap intervals, against sacrebleu and against what theory says."""

import math

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU as SacreBLEU

from study.trials.bootstrap import (
    BLEU,
    F1,
    MEAN,
    PERPLEXITY,
    Interval,
    bleu_statistics,
    bracket_statistics,
    difference,
    interval,
)

WORDS = "the a dog cat sees hears old young house".split()


def sentences(seed: int, count: int = 60) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(3, 12))) + "." for _ in range(count)]


def test_bleu_of_the_sums_is_that_of_the_corpus() -> None:
    references, noise = sentences(0), sentences(1)
    hypotheses = [r if i % 3 else n for i, (r, n) in enumerate(zip(references, noise, strict=True))]
    expected = SacreBLEU().corpus_score(hypotheses, [references]).score
    assert interval(BLEU, bleu_statistics(hypotheses, references)).value == pytest.approx(expected)


def test_f1_is_of_the_constituents_of_the_corpus() -> None:
    """5 of 6 constituents that are written match, and 5 of 7 that are wanted."""
    references = ["(S (NP XX )NP (VP XX )VP )S", "(S (NP XX XX )NP )S", "(S (NP XX )NP )S"]
    outputs = ["(S (NP XX )NP (VP XX )VP )S", "(S XX (VP XX )VP", "(S XX )S"]
    statistics = bracket_statistics(outputs, references)
    precision, recall = 5 / 6, 5 / 7
    assert interval(F1, statistics).value == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    assert statistics[:, 3].tolist() == [0, 1, 0]


def test_perplexity_is_that_of_all_tokens() -> None:
    assert interval(PERPLEXITY, np.array([[2.0, 1.0], [4.0, 5.0]])).value == pytest.approx(math.exp(6 / 6))


def test_the_interval_of_a_share_is_the_binomial_one() -> None:
    """1.96 standard errors to either side."""
    right = np.repeat([1.0, 0.0], [120, 280])
    found = interval(MEAN, np.stack([right, np.ones(400)], axis=1))
    half = 1.96 * math.sqrt(0.3 * 0.7 / 400)
    assert found.value == pytest.approx(0.3)
    assert found.low == pytest.approx(0.3 - half, abs=0.006)
    assert found.high == pytest.approx(0.3 + half, abs=0.006)


def test_a_comparison_is_paired() -> None:
    """Hard sentences are hard for both: the difference is far surer than either score."""
    rng = np.random.default_rng(0)
    nats = rng.exponential(5.0, size=300)
    ours, theirs = (np.stack([nats + extra, np.full(300, 10.0)], axis=1) for extra in (0.2, 0.0))
    gap, alone = difference(PERPLEXITY, ours, theirs), interval(PERPLEXITY, ours)
    assert gap.excludes_zero
    assert gap.value > 0
    assert gap.high - gap.low < 0.1 * (alone.high - alone.low)


def test_equal_systems_do_not_differ() -> None:
    statistics = bleu_statistics(sentences(2), sentences(3))
    assert difference(BLEU, statistics, statistics) == Interval(0.0, 0.0, 0.0)
    assert not Interval(0.0, 0.0, 0.0).excludes_zero


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="the same sentences"):
        difference(PERPLEXITY, np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(ValueError, match="no sentences"):
        interval(PERPLEXITY, np.ones((0, 2)))


def test_an_interval_as_text() -> None:
    assert Interval(25.84, 24.9, 26.61).text() == "25.8 (24.9 to 26.6)"
    assert Interval(-0.5, -1.0, 0.25).text(2, sign=True) == "−0.50 (−1.00 to +0.25)"
