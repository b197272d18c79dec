"""Lesson 28: levels of a matrix and of its groups, where the error sits, what bits cost, and drafts that are kept."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, VERMILION, dark, show

Floats = NDArray[np.floating]
LINES = BLUE, GREEN, ORANGE, PURPLE, VERMILION


def draw_levels(weights: Floats, of_all: Floats, of_groups: Floats) -> None:
    """Draw the weights of one output, with the levels of one scale (above) and those of its groups (below).

    weights `(groups, group)`; of_all: levels; of_groups `(groups, levels)`.
    """
    _, panels = plt.subplots(2, 1, figsize=(6.4, 5.2), sharex=True, sharey=True)
    count, size = weights.shape
    for axes, levels, title in (
        (panels[0], np.broadcast_to(of_all, (count, len(of_all))), "One scale for the matrix: few levels are used"),
        (panels[1], of_groups, f"A scale for each group of {size}: fine where the weights are small"),
    ):
        for group, of_one in enumerate(levels):
            axes.hlines(of_one, group * size - 0.5, (group + 1) * size - 0.7, color=BLUE, lw=0.8, alpha=0.7)
            axes.axvline((group + 1) * size - 0.6, color=PALE, lw=1, zorder=0)
        nearest = np.abs(weights[..., None] - levels[:, None]).argmin(axis=-1)
        landed = np.take_along_axis(np.asarray(levels), nearest, axis=-1).ravel()
        places = np.arange(weights.size)
        axes.vlines(places, weights.ravel(), landed, color=VERMILION, lw=1.4)
        axes.plot(places, weights.ravel(), "o", ms=3.2, color=INK)
        axes.set(title=title, ylabel="weight", ylim=(1.1 * weights.min(), 1.1 * weights.max()))
    panels[1].set(xlabel=f"the {weights.size} inputs of one output", xlim=(-2, weights.size + 1))
    panels[1].set_xticks(range(0, weights.size + 1, size))
    show(
        "The 96 weights of one output as points, and the levels as lines. With one scale for the matrix only a few "
        "levels lie among them, and red lines show how far each weight is moved. With a scale for each of three groups "
        "sixteen levels lie among the weights of each, and the red lines are shorter."
    )


def draw_errors(ranges: Floats, errors: Mapping[str, Floats]) -> None:
    """Draw the error of each group of a matrix against the range of its weights, a colour for each way to round."""
    _, axes = plt.subplots(figsize=(6.4, 3.4))
    for (name, found), colour, mark in zip(errors.items(), (VERMILION, BLUE), "os", strict=True):
        axes.plot(ranges, found, mark, ms=3, color=colour, alpha=0.5, label=name, mec="none")
    axes.set(
        xscale="log", yscale="log", xlabel="range of a group's weights, max − min", ylabel="root mean square error"
    )
    axes.set_title("Where the error sits: a point is a group")
    _plain(axes.xaxis, axes.get_xlim(), (0.1, 0.2, 0.5, 1))
    _plain(axes.yaxis, axes.get_ylim(), (0.002, 0.005, 0.01, 0.02))
    legend = axes.legend(fontsize=9, loc="lower right")
    for handle in legend.legend_handles:
        handle.set_alpha(1)  # type: ignore[union-attr]
    show(
        "The error of each group of a matrix against the range of its weights. With one scale for all it is about the "
        "same for every group, so small weights are hit hardest. With scales of their own it is proportional to the "
        "range, and smaller for nearly all."
    )


def draw_costs(costs: Mapping[str, Sequence[tuple[int, float, float]]], exact: float) -> None:
    """Draw the loss of a model against the bits of a weight, a line of (bits, bits with scales, loss) by group."""
    _, axes = plt.subplots(figsize=(6.4, 3.8))
    marks = "os^D"
    for (name, points), colour, mark in zip(costs.items(), LINES, marks, strict=False):
        _, sizes, losses = zip(*points, strict=True)
        axes.plot(sizes, losses, mark + "-", ms=5, lw=1.2, color=colour, label=name)
    bits, sizes, losses = zip(*next(iter(costs.values())), strict=True)
    for number, size, loss in zip(bits, sizes, losses, strict=True):
        axes.annotate(f"{number}", (size, loss), xytext=(5, 4), textcoords="offset points", fontsize=9,
                      color=dark(LINES[0]))  # fmt: skip
    axes.axhline(exact, color=GREY, lw=0.9, ls="--")
    axes.text(6.5, exact * 0.93, "float32, 32 bits", color=GREY, fontsize=9, ha="center", va="top")
    axes.set(yscale="log", xlabel="bits of a weight, scales and minima included", ylabel="loss, nats a token")
    axes.set_ylim(bottom=exact * 0.7)
    axes.set_title("The translator in few bits")
    _plain(axes.yaxis, axes.get_ylim(), (0.1, 0.2, 0.5, 1, 2, 5, 10))
    axes.legend(fontsize=9)
    show(
        "The loss of the translator against the bits of a weight, a line for each size of group. With eight bits all "
        "lines meet that of float32. Below five the loss rises, and the more the larger the groups are; with one scale "
        "for a matrix it explodes."
    )


def draw_overlap(
    p: Floats, q: Floats, counts: Mapping[int, Floats], overlaps: Floats, drafts: Mapping[str, float]
) -> None:
    """Draw two distributions and what they share (above), and the tokens of a pass against the overlap (below).

    counts: by the number of drafted tokens, the expected tokens at each of the overlaps; drafts: overlaps by name.
    """
    _, (above, below) = plt.subplots(2, 1, figsize=(6.4, 6.4), height_ratios=(2, 3))
    places, shared = np.arange(len(p)), np.minimum(p, q)
    above.bar(places, shared, width=0.7, color=BLUE, label="kept: min(p, q)")
    above.bar(places, np.maximum(p - q, 0), 0.7, shared, color=ORANGE, label="drawn anew: p − q")
    above.bar(places, np.maximum(q - p, 0), 0.7, shared, fill=False, ec=GREY, ls=":", label="refused: q − p")
    above.set_xticks(places, [f"{place}" for place in places])
    above.set(xlabel="token", ylabel="probability", ylim=(0, 1.25 * max(p.max(), q.max())))
    above.set_title("What a draft may keep")
    above.legend(fontsize=9, ncols=3, loc="upper center")
    for (k, expected), colour in zip(counts.items(), LINES, strict=False):
        below.plot(overlaps, expected, color=colour, lw=1.4)
        below.text(1.012, expected[-1], f"k = {k}", color=dark(colour), fontsize=9, va="center")
    for name, overlap in drafts.items():
        below.axvline(overlap, color=GREY, lw=0.9, ls=":")
        shift, side = (-0.006, "right") if overlap < 0.98 else (0.004, "left")  # beside the line where there is room
        below.text(overlap + shift, 6.7, name, color=GREY, fontsize=9, rotation=90, ha=side, va="top")
    below.set(xlim=(0.3, 1.08), xlabel="overlap of p and q, 1 − TV", ylabel="tokens for a pass of the large model")
    below.set_title("k drafted tokens, one pass")
    show(
        "Above, two distributions over five tokens: the part that both share is kept, what p has more is drawn anew. "
        "Below, the expected tokens of a pass against the overlap, a line for each number of drafted tokens: all begin "
        "little above one and rise steeply towards k plus one where the overlap is 1."
    )


def _plain(axis: Axis, limits: tuple[float, float], ticks: Sequence[float]) -> None:
    """Write plain numbers on a logarithmic axis, those of the ticks that it shows."""
    shown = [tick for tick in ticks if limits[0] <= tick <= limits[1]]
    axis.set_ticks(shown, [f"{tick:g}" for tick in shown])
    axis.set_minor_locator(NullLocator())
