"""The runs on rewards as pictures and as a part of the report."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minitransformer.plots.page import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, Page
from study.charts import finish, plain_logarithm
from study.experiment import Findings
from study.markdown import listed, paragraph, picture, scientific, table, verbatim

from ...predictions import prediction_blocks
from .arms import MOST_TOKENS, SAMPLES, WATCHED
from .judging import (
    GOAL,
    LEAST,
    Run,
    all_runs,
    cell,
    gap,
    judge,
    kept,
    length_of,
    made,
    over_seeds,
    reached,
    scaled,
    shares,
    used,
    weighted,
)
from .plan import ACCEPTED, BETA, KL, LOOSE_BETA, NAME, ORDINARY, PART, PEAKS, PREFERRED, REWARDED, TEXTS

COLOURS = {REWARDED: VERMILION, ORDINARY: BLUE, ACCEPTED: GREEN, PREFERRED: PURPLE}
HACK_COLOURS = (BLUE, VERMILION, ORANGE)

WORDS = {
    "distinct": "different texts",
    "length": "mean length, of the base's",
    "constructions": "constructions still used, of the base's",
    "entropy": "entropy of a token, of the base's",
}


# --- Pictures ---------------------------------------------------------------------------------------------------


def draw(findings: Findings, folder: Path) -> None:
    """Draw the share against operations, the price of the divergence, and forgetful rewards, as `rewards-….png`."""
    if any(run["diverged"] for run in all_runs(findings)):
        return
    _draw_shares(findings, folder)
    if findings["held"]:
        _draw_price(findings, folder)
    if findings["hacks"]:
        _draw_hacks(findings, folder)


def _curve(run: Run, column: int, first: float) -> tuple[list[float], list[float]]:
    """The operations of a curve, in 10¹², and a column of it, from the value at 0 operations on."""
    return [0, *(point[0] / 1e12 for point in run["curve"])], [first, *(point[column] for point in run["curve"])]


def _draw_shares(findings: Findings, folder: Path) -> None:
    page = Page(7.0, 3.4, layout="constrained")
    axes = page.figure.subplots()
    start = shares(findings["base"]["runs"]).value
    for name, runs in made(findings).items():
        curves = [_curve(run, 1, start / 100) for run in runs]
        for operations, values in curves:
            axes.plot(operations, np.multiply(values, 100), color=COLOURS[name], lw=0.7, alpha=0.35)
        operations, values = (np.mean([curve[i] for curve in curves], axis=0) for i in (0, 1))
        axes.plot(operations, 100 * values, color=COLOURS[name], lw=1.8, label=name)
    for run in findings["longer"]:
        operations, values = _curve(run, 1, start / 100)
        axes.plot(operations, np.multiply(values, 100), "--", color=VERMILION, lw=1.2, label=f"{REWARDED}, longer")
    axes.axhline(GOAL, color=GREY, lw=0.9, ls=":")
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right")
    finish(axes, "operations, 10¹²", "grammatical texts, %")
    page.save(folder / f"{NAME}-share.png")


def _draw_price(findings: Findings, folder: Path) -> None:
    page = Page(7.4, 3.0, layout="constrained")
    both = page.figure.subplots(1, 2, sharex=True)
    weights = weighted(findings)
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
        others = {f"β {BETA:g}": findings["arms"][PREFERRED], f"β {LOOSE_BETA:g}": findings["loose"]}
        for name, runs in ((name, runs) for name, runs in others.items() if runs):
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
    for run, colour in zip(findings["hacks"], HACK_COLOURS, strict=False):
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


# --- The report -------------------------------------------------------------------------------------------------


def report(findings: Findings) -> list[str]:
    """Report what was compared, shares, language, the goal, the price, forgetful rewards, and the predictions."""
    diverged = [run["diverged"] for run in all_runs(findings) if run["diverged"]]
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
        *(_price(findings) if findings["held"] else ()),
        *(_hacks(findings) if findings["hacks"] else ()),
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
            Cross-entropy reads rows without padding. The parser's work is not counted. Seeds:
            {_seeds(arms)}. All go on from one base, and differ in what is drawn, in the order of
            the data, and in the {SAMPLES:,} texts by which they are judged. The brackets of several seeds are 95 %
            intervals by Student's t, or by Welch's for differences; another base could leave them. Those of one run
            cover the choice of its texts only. Without brackets: one run, or no spread.
        """),
    ]


