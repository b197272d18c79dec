"""Lesson 25: a teacher's probabilities, losses at equal cost, what students learn, and laws against trainings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from after.experiments.distillation import BEAM, GREEDY, SEARCHED
from after.experiments.scaling import ALL
from study.charts import draw_intervals, plain_logarithm
from study.markdown import scientific
from study.trials.bootstrap import Interval

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION, dark, show
from .studies import columns, trained, whole

TEMPERATURES = VERMILION, ORANGE, SKY
BUDGETS = SKY, BLUE, GREEN, ORANGE, VERMILION

Law = Callable[[Any, Any], Any]
"""The loss of a model of N parameters after D tokens."""


def draw_smaller_and_larger(
    words: Sequence[str],
    probabilities: Mapping[float, np.ndarray],
    title: str,
    law: Law,
    best: Callable[[float], tuple[float, float]],
    budgets: Sequence[float],
) -> None:
    """Draw a teacher's probabilities for some words, by temperature (left), and the loss against the size (right).

    The loss is that of a law, on a line for each budget C = 6 N D, with the lowest point of each.
    """
    _, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6))
    rows = np.arange(len(words))
    for (temperature, values), colour, mark in zip(probabilities.items(), TEMPERATURES, "os^", strict=True):
        left.plot(values, rows, mark, ms=5, color=colour, label=f"T = {temperature:g}")
    left.set_yticks(rows, words, fontsize=8)
    left.invert_yaxis()
    left.set(xscale="log", xlabel="probability of the next word", title=title)
    left.grid(axis="x")
    left.legend(fontsize=8, loc="lower right")
    for budget, colour in zip(budgets, BUDGETS, strict=False):
        n, d = best(budget)
        sizes = np.geomspace(n / 40, n * 40, 100)
        right.plot(sizes, law(sizes, budget / 6 / sizes), color=colour, lw=1.3)
        right.plot(n, law(n, d), "o", ms=5, color=colour)
        right.text(
            n * 45, law(n * 40, budget / 6 / n / 40), f"$10^{{{np.log10(budget):.0f}}}$", fontsize=9, color=dark(colour)
        )
    sizes = np.array([best(budget)[0] for budget in budgets])
    right.set_xlim(sizes.min() / 60, sizes.max() * 800)
    right.set(
        xscale="log", xlabel="parameters N", ylabel="loss, nats a token", title="One line: one budget, in operations"
    )
    show(
        "Left, a teacher's probabilities for the next word: a higher temperature lowers the first word's and raises "
        "those of the others. Right, the loss against the size of the model, a curve for each budget: each has a "
        "lowest point, which moves to larger models as the budget grows."
    )


def draw_students(tokens: Sequence[int], curves: Mapping[str, Sequence[float]], teacher: float) -> None:
    """Draw the test loss of students against the words that they learned from, a line for each way to learn."""
    _, axes = plt.subplots(figsize=(7.2, 3.2))
    styles = (VERMILION, "-"), (VERMILION, ":"), (BLUE, "-"), (GREEN, "--")
    for (name, values), (colour, line) in zip(curves.items(), styles, strict=True):
        axes.plot(tokens, values, line, marker="o", ms=4, color=colour, label=name)
    axes.axhline(teacher, color=GREY, lw=0.9, ls="--")
    axes.text(tokens[-1], teacher - 0.03, "the teacher", color=GREY, fontsize=8, ha="right", va="top")
    axes.set(xscale="log", xlabel="words of text that the student sees", ylabel="test loss, nats a word")
    _plain(axes)
    axes.set_ylim(teacher - 0.25, min(4.6, max(curve[0] for curve in curves.values()) + 0.2))
    axes.set_title("One student, one number of steps, other targets")
    axes.legend(fontsize=8)
    show(
        "The test loss of a student against the words of text that it sees. Taught by the text alone it is far worse "
        "the fewer words there are; taught by the teacher's probabilities it comes near the teacher even with few."
    )


def draw_exponents(sizes: np.ndarray, exponents: Mapping[str, np.ndarray], marks: Mapping[str, float]) -> None:
    """Draw the power of C with which the best size grows against the size, by way to count, and known powers."""
    _, axes = plt.subplots(figsize=(7.2, 3.0))
    for (name, values), colour, line in zip(exponents.items(), (BLUE, VERMILION), ("-", "--"), strict=True):
        axes.plot(sizes, values, line, color=colour, label=name)
    for name, value in marks.items():
        axes.axhline(value, color=GREY, lw=0.8, ls=":")
        high = value > np.mean(list(marks.values()))
        place = value + (0.008 if high else -0.008)
        axes.text(sizes[-1], place, name, color=GREY, fontsize=8, ha="right", va="bottom" if high else "top")
    axes.set(xscale="log", xlabel="parameters without embeddings", ylabel="best N grows as C to the …")
    axes.set_ylim(bottom=0.44)
    axes.set_title("One law, two ways to count")
    axes.legend(fontsize=8, loc="upper right")
    show(
        "The power with which the best size grows with the compute. With all parameters counted it is about one half "
        "everywhere; without the embeddings small models show a far larger power, around Kaplan's."
    )


def draw_reach(factors: np.ndarray, off: np.ndarray, bands: np.ndarray) -> None:
    """Draw how far, in percent, a law's loss of the best model is off the truth, with its interval, by budget."""
    _, axes = plt.subplots(figsize=(7.2, 2.6))
    axes.fill_between(factors, bands[0], bands[1], color=BLUE, alpha=0.2, lw=0, label="95 % of bootstrap samples")
    axes.plot(factors, off, color=BLUE, label="the fit")
    axes.axhline(0, color=INK, lw=0.9, ls="--")
    axes.axvline(1, color=GREY, lw=0.8, ls=":")
    axes.set(xscale="log", xlabel="budget, in times the largest that was trained", ylabel="off the true loss, %")
    axes.set_title("The farther from the trainings, the less is said")
    _plain(axes, (1,))
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.24, 1))  # right of the dotted line
    show(
        "How far the fitted law is off the true loss, by budget. Within the budgets of the training runs the interval "
        "is narrow; it widens the farther beyond them the law is asked."
    )


