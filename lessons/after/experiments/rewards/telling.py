"""What the runs on rewards showed: pictures, tables, and the comparison with the predictions."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.plots.page import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, Page
from study.charts import finish, plain_logarithm
from study.experiment import Findings
from study.markdown import listed, paragraph, picture, scientific, table, verbatim
from study.trials.bootstrap import Interval
from study.trials.seeds import mean_of_seeds, welch

from ...predictions import Outcome, prediction_blocks
from .arms import MOST_TOKENS, SAMPLES, WATCHED
from .plan import (
    ACCEPTED,
    BETA,
    KL,
    LONGER,
    LOOSE_BETA,
    NAME,
    ORDINARY,
    PART,
    PEAKS,
    PREFERRED,
    REWARDED,
    TEXTS,
)

COLOURS = {REWARDED: VERMILION, ORDINARY: BLUE, ACCEPTED: GREEN, PREFERRED: PURPLE}
HACK_COLOURS = (BLUE, VERMILION, ORANGE)

GOAL = 93
LEAST = {"distinct": 95, "length": 90, "constructions": 90, "entropy": 80}
"""The per cent of grammatical texts that GRPO should reach, and what it must keep: the per cent of texts that no other
text equals, and the length, the constructions and the entropy in per cent of the base's."""

WORDS = {
    "distinct": "different texts",
    "length": "mean length, of the base's",
    "constructions": "constructions still used, of the base's",
    "entropy": "entropy of a token, of the base's",
}

Run = dict[str, Any]
"""What `summary` tells of a run."""


# --- Numbers with their intervals -------------------------------------------------------------------------------


def over_seeds(runs: Sequence[Run], number: Callable[[Run], float]) -> Interval:
    """The mean of a number over seeds; of one run the number alone, as an interval without width."""
    values = [number(run) for run in runs]
    return mean_of_seeds(values) if len(values) > 1 else Interval(*values * 3)


def part_over_seeds(runs: Sequence[Run], number: Callable[[Run], float]) -> Interval:
    """The same of a number in per cent, whose interval ends at 100."""
    found = over_seeds(runs, number)
    return Interval(found.value, found.low, min(found.high, 100.0))


def share(run: Run) -> float:
    """The per cent of its texts that are grammatical."""
    return 100 * run["right"]["value"]


def shares(runs: Sequence[Run]) -> Interval:
    """That per cent over seeds; of one run with the interval of its texts."""
    return over_seeds(runs, share) if len(runs) > 1 else scaled(runs[0]["right"], 100)


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
    """What is left, in per cent: see `LEAST`. A ratio to the base has the interval of both, by their logarithms."""
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


def _cell(found: Interval, digits: int = 1) -> str:
    """An interval as text, without brackets where it has no width."""
    return found.text(digits) if found.high > found.low else f"{found.value:,.{digits}f}"


def _reached(found: Interval, least: float) -> bool | None:
    """True if all of the interval is at least that, False if none of it is."""
    return True if found.low >= least else False if found.high < least else None


def _all_runs(findings: Findings) -> list[Run]:
    of_arms = [run for runs in findings["arms"].values() for run in runs]
    return [*of_arms, findings["longer"], findings["loose"], *findings["held"].values(), *findings["hacks"]]


# --- Pictures ---------------------------------------------------------------------------------------------------


def draw(findings: Findings, folder: Path) -> None:
    """Draw the share against operations, the price of the divergence, and forgetful rewards, as `rewards-….png`."""
    if any(run["diverged"] for run in _all_runs(findings)):
        return
    _draw_shares(findings, folder)
    _draw_price(findings, folder)
    _draw_hacks(findings, folder)


def _curve(run: Run, column: int, first: float) -> tuple[list[float], list[float]]:
    """The operations of a curve, in 10¹², and a column of it, from the value at 0 operations on."""
    return [0, *(point[0] / 1e12 for point in run["curve"])], [first, *(point[column] for point in run["curve"])]


def _draw_shares(findings: Findings, folder: Path) -> None:
    page = Page(7.0, 3.4, layout="constrained")
    axes = page.figure.subplots()
    start = shares(findings["base"]["runs"]).value
    for name, runs in findings["arms"].items():
        curves = [_curve(run, 1, start / 100) for run in runs]
        for operations, values in curves:
            axes.plot(operations, np.multiply(values, 100), color=COLOURS[name], lw=0.7, alpha=0.35)
        operations, values = (np.mean([curve[i] for curve in curves], axis=0) for i in (0, 1))
        axes.plot(operations, 100 * values, color=COLOURS[name], lw=1.8, label=name)
    operations, values = _curve(findings["longer"], 1, start / 100)
    axes.plot(operations, np.multiply(values, 100), "--", color=VERMILION, lw=1.2, label=f"{REWARDED}, longer")
    axes.axhline(GOAL, color=GREY, lw=0.9, ls=":")
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right")
    finish(axes, "operations, 10¹²", "grammatical texts, %")
    page.save(folder / f"{NAME}-share.png")


