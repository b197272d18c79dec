"""Lesson 13: paths through four kinds of layer; operations, time and paths against the length."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from paper.experiments.table1.complexity import ATTENTION, CONVOLUTION, RECURRENT, RESTRICTED

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, show

COLOURS = {ATTENTION: BLUE, RECURRENT: VERMILION, CONVOLUTION: GREEN, RESTRICTED: ORANGE}
MARKERS = {ATTENTION: "o", RECURRENT: "s", CONVOLUTION: "^", RESTRICTED: "D"}
POSITIONS = 9

Edge = tuple[int, int, int, int]
"""From (position, layer) to (position, layer)."""


def draw_paths() -> None:
    """Draw the connections of nine positions in each layer, and a shortest path from the first to the last."""
    reach, kernel, last = 2, 3, POSITIONS - 1
    near = [
        (i, layer, j, layer + 1)
        for layer in range(4)
        for i in range(POSITIONS)
        for j in range(POSITIONS)
        if abs(i - j) <= reach
    ]
    dilated = [
        (j - step * kernel**layer, layer, j, layer + 1)
        for layer in range(2)
        for j in range(POSITIONS)
        for step in range(kernel)
        if j >= step * kernel**layer
    ]
    everyone = [(i, 0, j, 1) for i in range(POSITIONS) for j in range(POSITIONS)]
    chain = [(0, 0, 0, 1), *((i, 1, i + 1, 1) for i in range(last))]
    reading = [(i, 0, i, 1) for i in range(POSITIONS)]
    panels = (
        ("recurrent: 8 steps", (VERMILION,), 1, reading, chain),
        ("convolution, k = 5, or\nattention within r = 2: 4 layers", (GREEN, ORANGE), 4, near, _climb([0, 2, 4, 6, 8])),
        ("dilated convolution,\nk = 3: 2 layers", (PURPLE,), 2, dilated, _climb([0, 2, 8])),
        ("self-attention: 1 layer", (BLUE,), 1, everyone, _climb([0, 8])),
    )
    _, axes = plt.subplots(1, 4, figsize=(7.6, 2.6))
    for panel, (title, colours, layers, edges, path) in zip(axes, panels, strict=True):
        _draw_panel(panel, layers, edges, path, colours)
        panel.set_title(title, fontsize=8.5)
    axes[0].text(last / 2, -0.75, "positions 1 to 9", ha="center", color=INK, fontsize=8)
    show(
        "From the first of nine positions to the last: eight steps in a recurrent layer, four layers of convolution or "
        "of windowed attention, two dilated layers, and one layer of self-attention."
    )


def draw_costs(
    lengths: Sequence[int],
    operations: Mapping[str, Sequence[float]],
    times: Mapping[str, np.ndarray],
    paths: Mapping[str, Sequence[int]],
    crossover: float,
) -> None:
    """Draw operations, milliseconds and hops against the length n on logarithmic axes, with a line at the crossover.

    `times` holds self-attention without its projections besides.
    """
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(7.6, 3.6))
    for name, colour in COLOURS.items():
        look = {"color": colour, "lw": 1.6, "marker": MARKERS[name], "ms": 4}
        left.plot(lengths, operations[name], label=name, **look)
        middle.plot(lengths, 1e3 * np.asarray(times[name]), **look)
        right.plot(lengths, paths[name], **look)
    (alone,) = (name for name in times if name not in COLOURS)
    middle.plot(lengths, 1e3 * np.asarray(times[alone]), "--", color=BLUE, lw=1.2, label=alone)

    left.axvline(crossover, color=GREY, lw=0.8, ls=":")
    left.text(crossover * 1.12, 0.02, f"n = {crossover:.0f}", color=INK, transform=left.get_xaxis_transform())
    for axes, title in (
        (left, "operations, forward"),
        (middle, "forward and backward, ms"),
        (right, "longest path, hops"),
    ):
        axes.set(xscale="log", yscale="log", xlabel="length n")
        axes.set_title(title)
        axes.xaxis.set_major_locator(FixedLocator([lengths[0], 256, lengths[-1]]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for axes in (middle, right):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    handles = [handle for axes in (left, middle, right) for handle in axes.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    show(
        "Operations, time and longest path of four layers against the length. Self-attention's operations and time "
        "rise most steeply and overtake recurrence's; its path stays one hop, where the others' paths grow."
    )


def _climb(positions: Sequence[int]) -> list[Edge]:
    """One position a layer, from the lowest up."""
    return [(a, layer, b, layer + 1) for layer, (a, b) in enumerate(itertools.pairwise(positions))]


def _draw_panel(axes: Axes, layers: int, edges: Iterable[Edge], path: Sequence[Edge], colours: Sequence[str]) -> None:
    for x0, y0, x1, y1 in edges:
        axes.plot([x0, x1], [y0, y1], color=GREY, alpha=0.35, lw=0.6, zorder=1)
    for beside, colour in enumerate(colours):  # lines of layers with the same path are drawn side by side
        for x0, y0, x1, y1 in path:
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.8, "shrinkA": 2, "shrinkB": 2, "mutation_scale": 8}
            axes.annotate("", (x1 + 0.4 * beside, y1), (x0 + 0.4 * beside, y0), arrowprops=arrow, zorder=2)
    for layer in range(layers + 1):
        axes.plot(range(POSITIONS), [layer] * POSITIONS, "o", ms=3.5, color=GREY, zorder=3)
    axes.set(xlim=(-0.6, POSITIONS - 0.4), ylim=(-1, 4.4))
    axes.axis("off")
