"""Numbers of the runs on rewards with their intervals, and the verdicts on the predictions."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from study.experiment import Findings
from study.trials.bootstrap import Interval
from study.trials.seeds import mean_of_seeds, welch

from ...predictions import Outcome
from .plan import ACCEPTED, KL, ORDINARY, PREFERRED, REWARDED

GOAL = 93
LEAST = {"distinct": 95, "length": 90, "constructions": 90, "entropy": 80}
"""The per cent of grammatical texts that GRPO should reach, and what it must keep: the per cent of texts that no other
text equals, and the length, the constructions and the entropy in per cent of the base's."""

Run = dict[str, Any]
"""What `summary` tells of a run."""


# --- Numbers with their intervals -------------------------------------------------------------------------------


def over_seeds(runs: Sequence[Run], number: Callable[[Run], float]) -> Interval:
    """The mean of a number over seeds; of one run the number alone, as an interval without width."""
    values = [number(run) for run in runs]
    return mean_of_seeds(values) if len(values) > 1 else Interval(*[values[0]] * 3)


def part_over_seeds(runs: Sequence[Run], number: Callable[[Run], float]) -> Interval:
    """Return a number in per cent, whose interval is cut off at 0 and 100."""
    return over_seeds(runs, number).of_percentage


def share(run: Run) -> float:
    """The per cent of its texts that are grammatical."""
    return 100 * run["right"]["value"]


def shares(runs: Sequence[Run]) -> Interval:
    """That per cent over seeds; of one run with the interval of its texts."""
    return part_over_seeds(runs, share) if len(runs) > 1 else scaled(runs[0]["right"], 100)


def scaled(found: dict[str, float], factor: float) -> Interval:
    """An interval times a factor."""
    return Interval(*(factor * found[end] for end in ("value", "low", "high")))


def gap(ours: Sequence[Run], theirs: Sequence[Run]) -> Interval:
    """Our per cent of grammatical texts minus theirs. Between single runs it is the interval of the texts."""
    if len(ours) > 1 and len(theirs) > 1:
        return welch(*([share(run) for run in runs] for runs in (ours, theirs)))
    a, b = shares(ours), shares(theirs)
    value, half = a.value - b.value, math.hypot((a.high - a.low) / 2, (b.high - b.low) / 2)
    return Interval(value, value - half, value + half)


def kept(findings: Findings, runs: Sequence[Run], what: str) -> Interval:
    """Return the per cent that are left (`LEAST`). A ratio to the base has both intervals, by their logarithms."""
    base = findings["base"]["runs"]
    if what == "distinct":
        return part_over_seeds(runs, lambda run: 100 * run["distinct"])
    if what == "constructions":
        return part_over_seeds(runs, lambda run: 100 * len(used([run]) & used(base)) / len(used(base)))
    numbers = {"length": lambda run: run["length"]["value"], "entropy": lambda run: run["entropy"]}
    ours, theirs = ([math.log(numbers[what](run)) for run in each] for each in (runs, base))
    ratio = welch(ours, theirs) if len(ours) > 1 else Interval(*[ours[0] - float(np.mean(theirs))] * 3)
    return Interval(*(100 * math.exp(end) for end in (ratio.value, ratio.low, ratio.high)))


def used(runs: Sequence[Run]) -> set[str]:
    """The constructions in the grammatical texts of some runs."""
    return {name for run in runs for name, each in run["constructions"].items() if each}


def length_of(findings: Findings, run: Run) -> Interval:
    """The mean length of one run's texts, divided by the base's, with the interval of its texts."""
    return scaled(run["length"], 1 / float(np.mean([each["length"]["value"] for each in findings["base"]["runs"]])))


def cell(found: Interval, digits: int = 1) -> str:
    """An interval as text, without brackets where it has no width."""
    return found.text(digits) if found.high > found.low else f"{found.value:,.{digits}f}"


def reached(found: Interval, least: float) -> bool | None:
    """True if all of the interval is at least that, False if none of it is."""
    return True if found.low >= least else False if found.high < least else None


def made(findings: Findings) -> dict[str, list[Run]]:
    """The arms of which a run was made."""
    return {name: runs for name, runs in findings["arms"].items() if runs}


def all_runs(findings: Findings) -> list[Run]:
    of_arms = [run for runs in findings["arms"].values() for run in runs]
    return [*of_arms, *findings["longer"], *findings["loose"], *findings["held"].values(), *findings["hacks"]]


def weighted(findings: Findings) -> list[tuple[float, list[Run]]]:
    """The weights of the divergence, from the least on, with their runs."""
    runs = [(float(kl), [run]) for kl, run in findings["held"].items()]
    return sorted([*runs, (KL, findings["arms"][REWARDED])], key=lambda pair: pair[0])