def _plain(axes: Axes, subs: Sequence[float] = (1, 3)) -> None:
    """Write plain numbers on a logarithmic axis, at these multiples of the powers of ten."""
    plain_logarithm(axes.xaxis, subs)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))


# --- Recorded ---------------------------------------------------------------------------------------------------


def draw_bleu(found: dict[str, Any]) -> None:
    """Draw the BLEU of every trained model, greedy and with a beam."""
    names = trained(found)
    if not names:
        return
    _, both = plt.subplots(1, 2, figsize=(7.4, 2.3), sharey=True, sharex=True)
    colours = [dict(zip(found["models"], (GREY, BLUE, GREEN, ORANGE, PURPLE), strict=True))[name] for name in names]
    for axes, search, label in zip(both, (GREEDY, SEARCHED), ("greedy", f"beam {BEAM}"), strict=True):
        scores = {name: Interval(**found["models"][name][search]["bleu"]) for name in names}
        draw_intervals(axes, scores, colours, f"BLEU, {label}")
    both[1].invert_yaxis()  # `draw_intervals` inverted the shared axis twice
    show("BLEU of the teacher and of students with its intervals, greedy and with a beam. All intervals overlap.")


def draw_trainings(found: dict[str, Any], law: Law) -> None:
    """Draw the loss against size for each budget with the law's line, and predicted against measured losses."""
    runs = whole(found)
    _, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.3))
    for number, (operations, colour) in enumerate(zip(found["operations"], BUDGETS, strict=False)):
        n, d, losses = map(np.array, columns([run for run in runs if run["budget"] == number], ALL))
        if not len(n):
            continue
        left.plot(n, losses, "o", ms=4.5, color=colour, label=f"C = {scientific(operations)}")
        fine = np.geomspace(n.min() / 1.3, n.max() * 1.3, 60)
        # The tokens that the budget buys at other sizes are interpolated, since a token does not cost exactly 6 N.
        tokens = np.exp(np.polyval(np.polyfit(np.log(n), np.log(d), min(2, len(n) - 1)), np.log(fine)))
        left.plot(fine, law(fine, tokens), color=colour, lw=1.2)
        right.plot(law(n, d), losses, "o", ms=4.5, color=colour)
    shown = [run["loss"] for run in runs]
    if found["aside"]["diverged"] is None:
        (n,), (d,), (loss,) = columns([found["aside"]], ALL)
        left.plot(n, loss, "*", ms=11, color=INK, label="kept aside")
        right.plot(law(n, d), loss, "*", ms=11, color=INK)
        shown.append(loss)
    right.plot([min(shown), max(shown)], [min(shown), max(shown)], color=GREY, lw=0.9, ls=":")
    left.set(xscale="log", xlabel="all parameters", ylabel="loss, nats a token", title="Trainings, and the law")
    _plain(left)
    handles, labels = left.get_legend_handles_labels()
    right.legend(handles, labels, fontsize=7.5, loc="lower right")
    right.set(xlabel="loss that the law says", ylabel="loss that came", title="On the dotted line it is right")
    show(
        "Left, the loss of training runs against the size of the model, with the fitted law's curve for each budget. "
        "Right, the losses that came against those that the law says: the points lie near the diagonal, also that of "
        "the run that was kept aside."
    )
