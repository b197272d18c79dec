"""Lesson 26: two trainings that drift apart; who adds what, along one tree."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from minitransformer.training.parallel.shards import share, subtrees

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION, on, show

PROCESSES = BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION
"""A colour for each process."""

SPACING = 1.2
"""Between two levels of the tree."""


def draw_drift(differences: Mapping[str, Sequence[float]], rounding: float) -> None:
    """Draw differences by step, on a logarithmic axis, with a line at the last bit of a number about 1."""
    _, axes = plt.subplots(figsize=(7.2, 3.6))
    for (name, values), (colour, style) in zip(
        differences.items(), ((ORANGE, "--"), (BLUE, "-"), (VERMILION, ":")), strict=True
    ):
        shown = np.where(np.asarray(values) > 0, values, np.nan)
        axes.plot(np.arange(1, len(shown) + 1), shown, style, color=colour, lw=1.2, label=name)
    axes.axhline(rounding, color=GREY, lw=0.8, ls=":")
    axes.text(axes.dataLim.x1, rounding * 1.4, "last bit of a float32 near 1", color=GREY, fontsize=8, ha="right")
    axes.set(yscale="log", xlabel="step", ylabel="difference", title="Two trainings that add in another order")
    axes.set_ylim(bottom=1e-10)  # losses that are equal to the last bit fall below the axis
    axes.legend(loc="lower right", fontsize=8)
    show(
        "Differences between two training runs that add in another order, by step. They begin around the last bit of "
        "a float32 number, and then grow by several powers of ten."
    )


def draw_exchange(num_shards: int = 8, sizes: Sequence[int] = (2, 3)) -> None:
    """Draw one tree over the shards for several numbers of processes: each one's own sums, the messages, the slices."""
    figure, panels = plt.subplots(1, len(sizes), figsize=(9.0, 4.7))
    for axes, size in zip(panels, sizes, strict=True):
        _draw_tree(axes, num_shards, size)
    figure.suptitle("One tree, whoever adds: ringed sums are sent, the white ones are added slice by slice", color=INK)
    show(
        "One tree of sums over the shards, for two and for three processes. Each process adds up its own subtrees and "
        "sends their sums; the upper sums are added slice by slice, a slice for each process."
    )


def _draw_tree(axes: Axes, num_shards: int, size: int) -> None:
    owner = {shard: rank for rank in range(size) for shard in share(num_shards, rank, size)}
    sent = {subtree for rank in range(size) for subtree in subtrees(share(num_shards, rank, size))}
    levels = (num_shards - 1).bit_length()
    places = dict[tuple[int, int], tuple[float, float]]()
    for level in range(levels + 1):
        count = 2**level
        for first in range(0, num_shards, count):
            if level == 0:
                places[first, 1] = float(first), 0.0
                continue
            children = [(first, count // 2), (first + count // 2, count // 2)]
            points = [places[child] for child in children]
            places[first, count] = sum(x for x, _ in points) / 2, level * SPACING
            for x, y in points:
                axes.plot([x, places[first, count][0]], [y, level * SPACING], color=GREY, lw=1, zorder=1)
    for (first, count), (x, y) in places.items():
        ranks = {owner[shard] for shard in range(first, first + count)}
        alone = PROCESSES[ranks.pop()] if len(ranks) == 1 else "white"
        ring = (first, count) in sent
        axes.plot(
            [x], [y], "s" if count == 1 else "o", ms=15 if count == 1 else 13, color=alone, zorder=3,
            markeredgecolor=INK if ring else GREY if alone == "white" else alone, markeredgewidth=2.4 if ring else 1.0,
        )  # fmt: skip
        if count == 1:
            axes.text(x, y, str(first), ha="center", va="center", color=on(alone), fontsize=8, zorder=4)
    top = levels * SPACING
    bar, whole = top + 1.3, num_shards - 0.4
    edges = np.linspace(-0.3, -0.3 + whole, size + 1)
    for rank, (start, stop) in enumerate(pairwise(edges)):
        axes.add_patch(
            FancyBboxPatch((start + 0.04, bar), stop - start - 0.08, 0.5, boxstyle="round,pad=0.0,rounding_size=0.12",
                           color=PROCESSES[rank], lw=0)
        )  # fmt: skip
        middle = (start + stop) / 2
        axes.text(
            middle, bar + 0.25, f"process {rank}", ha="center", va="center", color=on(PROCESSES[rank]), fontsize=8
        )
        axes.annotate("", (middle, bar - 0.06), (places[0, 2**levels][0], top + 0.28),
                      arrowprops={"arrowstyle": "->", "color": GREY, "lw": 1})  # fmt: skip
    axes.text(-0.3, bar + 0.68, "each process: the sum in its slice, and Adam there", fontsize=8, color=INK)
    counts = [len(subtrees(share(num_shards, rank, size))) for rank in range(size)]
    axes.text(
        (num_shards - 1) / 2, -0.62, "shards of the batch, coloured by the process that computes them", ha="center",
        fontsize=8, color=INK, va="top",
    )  # fmt: skip
    axes.set_title(f"{size} processes: they send {', '.join(map(str, counts))} sums", color=INK)
    axes.set(xlim=(-0.7, num_shards - 0.3), ylim=(-0.95, bar + 1.0))
    axes.axis("off")
