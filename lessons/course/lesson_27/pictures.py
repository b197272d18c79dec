"""Lesson 27: how the texts of a policy move, noise and baselines, a reward that is exploited, the clipped objective."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from ..style import BLUE, GREEN, GREY, INK, VERMILION, show

KINDS = GREEN, BLUE, VERMILION, GREY
"""The colours of the kinds of texts: what is wanted, other sentences, what exploits a reward, and all others."""

WIDTH = 5.6
"""In inches; narrower than in other lessons, so that a phone shrinks it less."""


def draw_texts(rows: Mapping[str, tuple[np.ndarray, str]], policies: Mapping[str, np.ndarray], alt: str) -> None:
    """Draw the probability of each row of texts, a panel for each policy `(texts,)`.

    rows: by name, the numbers of the texts whose probabilities are added, and a colour.
    """
    figure, panels = plt.subplots(1, len(policies), figsize=(WIDTH, 0.6 + 0.3 * len(rows)), sharey=True)
    places = np.arange(len(rows))
    for axes, (title, policy) in zip(panels, policies.items(), strict=True):
        shares = [policy[numbers].sum() for numbers, _ in rows.values()]
        axes.barh(places, shares, color=[colour for _, colour in rows.values()], height=0.72)
        for place, share in zip(places, shares, strict=True):
            axes.text(share + 0.03, place, f"{share:.0%}" if share >= 0.005 else "~0", va="center", fontsize=8)
        axes.set(title=title, xlim=(0, 1.38), xticks=[0, 0.5, 1])
        axes.set_xticklabels(["0", "½", "1"], fontsize=8)
    panels[0].set_yticks(places, list(rows), fontsize=9)
    panels[0].invert_yaxis()
    figure.supxlabel("probability", fontsize=9)
    show(alt)


def draw_baselines(
    baselines: np.ndarray, curves: Mapping[str, np.ndarray], marks: Mapping[str, tuple[float, float]]
) -> None:
    """Draw the variance of an estimate against the baseline, for each reward, with marked baselines."""
    _, axes = plt.subplots(figsize=(WIDTH, 3.0))
    for (name, values), colour, line in zip(curves.items(), (BLUE, VERMILION), ("-", "--"), strict=False):
        axes.plot(baselines, values, line, color=colour, label=name)
    for (name, (place, value)), mark in zip(marks.items(), "sDo", strict=False):
        axes.plot(place, value, mark, ms=7, color=INK, mfc="white", label=name)
    axes.set(xlabel="baseline b", ylabel="variance of one text's estimate", title="The same gradient, different noise")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    show(
        "The variance of the estimate against the baseline: a parabola, whose lowest point lies near the mean reward. "
        "Without a baseline it is larger, and for the same rewards with a constant added it is far larger."
    )


def draw_hacking(rewards: Sequence[float], kinds: Mapping[str, Sequence[float]]) -> None:
    """Draw the expected reward by step (above), and the shares of the kinds of texts (below)."""
    _, (above, below) = plt.subplots(2, 1, figsize=(WIDTH, 4.2), sharex=True)
    above.plot(rewards, color=INK)
    above.set(ylabel="expected reward", title="What is measured …")
    for (name, values), colour, line in zip(kinds.items(), KINDS, ("-", "--", "-", ":"), strict=True):
        below.plot(values, line, color=colour, label=name)
    below.set(xlabel="step", ylabel="probability", title="… and what is written", ylim=(-0.03, 1.06))
    below.legend(fontsize=8, loc="center right")
    show(
        "Above, the expected reward by step: it rises, stays for a while, and rises again to three times as much. "
        "Below, the texts: at the first rise the wanted sentences take over, at the second one they vanish, and 'runs "
        "runs runs' takes all."
    )


def draw_trade_off(
    betas: np.ndarray, lines: Mapping[str, np.ndarray], trained: Mapping[float, Sequence[float]]
) -> None:
    """Draw the share of each kind of texts in the best policy against β, and what training reached, as points."""
    _, axes = plt.subplots(figsize=(WIDTH, 3.4))
    for number, ((name, shares), colour, line) in enumerate(
        zip(lines.items(), KINDS, ("-", "--", "-", ":"), strict=True)
    ):
        axes.plot(betas, shares, line, color=colour, label=name)
        axes.plot(list(trained), [found[number] for found in trained.values()], "o", ms=5, color=colour)
    axes.set(xscale="log", xlabel="β, the weight of the divergence", ylabel="probability", ylim=(-0.03, 1.03))
    ticks = sorted(trained)
    axes.set_xticks(ticks, [f"{beta:g}" for beta in ticks])
    axes.minorticks_off()
    axes.set_title("Lines: π_ref e^(r/β) / Z.  Points: trained")
    axes.legend(fontsize=8, loc="upper right", ncols=2)
    show(
        "The shares of the kinds of texts against β. With a small β nearly all is 'runs runs runs', with a large one "
        "the policy stays where it was; in between the wanted sentences have their largest share. Points of trained "
        "policies lie on the lines of the formula."
    )


def draw_clip(ratios: np.ndarray, panels: Mapping[str, tuple[np.ndarray, np.ndarray]], clip: float) -> None:
    """Draw the clipped objective of one token and its slope by log π against the ratio, a panel for each advantage."""
    _, both = plt.subplots(1, len(panels), figsize=(WIDTH, 2.9), sharex=True)
    for axes, (title, (objective, slope)) in zip(both, panels.items(), strict=True):
        for edge in (1 - clip, 1 + clip):
            axes.axvline(edge, color=GREY, lw=0.8, ls=":")
        axes.plot(ratios, objective, color=BLUE, label="objective")
        axes.plot(ratios, slope, "--", color=VERMILION, label="its slope by log π")
        axes.set(xlabel="ratio π / π_old", title=title)
        axes.set_xticks([1 - clip, 1, 1 + clip], [f"{1 - clip:g}", "1", f"{1 + clip:g}"])
    both[1].legend(fontsize=8, loc="lower left")
    show(
        "The clipped objective and its slope against the ratio. With an advantage above 0 the slope is 0 above 1 + "
        "clip; with one below 0 it is 0 below 1 − clip. At the other sides it goes on."
    )


def draw_writers(curves: Mapping[str, tuple[Sequence[int], Sequence[float], Sequence[float]]]) -> None:
    """Draw, for each way to train, the share of grammatical texts (left) and of different ones (right) by step."""
    _, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.9), sharey=True)
    for (name, (steps, judged, distinct)), colour, line in zip(
        curves.items(), (VERMILION, BLUE), ("-", "--"), strict=True
    ):
        left.plot(steps, judged, line, marker="o", ms=4, color=colour, label=name)
        right.plot(steps, distinct, line, marker="o", ms=4, color=colour, label=name)
    left.set(xlabel="step", title="grammatical: what the reward sees", ylim=(0, 1.05))
    right.set(xlabel="step", title="different texts: what it does not")
    left.legend(fontsize=8, loc="lower right")
    show(
        "Left, the share of grammatical texts rises for both ways to train. Right, the share of different texts falls "
        "by far without the divergence, and hardly with it."
    )
