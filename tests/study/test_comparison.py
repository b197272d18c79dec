"""The sentences on a difference."""

import pytest

from study.comparison import spread, verdict


def gap(value: float, half: float = 0.5) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


@pytest.mark.parametrize(
    ("metric", "found", "said"),
    [
        ("bleu", gap(1.0), "A is better than B by 1.0 (0.5 to 1.5) BLEU."),
        ("bleu", gap(-1.0), "A is worse than B by 1.0 (0.5 to 1.5) BLEU."),
        ("perplexity", gap(-1.0), "A is better than B by 1.000 (0.500 to 1.500) perplexity."),
        ("bleu", gap(0.4), "A and B: no difference in BLEU that this test set can show, +0.4 (−0.1 to +0.9)."),
        ("bleu", gap(0.04, 0.01), "A and B: no difference in BLEU that this test set can show, +0.0 (+0.0 to +0.1)."),
        ("perplexity", gap(0.04, 0.01), "A is worse than B by 0.040 (0.030 to 0.050) perplexity."),
        ("bleu", None, "A and B can't be compared: a training diverged."),
    ],
)
def test_a_difference_is_told(metric: str, found: dict[str, float] | None, said: str) -> None:
    assert verdict("A", "B", metric, found) == said


def test_seeds_that_differ_by_as_much_are_told() -> None:
    assert verdict("A", "B", "bleu", gap(1.0), of_seeds=0.9).endswith("BLEU.")
    assert verdict("A", "B", "bleu", gap(-1.0), of_seeds=1.0).endswith("BLEU. But seeds of the base differ by as much.")
    assert "seeds" not in verdict("A", "B", "bleu", gap(0.1), of_seeds=1.0)  # no difference is claimed


def test_the_spread_is_from_the_lowest_to_the_highest() -> None:
    seeds = [{"diverged": None, "bleu": {"value": value}} for value in (2.0, 5.0, 3.0)]
    assert spread(seeds, "bleu") == 3.0
    assert spread([*seeds, {"diverged": "nan"}], "bleu") is None