# --- The predictions --------------------------------------------------------------------------------------------


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction."""
    if any(run["diverged"] for run in all_runs(findings)):
        return dict.fromkeys(findings["predictions"], Outcome("a training run diverged"))
    arms, held = findings["arms"], findings["held"]
    rewarded = arms[REWARDED]

    def hacked(reward: str, weight: float) -> Run:
        return next(run for run in findings["hacks"] if (run["reward"], run["weight"]) == (reward, weight))

    def per_cent(found: Interval) -> Outcome:
        return Outcome(f"{found.text(1)} %", found=found)

    def points(found: Interval) -> Outcome:
        return Outcome(f"{found.text(1, sign=True)} points", found=found)

    def times(found: Interval) -> Outcome:
        return Outcome(found.text(2), found=found)

    def grown(run: Run) -> Interval:
        return scaled(run["after"], 1 / run["before"]["value"])

    judges: dict[str, Callable[[], Outcome]] = {
        "GRPO": lambda: per_cent(shares(rewarded)),
        "language": lambda: _judge_language(findings),
        "longer": lambda: per_cent(shares(findings["longer"])),
        "ordinary": lambda: per_cent(shares(arms[ORDINARY])),
        "accepted": lambda: per_cent(shares(arms[ACCEPTED])),
        "against ordinary": lambda: points(gap(rewarded, arms[ORDINARY])),
        "against accepted": lambda: points(gap(rewarded, arms[ACCEPTED])),
        "DPO": lambda: per_cent(shares(arms[PREFERRED])),
        "DPO's distance": lambda: _judge_nearer(findings),
        "loose DPO": lambda: per_cent(shares(findings["loose"])),
        "perplexity": lambda: _judge_perplexity(findings),
        "distance": lambda: _judge_distance(findings),
        "price": lambda: points(gap([held["0.05"]], [held["2"]])),
        "length without": lambda: times(length_of(findings, held["0"])),
        "no word twice": lambda: per_cent(scaled(hacked("no word twice", 0)["after"], 100)),
        "short": lambda: times(length_of(findings, hacked("no word twice", 0))),
        "many words": lambda: times(grown(hacked("many words", 0))),
        "not grammatical": lambda: per_cent(shares([hacked("many words", 0)])),
        "held back": lambda: _judge_gain(gap([hacked("many words", KL)], [hacked("many words", 0)])),
    }
    outcomes = dict[str, Outcome]()
    for name, judged in judges.items():
        try:
            outcomes[name] = judged()
        except (LookupError, StopIteration):
            outcomes[name] = Outcome("not all of its runs were made yet")
    return outcomes


def _judge_gain(found: Interval) -> Outcome:
    return Outcome(f"{found.text(1, sign=True)} points", found.low > 0 if found.excludes_zero else None)


def _judge_nearer(findings: Findings) -> Outcome:
    found = welch(*([run["kl"] for run in _several(findings, name)] for name in (PREFERRED, REWARDED)))
    return Outcome(f"{found.text(3, sign=True)} nats a token", found.high < 0 if found.excludes_zero else None)


def _several(findings: Findings, name: str) -> list[Run]:
    """The runs of an arm. Raises `LookupError` for fewer than two seeds."""
    runs = findings["arms"][name]
    if len(runs) < 2:
        raise LookupError(f"{name} has {len(runs)} seeds")
    return runs


def _judge_language(findings: Findings) -> Outcome:
    runs = _several(findings, REWARDED)
    found = {what: kept(findings, runs, what) for what in LEAST}
    verdicts = [reached(found[what], least) for what, least in LEAST.items()]
    right = False if False in verdicts else None if None in verdicts else True
    return Outcome("; ".join(f"{what} {cell(each)} %" for what, each in found.items()), right)


def _judge_perplexity(findings: Findings) -> Outcome:
    before = findings["base"]["perplexity"]
    ordinary, rewarded = (
        over_seeds(_several(findings, name), lambda run: run["perplexity"]) for name in (ORDINARY, REWARDED)
    )
    came = f"{before:.2f} before, {ordinary.text(2)} and {rewarded.text(2)}"
    wrong = ordinary.low > before or rewarded.high < before
    return Outcome(came, True if ordinary.high < before < rewarded.low else False if wrong else None)


def _judge_distance(findings: Findings) -> Outcome:
    """The order of the weights is right if those beside the one with seeds lie outside its interval."""
    _ = [findings["held"][weight] for weight in ("0", "0.05", "2")], _several(findings, REWARDED)
    found = [over_seeds(runs, lambda run: run["kl"]) for _, runs in weighted(findings)]
    values = [each.value for each in found]
    falls = values == sorted(values, reverse=True)
    apart = all(a.low > b.high for a, b in pairwise(found))
    return Outcome("; ".join(cell(each, 3) for each in found), True if falls and apart else None if falls else False)