def _weighted(findings: Findings) -> list[tuple[float, list[Run]]]:
    """The weights of the divergence, from the least on, with their runs."""
    runs = [(float(kl), [run]) for kl, run in findings["held"].items()]
    return sorted([*runs, (KL, findings["arms"][REWARDED])], key=lambda pair: pair[0])


def _draw_price(findings: Findings, folder: Path) -> None:
    page = Page(7.4, 3.0, layout="constrained")
    both = page.figure.subplots(1, 2, sharex=True)
    weights = _weighted(findings)
    numbers = (shares, lambda runs: kept(findings, runs, "length"))
    for axes, number, label in zip(
        both, numbers, ("grammatical texts, %", "mean length, % of the base's"), strict=True
    ):
        places = [over_seeds(runs, lambda run: run["kl"]).value for _, runs in weights]
        found = [number(runs) for _, runs in weights]
        axes.plot(places, [each.value for each in found], "-", color=VERMILION, lw=1)
        for (weight, _), x, each in zip(weights, places, found, strict=True):
            axes.plot([x, x], [each.low, each.high], color=VERMILION, lw=2.2, alpha=0.5)
            axes.plot(x, each.value, "o", ms=5, color=VERMILION)
            axes.annotate(f"{weight:g}", (x, each.value), (5, 5), textcoords="offset points", fontsize=8, color=INK)
        others = ((f"β {BETA:g}", findings["arms"][PREFERRED]), (f"β {LOOSE_BETA:g}", [findings["loose"]]))
        for name, runs in others:
            x, each = over_seeds(runs, lambda run: run["kl"]).value, number(runs)
            axes.plot(x, each.value, "s", ms=5, color=PURPLE)
            axes.annotate(name, (x, each.value), (5, 5), textcoords="offset points", fontsize=8, color=PURPLE)
        axes.set_xscale("log")
        plain_logarithm(axes.xaxis)
        finish(axes, "divergence from the base, nats a token", label)
    page.save(folder / f"{NAME}-price.png")


def _draw_hacks(findings: Findings, folder: Path) -> None:
    page = Page(7.4, 3.0, layout="constrained")
    left, right = page.figure.subplots(1, 2, sharex=True)
    start = shares(findings["base"]["runs"]).value / 100
    for run, colour in zip(findings["hacks"], HACK_COLOURS, strict=True):
        before = run["before"]["value"]
        operations, values = _curve(run, 3, before)
        left.plot(operations, np.divide(values, before), color=colour, lw=1.5, label=_hack_name(run))
        operations, values = _curve(run, 1, start)
        right.plot(operations, np.multiply(values, 100), color=colour, lw=1.5)
    left.legend(frameon=False, fontsize=7.5, labelcolor=INK)
    finish(left, "operations, 10¹²", "reward ÷ the base's")
    finish(right, "operations, 10¹²", "grammatical texts, %")
    page.save(folder / f"{NAME}-hacks.png")


def _hack_name(run: Run) -> str:
    return f"{run['reward']}, weight {run['weight']:g}"


