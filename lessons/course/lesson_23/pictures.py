"""Lesson 23: how far patterns hear, who finds the needle, what a token costs, what a state remembers."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize

from ..style import AMOUNTS, BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION

MOST = 8
"""Layers that have a colour of their own; more have the last one's."""


def draw_layers(layers: Mapping[str, np.ndarray], allowed: Mapping[str, np.ndarray]) -> None:
    """Draw for each pattern (T, T) the layers after which a query (row) has heard of a key (column), −1 for never."""
    shades = ScalarMappable(Normalize(0, 1), AMOUNTS).to_rgba(np.linspace(1, 0.25, MOST))
    colours = ["white", INK, *shades]
    shown, norm = ListedColormap(colours), BoundaryNorm(np.arange(-1.5, MOST + 1), len(colours))
    rows = -(-len(layers) // 3)
    figure, grid = plt.subplots(rows, 3, figsize=(7.4, 2.5 * rows), sharex=True, sharey=True)
    image: Any = None
    for axes, (name, found) in zip(grid.ravel(), layers.items(), strict=True):
        image = axes.imshow(np.minimum(found, MOST), cmap=shown, norm=norm)
        T, most = len(found), int(found[-1].max())
        cost = f"{allowed[name].sum() / T:.1f} keys a query"
        axes.set_title(f"{name}\n{cost}, {most} layer{'s' * (most > 1)}", fontsize=8.5)
        axes.set(xticks=[0, T - 1], yticks=[0, T - 1])
        axes.tick_params(length=0, labelsize=7)
        axes.spines[:].set(visible=True, lw=0.5, color=GREY)
    for axes in grid[-1]:
        axes.set_xlabel("key", labelpad=-4)
    for axes in grid[:, 0]:
        axes.set_ylabel("query", labelpad=-6)
    bar = figure.colorbar(image, ax=grid, fraction=0.025, label="layers until the query has heard of the key")
    bar.set_ticks(range(-1, MOST + 1), labels=["never", "0", *map(str, range(1, MOST)), f"{MOST}+"])
    bar.ax.tick_params(length=0, labelsize=7)


def draw_distances(hits: Mapping[str, np.ndarray], reach: Mapping[str, int], chance: float) -> None:
    """Draw, by name, the share of right answers at each distance of the needle, with a dotted line at the reach."""
    figure, rows = plt.subplots(len(hits), 1, figsize=(7.2, 0.95 * len(hits)), sharex=True, sharey=True)
    for axes, (name, each), colour in zip(rows, hits.items(), (VERMILION, ORANGE, PURPLE, GREEN, BLUE), strict=False):
        axes.axhline(chance, color=GREY, lw=0.8)
        axes.plot(np.arange(1, len(each) + 1), each, "o-", ms=2.5, lw=1, color=colour)
        if name in reach:
            axes.axvline(reach[name] + 0.5, color=INK, lw=1, ls=":")
        axes.set_title(name, fontsize=8.5, loc="left", pad=3)
        axes.set(ylim=(-0.05, 1.08), yticks=[0, 0.5, 1])
        axes.tick_params(labelsize=7)
    rows[0].text(1, chance + 0.03, "chance", color=INK, fontsize=7, va="bottom")
    rows[-1].set_xlabel("distance of the needed token")
    figure.supylabel("share of right answers", fontsize=9)


def draw_chunks(axes: Axes, sizes: Sequence[int], seconds: Sequence[float], operations: Sequence[float]) -> None:
    """Draw time and operations against the size of a chunk."""
    axes.plot(sizes, [1e3 * each for each in seconds], "o-", color=BLUE, ms=4, label="time, ms")
    axes.plot(sizes, [each / 1e6 for each in operations], "--", color=GREY, label="operations, millions")
    axes.set(xscale="log", yscale="log", xlabel="positions of a chunk")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.legend(loc="upper center")


def draw_decoding(lengths: Sequence[int], kinds: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw, by kind of attention, the least milliseconds for a token and the MiB of memory, at each length."""
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0))
    looks = ((BLUE, "o-"), (ORANGE, "s--"), (VERMILION, "^-."))
    for (kind, found), (colour, style) in zip(kinds.items(), looks, strict=True):
        left.plot(lengths, [1e3 * each for each in found["best"]], style, ms=3, color=colour, label=kind)
        right.plot(lengths, [each / 2**20 for each in found["kept"]], style, ms=3, color=colour)
    for axes, title in ((left, "ms a token"), (right, "kept of the text, MiB")):
        axes.set(xscale="log", yscale="log", xlabel="length, tokens", title=title)
        axes.set_xticks(lengths[1::2], [f"{length:,}" for length in lengths[1::2]])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g}")
    low, high = left.get_ylim()
    left.set_yticks([tick for tick in (0.25, 0.5, 1, 2, 4, 8, 16) if low <= tick <= high])
    left.legend()


def draw_recall(axes: Axes, counts: Sequence[int], errors: Mapping[str, Sequence[float]], width: int) -> None:
    """Draw, by name, the mean squared error of what is recalled, against the number of pairs."""
    looks = ((BLUE, "o-"), (ORANGE, "s-"), (VERMILION, "^-"), (INK, "--"))
    for (name, each), (colour, line) in zip(errors.items(), looks, strict=True):
        axes.plot(counts, each, line, ms=4, color=colour, lw=1.2, label=name)
    axes.axvline(width, color=GREY, lw=0.8, ls=":")
    axes.text(width * 0.96, 0.55, f"N = D = {width}", color=INK, fontsize=8, ha="right")
    axes.set(xscale="log", xlabel="pairs in the text, N", ylabel="error of a recalled value", ylim=(-0.04, 1.06))
    axes.set_xticks(counts[::2], [f"{count:,}" for count in counts[::2]])
    axes.minorticks_off()
    axes.legend(fontsize=8, loc="center right")