def _seeds(arms: dict[str, list[Run]]) -> str:
    """The number of seeds of each arm."""
    counts = {len(runs) for runs in arms.values()}
    if len(counts) == 1:
        return f"{counts.pop()} seeds of each"
    return f"{listed([f'{len(runs)} of {name}' for name, runs in arms.items()])} (the others were not made yet)"


def _named(findings: Findings) -> dict[str, list[Run]]:
    """The runs of the tables, by name."""
    longer = {f"{REWARDED}, longer": findings["longer"]} if findings["longer"] else {}
    return {"base": findings["base"]["runs"], **made(findings), **longer}


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
    found = {name: gap(arms[REWARDED], arms[name]) for name in (ORDINARY, ACCEPTED, PREFERRED) if arms[name]}
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
            distinct = cell(kept(findings, runs, "distinct"))
            rows.append([name, distinct, "", "", f"{len(used(runs))}", "", f"{base['perplexity']:.2f}"])
            continue
        cells = [cell(kept(findings, runs, what)) for what in LEAST]
        kl, perplexity = (over_seeds(runs, lambda run, name=name: run[name]) for name in ("kl", "perplexity"))
        distinct, length, constructions, entropy = cells
        rows.append([name, distinct, length, entropy, constructions, cell(kl, 3), cell(perplexity, 2)])
    heads = ("distinct, %", "length, % of the base's", "entropy, % of the base's", "constructions, % of the base's")
    return table(["", *heads, "divergence, nats a token", "perplexity"], rows)


def _goal(findings: Findings) -> list[str]:
    """Return a table of the goal and its verdicts, by the three seeds and by the longer run."""
    said = {True: "reached", False: "**missed**", None: "can't be told"}
    heads = {name: runs for name, runs in _named(findings).items() if name.startswith(REWARDED)}
    rows = []
    for what in ("right", *LEAST):
        row = ["grammatical texts" if what == "right" else WORDS[what], f"{LEAST.get(what, GOAL)} %"]
        for runs in heads.values():
            found = shares(runs) if what == "right" else kept(findings, runs, what)
            row.append(f"{cell(found)} %: {said[reached(found, LEAST.get(what, GOAL))]}")
        rows.append(row)
    return [
        paragraph(f"""
            The goal was {GOAL} % within twenty minutes of two cores, without a loss of language. {REWARDED} took
            {listed([f"{_minutes(runs):.0f} minutes for {runs[0]['steps']:,} steps" for runs in heads.values()])}, by
            the clock, on one core of a machine that did other work too. In the table a construction counts as used if
            one of {SAMPLES:,} texts has it.
        """),
        table(["", "at least", *heads], rows, left=2 + len(heads)),
        _fallen(findings),
    ]


def _minutes(runs: Sequence[Run]) -> float:
    return float(np.mean([run["seconds"] for run in runs])) / 60


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
    for weight, runs in weighted(findings):
        kl = over_seeds(runs, lambda run: run["kl"])
        language = [cell(kept(findings, runs, what)) for what in ("length", "entropy", "distinct")]
        rows.append([f"{weight:g}", shares(runs).text(1), cell(kl, 3), *language])
    heads = ("divergence, nats a token", "length, % of the base's", "entropy, % of the base's", "distinct, %")
    blocks = [
        "### The price of staying near",
        paragraph(f"""
            The divergence is a term of the loss. With a larger weight the model stays nearer to the base, and has less
            to gain. One run for each weight, but {len(findings["arms"][REWARDED])} for {KL:g}; without the term a step
            costs one forward less.
        """),
        table(["weight", "grammatical, %", *heads], rows),
        picture(f"{NAME}-price", "Share of grammatical texts, and mean length, against the divergence from the base"),
        "Numbers beside dots: the weights; squares: DPO, by its β.",
    ]
    for loose in findings["loose"]:
        said = f"""
            With β = {LOOSE_BETA:g}, twice the learning rate and {PART:g} of the operations, one run of {PREFERRED} has
            {shares([loose]).text(1)} % grammatical texts, where the base has
            {shares(findings["base"]["runs"]).value:.1f} %. Its divergence is {loose["kl"]:.2f}, and its mean length
            {100 * length_of(findings, loose).value:.0f} % of the base's. It writes:
        """
        blocks += [paragraph(said), verbatim(each.strip() for each in loose["examples"][:4])]
    return blocks


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
        "### Rewards that forget something",
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