# --- The predictions --------------------------------------------------------------------------------------------


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction."""
    if any(run["diverged"] for run in _all_runs(findings)):
        return dict.fromkeys(findings["predictions"], Outcome("a training run diverged"))
    arms, held, hacks = findings["arms"], findings["held"], findings["hacks"]
    rewarded, repeats, words, held_back = arms[REWARDED], *hacks

    def per_cent(found: Interval) -> Outcome:
        return Outcome(f"{found.text(1)} %", found=found)

    def points(found: Interval) -> Outcome:
        return Outcome(f"{found.text(1, sign=True)} points", found=found)

    def times(found: Interval) -> Outcome:
        return Outcome(found.text(2), found=found)

    nearer = welch(*([run["kl"] for run in arms[name]] for name in (PREFERRED, REWARDED)))
    back = gap([held_back], [words])
    return {
        "GRPO": per_cent(shares(rewarded)),
        "language": _judge_language(findings),
        "longer": per_cent(shares([findings["longer"]])),
        "ordinary": per_cent(shares(arms[ORDINARY])),
        "accepted": per_cent(shares(arms[ACCEPTED])),
        "against ordinary": points(gap(rewarded, arms[ORDINARY])),
        "against accepted": points(gap(rewarded, arms[ACCEPTED])),
        "DPO": per_cent(shares(arms[PREFERRED])),
        "DPO's distance": Outcome(
            f"{nearer.text(3, sign=True)} nats a token", nearer.high < 0 if nearer.excludes_zero else None
        ),
        "loose DPO": per_cent(shares([findings["loose"]])),
        "perplexity": _judge_perplexity(findings),
        "distance": _judge_distance(findings),
        "price": points(gap([held["0.05"]], [held["2"]])),
        "length without": times(length_of(findings, held["0"])),
        "no word twice": per_cent(scaled(repeats["after"], 100)),
        "short": times(length_of(findings, repeats)),
        "many words": times(scaled(words["after"], 1 / words["before"]["value"])),
        "not grammatical": per_cent(shares([words])),
        "held back": Outcome(f"{back.text(1, sign=True)} points", back.low > 0 if back.excludes_zero else None),
    }


def _judge_language(findings: Findings) -> Outcome:
    runs = findings["arms"][REWARDED]
    found = {what: kept(findings, runs, what) for what in LEAST}
    verdicts = [_reached(found[what], least) for what, least in LEAST.items()]
    right = False if False in verdicts else None if None in verdicts else True
    return Outcome("; ".join(f"{what} {_cell(each)} %" for what, each in found.items()), right)


def _judge_perplexity(findings: Findings) -> Outcome:
    before = findings["base"]["perplexity"]
    ordinary, rewarded = (
        over_seeds(findings["arms"][name], lambda run: run["perplexity"]) for name in (ORDINARY, REWARDED)
    )
    came = f"{before:.2f} before, {ordinary.text(2)} and {rewarded.text(2)}"
    wrong = ordinary.low > before or rewarded.high < before
    return Outcome(came, True if ordinary.high < before < rewarded.low else False if wrong else None)


def _judge_distance(findings: Findings) -> Outcome:
    """The order of the weights is right if those beside the one with seeds lie outside its interval."""
    found = [over_seeds(runs, lambda run: run["kl"]) for _, runs in _weighted(findings)]
    values = [each.value for each in found]
    falls = values == sorted(values, reverse=True)
    apart = all(a.low > b.high for a, b in pairwise(found))
    return Outcome("; ".join(_cell(each, 3) for each in found), True if falls and apart else None if falls else False)


# --- The report -------------------------------------------------------------------------------------------------


def report(findings: Findings) -> list[str]:
    """Report what was compared, shares, language, the goal, the price, forgetful rewards, and the predictions."""
    diverged = [run["diverged"] for run in _all_runs(findings) if run["diverged"]]
    if diverged:
        return [f"{len(diverged)} training runs diverged: nothing can be compared. The first: {diverged[0]}."]
    return [
        *_compared(findings),
        _share_table(findings),
        picture(
            f"{NAME}-share", "Share of grammatical texts against operations, for four ways to go on and a longer run"
        ),
        paragraph(f"""
            Thin: single seeds; thick: their mean; each point is of {WATCHED} texts. Dotted: {GOAL} %. Training on
            accepted texts and DPO begin later, since the base draws their texts first.
        """),
        _gaps(findings),
        _language_table(findings),
        *_goal(findings),
        "### The price of staying near",
        *_price(findings),
        "### Rewards that forget something",
        *_hacks(findings),
        *prediction_blocks(findings["predictions"], judge(findings)),
    ]


def _compared(findings: Findings) -> list[str]:
    base, arms = findings["base"], findings["arms"]
    flops = [run["flops"] for runs in arms.values() for run in runs]
    return [
        paragraph(f"""
            A GPT with {base["parameters"]:,} parameters has learned the grammar's sentences by the recipe of `train
            --kind gpt --dataset grammar`, for {scientific(base["flops"])} operations of matrix products. It writes
            texts, and the grammar's parser accepts {shares(base["runs"]).text(1)} % of them. How does it write more
            that are accepted? It goes on in four ways. *{REWARDED}*: it draws {TEXTS} texts for each step and compares
            them with one another; the reward is 1 for an accepted text and else 0, and the divergence from the base has
            the weight {KL:g}. *{ORDINARY}*: cross-entropy on new sentences of the grammar. *{ACCEPTED}*: cross-entropy
            on those texts of the base that the parser accepts (rejection sampling), each read once. *{PREFERRED}*: on
            pairs of an accepted text of the base and one that is not, with β = {BETA:g}. None has dropout. The learning
            rates have their peaks at {listed([f"{peak:g}" for peak in PEAKS.values()])}, in this order, after 20 steps.
            Short trials on an unfinished base chose those of {REWARDED} and {PREFERRED}, the weight and β; nothing else
            was tuned.
        """),
        paragraph(f"""
            All were planned for the same operations, drawing included, and took {scientific(min(flops))} to
            {scientific(max(flops))}: texts become shorter or longer while a model learns. A text that is drawn costs a
            forward of its tokens, and a step three. {REWARDED} and {PREFERRED} need two more, for the policy's
            probabilities and the reference's, and compute the padding of short texts, about half of a batch.
            Cross-entropy reads rows without padding. The parser's work is not counted. There are
            {len(arms[REWARDED])} seeds of each. All go on from one base, and differ in what is drawn, in the order of
            the data, and in the {SAMPLES:,} texts by which they are judged. The brackets of several seeds are 95 %
            intervals by Student's t, or by Welch's for differences; another base could leave them. Those of one run
            cover the choice of its texts only. Without brackets: one run, or no spread.
        """),
    ]


def _named(findings: Findings) -> dict[str, list[Run]]:
    """The runs of the tables, by name."""
    longer = {f"{REWARDED}, longer": [findings["longer"]]}
    return {"base": findings["base"]["runs"], **findings["arms"], **longer}


def _share_table(findings: Findings) -> str:
    rows, base = [], findings["base"]["runs"]
    for name, runs in _named(findings).items():
        took = (
            ["", ""]
            if runs is base
            else [f"{runs[0]['steps']:,}", scientific(float(np.mean([run["flops"] for run in runs])))]
        )
        more = "" if runs is base else gap(runs, base).text(1, sign=True)
        rows.append([name, *took, shares(runs).text(1), more])
    return table(["", "steps", "operations", "grammatical, %", "minus the base's, points"], rows)


def _gaps(findings: Findings) -> str:
    arms = findings["arms"]
    found = {name: gap(arms[REWARDED], arms[name]) for name in (ORDINARY, ACCEPTED, PREFERRED)}
    said = [f"minus {name} {each.text(1, sign=True)}" for name, each in found.items()]
    verdicts = {
        f"{REWARDED} writes more grammatical texts than": [name for name, each in found.items() if each.low > 0],
        f"{REWARDED} writes fewer grammatical texts than": [name for name, each in found.items() if each.high < 0],
        f"These seeds can't tell {REWARDED} from": [name for name, each in found.items() if not each.excludes_zero],
    }
    sentences = [f"{begin} {listed(names)}." for begin, names in verdicts.items() if names]
    return f"{REWARDED}'s share {listed(said)} points. {' '.join(sentences)}"


def _language_table(findings: Findings) -> str:
    rows, base = [], findings["base"]
    for name, runs in _named(findings).items():
        if runs is base["runs"]:
            distinct = _cell(kept(findings, runs, "distinct"))
            rows.append([name, distinct, "", "", f"{len(used(runs))}", "", f"{base['perplexity']:.2f}"])
            continue
        cells = [_cell(kept(findings, runs, what)) for what in LEAST]
        kl, perplexity = (over_seeds(runs, lambda run, name=name: run[name]) for name in ("kl", "perplexity"))
        distinct, length, constructions, entropy = cells
        rows.append([name, distinct, length, entropy, constructions, _cell(kl, 3), _cell(perplexity, 2)])
    heads = ("distinct, %", "length, % of the base's", "entropy, % of the base's", "constructions, % of the base's")
    return table(["", *heads, "divergence, nats a token", "perplexity"], rows)


def _goal(findings: Findings) -> list[str]:
    """What was reached of the goal, by the three seeds and by the longer run."""
    said = {True: "reached", False: "**missed**", None: "can't be told"}
    heads = {REWARDED: findings["arms"][REWARDED], f"{REWARDED}, longer": [findings["longer"]]}
    rows = []
    for what in ("right", *LEAST):
        row = ["grammatical texts" if what == "right" else WORDS[what], f"{LEAST.get(what, GOAL)} %"]
        for runs in heads.values():
            found = shares(runs) if what == "right" else kept(findings, runs, what)
            row.append(f"{_cell(found)} %: {said[_reached(found, LEAST.get(what, GOAL))]}")
        rows.append(row)
    return [
        paragraph(f"""
            The goal was {GOAL} % within twenty minutes of two cores, without a loss of language. A run of {REWARDED}
            took {np.mean([run["seconds"] for run in findings["arms"][REWARDED]]) / 60:.0f} minutes of the clock on one
            core, and one that is {LONGER} times as long {findings["longer"]["seconds"] / 60:.0f}; other work shared
            the machine. In the table a construction counts as used if one of {SAMPLES:,} texts has it.
        """),
        table(["", "at least", *heads], rows, left=4),
        _fallen(findings),
    ]


def _fallen(findings: Findings) -> str:
    """The constructions whose share fell most, and rose most, in GRPO, of those in a hundredth of the base's texts."""
    runs, base = findings["arms"][REWARDED], findings["base"]["runs"]

    def mean(of: Sequence[Run], name: str) -> float:
        return 100 * float(np.mean([run["constructions"][name] for run in of]))

    ratio = {name: mean(runs, name) / mean(base, name) for name in used(base) if mean(base, name) >= 1}
    least, most = min(ratio, key=ratio.__getitem__), max(ratio, key=ratio.__getitem__)
    both = [f"“{name}” from {mean(base, name):.1f} to {mean(runs, name):.1f} %" for name in (least, most)]
    return paragraph(f"""
        Of the constructions in at least 1 % of the base's texts, the one that lost most with {REWARDED} is {both[0]} of
        the texts, and the one that gained most {both[1]}.
    """)


def _price(findings: Findings) -> list[str]:
    rows = []
    for weight, runs in _weighted(findings):
        kl = over_seeds(runs, lambda run: run["kl"])
        language = [_cell(kept(findings, runs, what)) for what in ("length", "entropy", "distinct")]
        rows.append([f"{weight:g}", shares(runs).text(1), _cell(kl, 3), *language])
    heads = ("divergence, nats a token", "length, % of the base's", "entropy, % of the base's", "distinct, %")
    loose, start = findings["loose"], shares(findings["base"]["runs"])
    return [
        paragraph(f"""
            The divergence is a term of the loss. With a larger weight the model stays nearer to the base, and has less
            to gain. One run for each weight, but {len(findings["arms"][REWARDED])} for {KL:g}; without the term a step
            costs one forward less.
        """),
        table(["weight", "grammatical, %", *heads], rows),
        picture(f"{NAME}-price", "Share of grammatical texts, and mean length, against the divergence from the base"),
        paragraph(f"""
            Numbers beside dots: the weights; squares: {PREFERRED}, by its β. With β = {LOOSE_BETA:g}, twice the
            learning rate and {PART:g} of the operations, one run of {PREFERRED} has {shares([loose]).text(1)} %
            grammatical texts, where the base has {start.value:.1f} %, at a divergence of {loose["kl"]:.2f} and with
            {100 * length_of(findings, loose).value:.0f} % of the base's length. It writes:
        """),
        verbatim(each.strip() for each in loose["examples"][:4]),
    ]


def _hacks(findings: Findings) -> list[str]:
    rows, blocks = [], list[str]()
    for run in findings["hacks"]:
        before, after = (scaled(run[when], 1) for when in ("before", "after"))
        numbers = (before.text(2), after.text(2), shares([run]).text(1), f"{100 * length_of(findings, run).value:.0f}")
        rows.append([run["reward"], f"{run['weight']:g}", *numbers, f"{100 * run['distinct']:.1f}", f"{run['kl']:.2f}"])
    heads = ("reward before", "after", "grammatical, %", "length, % of the base's", "distinct, %", "divergence")
    for run in findings["hacks"]:
        blocks += [f"{_hack_name(run).capitalize()}:", verbatim(each.strip() for each in run["examples"][:3])]
    return [
        paragraph(f"""
            Two rewards that a user could write in a minute. *No word twice*: 1 if a text ends with a full stop or a
            question mark and has no word twice, else 0. *Many words*: the number of different words of a text that ends
            so, else 0; a text has at most {MOST_TOKENS} tokens. Both forget the grammar, which the base has learned
            already, and one of them the length. One run each, for {PART:g} of the operations.
        """),
        table(["reward", "weight of the divergence", *heads], rows),
        picture(f"{NAME}-hacks", "The reward, and the share of grammatical texts, against operations, for three runs"),
        "The reward is that of the texts of a step. What the three write:",
        *blocks,
    ]
