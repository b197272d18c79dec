"""Results for the report: scores with their intervals, and which of two is better."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .trials.bootstrap import BLEU, F1, PERPLEXITY, Interval, difference, interval
from .trials.trial import TrialResult

METRICS = {"bleu": BLEU, "f1": F1, "perplexity": PERPLEXITY}
STATISTICS = {"bleu": "statistics", "f1": "statistics", "perplexity": "likelihood"}


def scores(result: TrialResult, metrics: Sequence[str] = ("bleu", "perplexity"), evaluation: str | None = None) -> dict:
    """The interval of each metric, and the cost of the training; `evaluation` is by default the first one.

    A training that diverged has no scores, only the reason.
    """
    taken = ("parameters", "steps", "tokens", "pairs", "epochs", "flops", "seconds", "diverged")
    found: dict[str, Any] = {name: getattr(result, name) for name in taken}
    if result.diverged is None:
        asked = result.answers(evaluation)
        found["exactly_right"] = sum(h == r for h, r in zip(asked.hypotheses, asked.references, strict=True))
        found["sentences"] = len(asked.references)
        found["distinct"] = len(set(asked.hypotheses))
        for metric in metrics:
            found[metric] = asdict(interval(METRICS[metric], getattr(asked, STATISTICS[metric])))
    return found


def compare(
    ours: TrialResult, theirs: TrialResult, metric: str, evaluations: tuple[str | None, str | None] = (None, None)
) -> dict[str, float] | None:
    """Our score minus theirs, with its interval; None if one of the training runs diverged.

    Raises `ValueError` if the two did not translate the same sentences.
    """
    if ours.diverged or theirs.diverged:
        return None
    a, b = ours.answers(evaluations[0]), theirs.answers(evaluations[1])
    if a.references != b.references:
        raise ValueError("two models that are compared must have been asked the same sentences")
    statistics = STATISTICS[metric]
    return asdict(difference(METRICS[metric], getattr(a, statistics), getattr(b, statistics)))


def learned(found: Mapping[str, Any]) -> bool:
    """Return True if a model gives different outputs for different sentences; else it ignores its source."""
    return found["diverged"] is None and found["distinct"] > found["sentences"] / 10


def shown(found: Mapping[str, Any], metric: str, digits: int = 1) -> str:
    """A score as a cell of a table; a dash if there is none."""
    return Interval(**found[metric]).text(digits) if metric in found else "–"


def spread(seeds: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    """The range of a metric over training runs that differ only in their seed; None if one diverged."""
    if any(found["diverged"] for found in seeds):
        return None
    values = [found[metric]["value"] for found in seeds]
    return max(values) - min(values)


def verdict(
    ours: str, theirs: str, metric: str, found: Mapping[str, float] | None, of_seeds: float | None = None
) -> str:
    """A sentence on a difference: which is better and by how much, or that the test set cannot tell.

    of_seeds  the `spread` of the base's seeds: a second sentence says so if the difference is not larger than this
    """
    name = METRICS[metric].name
    if found is None:
        return f"{ours} and {theirs} can't be compared: a training diverged."
    gap = Interval(**found)
    digits = 3 if metric == "perplexity" else 1
    if not gap.excludes_zero or round(gap.value, digits) == 0:
        gap_text = gap.text(digits, sign=True)
        return f"{ours} and {theirs}: no difference in {name} that this test set can show, {gap_text}."
    better = (gap.value > 0) != (metric == "perplexity")
    low, high = sorted(abs(x) for x in (gap.low, gap.high))
    by = Interval(abs(gap.value), low, high).text(digits)
    said = f"{ours} is {'better' if better else 'worse'} than {theirs} by {by} {name}."
    if of_seeds is not None and abs(gap.value) <= of_seeds:
        said += " But seeds of the base differ by as much."
    return said
