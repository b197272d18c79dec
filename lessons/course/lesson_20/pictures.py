"""Lesson 20's drawings: two blocks, gates, turned pairs, shared heads, buckets, and what was measured.

Where parts are compared, blue is the norm, green the feed-forward network, orange positions, red the sharing of heads.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Arc, Circle, FancyBboxPatch

from study.charts import draw_intervals
from study.trials.bootstrap import Interval

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SIGNED, SKY, VERMILION, on

GROUPS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GREY, INK)
"""A colour for each head of keys, where heads are what is compared."""


def draw_blocks() -> None:
    """Draw a block of lesson 19 and one of Llama, from the bottom up, the differences in colour and with numbers.

    1 is the norm, 2 the feed-forward network, 3 positions, 4 the sharing of heads.
    """
    _, axes = plt.subplots(figsize=(7.2, 6.0))
    for left, modern in ((0.0, False), (7.4, True)):
        _draw_block(axes, left, modern)
    axes.set(xlim=(-1.0, 13.6), ylim=(-1.2, 11.4), aspect="equal")
    axes.axis("off")


def _draw_block(axes: Axes, left: float, modern: bool) -> None:
    middle = left + 3.4
    axes.text(
        middle - 0.9, 11.1, "Llama's block" if modern else "lesson 19's block", ha="center", color=INK, fontsize=10
    )
    axes.plot([left, left], [-0.6, 10.4], color=GREY, lw=2.4, solid_capstyle="butt")  # the residual stream
    axes.annotate("", (left, 10.8), (left, 10.2), arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 2})
    axes.text(left, -0.9, "embedded tokens", ha="center", va="center", color=GREY, fontsize=8)
    if not modern:
        _line(axes, (left, -0.05), (left + 1.4, -0.05))
        _plus(axes, left, -0.05, "+", ORANGE)
        _box(axes, left + 3.3, -0.05, 3.9, 0.6, "a vector for each position", ORANGE, "3")
    norm = "RMSNorm" if modern else "LayerNorm"

    _line(axes, (left, 0.7), (middle, 0.7), (middle, 1.0))
    _box(axes, middle, 1.35, 2.6, 0.7, norm, BLUE, "1")
    _line(axes, (middle, 1.7), (middle, 2.12))
    _line(axes, (middle - 1.7, 2.12), (middle - 1.7, 1.9), (middle + 1.7, 1.9), (middle + 1.7, 2.12))
    heads, shared = 4, 2 if modern else 4
    for name, centre, count in (("q", middle - 1.7, heads), ("k", middle, shared), ("v", middle + 1.7, shared)):
        changed = modern and count < heads
        for head in range(count):
            _cell(axes, centre + 0.34 * (head - (count - 1) / 2), 2.3, VERMILION if changed else GREY)
        if changed:
            _number(axes, centre - 0.34 * count / 2, 2.5, "4", VERMILION)
        axes.text(centre + 0.34 * count / 2 + 0.12, 2.3, name, color=INK, fontsize=8, va="center", style="italic")
    if modern:
        _box(axes, middle - 0.85, 3.15, 2.7, 0.6, "turned by position", ORANGE, "3")
        _line(axes, (middle - 1.7, 2.47), (middle - 1.7, 2.82))
        _line(axes, (middle, 2.47), (middle, 2.82))
        _line(axes, (middle - 0.85, 3.47), (middle - 0.85, 3.8))
    else:
        _line(axes, (middle - 1.7, 2.47), (middle - 1.7, 3.8))
        _line(axes, (middle, 2.47), (middle, 3.8))
    _line(axes, (middle + 1.7, 2.47), (middle + 1.7, 3.8))
    _box(axes, middle, 4.15, 4.6, 0.7, "causal attention", GREY)
    _line(axes, (middle, 4.5), (middle, 5.1), (left + 0.2, 5.1))
    _plus(axes, left, 5.1)

    _line(axes, (left, 5.8), (middle, 5.8), (middle, 6.1))
    _box(axes, middle, 6.45, 2.6, 0.7, norm, BLUE, "1")
    if modern:
        _line(axes, (middle, 6.8), (middle, 7.0), (middle - 1.2, 7.0), (middle - 1.2, 7.25))
        _line(axes, (middle, 7.0), (middle + 1.2, 7.0), (middle + 1.2, 7.25))
        _box(axes, middle - 1.2, 7.57, 2.0, 0.6, "gate, silu", GREEN, "2")
        _box(axes, middle + 1.2, 7.57, 2.0, 0.6, "up", GREEN)
        _line(axes, (middle - 1.2, 7.88), (middle - 1.2, 8.3), (middle - 0.22, 8.3))
        _line(axes, (middle + 1.2, 7.88), (middle + 1.2, 8.3), (middle + 0.22, 8.3))
        _plus(axes, middle, 8.3, "×", GREEN)
        _line(axes, (middle, 8.52), (middle, 8.8))
    else:
        _line(axes, (middle, 6.8), (middle, 7.25))
        _box(axes, middle, 7.6, 3.2, 0.7, "up, gelu", GREEN, "2")
        _line(axes, (middle, 7.95), (middle, 8.8))
    _box(axes, middle, 9.12, 2.0, 0.6, "down", GREY)
    _line(axes, (middle, 9.43), (middle, 9.9), (left + 0.2, 9.9))
    _plus(axes, left, 9.9)


def _box(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str, number: str = "") -> None:
    style = "round,pad=0,rounding_size=0.12"
    tint = tuple(1 - 0.25 * (1 - c) for c in to_rgb(colour))
    axes.add_patch(
        FancyBboxPatch((x - width / 2, y - height / 2), width, height, style, fc=tint, ec=colour, lw=1.1, zorder=3)
    )
    axes.text(x, y - 0.02, text, ha="center", va="center", fontsize=8, color=INK, zorder=4)
    if number:
        _number(axes, x - width / 2, y + height / 2, number, colour)


def _number(axes: Axes, x: float, y: float, number: str, colour: str) -> None:
    axes.add_patch(Circle((x, y), 0.23, fc=colour, ec="white", lw=0.8, zorder=5))
    axes.text(x, y - 0.02, number, ha="center", va="center", fontsize=8, weight="bold", color=on(colour), zorder=6)


def _cell(axes: Axes, x: float, y: float, colour: str, size: float = 0.3) -> None:
    tint = tuple(1 - 0.45 * (1 - c) for c in to_rgb(colour))
    axes.add_patch(FancyBboxPatch((x - size / 2, y - size / 2), size, size, "square,pad=0", fc=tint, ec=colour, lw=0.8))


def _line(axes: Axes, *points: tuple[float, float]) -> None:
    axes.plot(*zip(*points, strict=True), color=GREY, lw=1, zorder=1)


def _plus(axes: Axes, x: float, y: float, sign: str = "+", colour: str = GREY) -> None:
    axes.add_patch(Circle((x, y), 0.22, fc="white", ec=colour, lw=1.1, zorder=3))
    axes.text(x, y - 0.02, sign, ha="center", va="center", fontsize=9, color=INK, zorder=4)


def draw_gates(z: np.ndarray, curves: Mapping[str, tuple[np.ndarray, np.ndarray]], product: np.ndarray) -> None:
    """Draw each activation and its slope over z; and silu(gate) · up over a plane, gate across, up upwards."""
    _, (values, slopes, plane) = plt.subplots(1, 3, figsize=(9.0, 2.9), width_ratios=(1, 1, 1.1))
    for (name, (value, slope)), (colour, style) in zip(
        curves.items(), ((GREY, "-"), (BLUE, "--"), (GREEN, "-")), strict=True
    ):
        values.plot(z, value, style, color=colour, label=name)
        slopes.plot(z, slope, style, color=colour)
    values.set(title="the activation", xlabel="z", ylim=(-0.6, 4))
    values.legend(loc="upper left")
    slopes.set(title="its slope", xlabel="z")
    reach = float(z[-1])
    most = float(np.abs(product).max())
    extent = (-reach, reach, -reach, reach)
    image = plane.imshow(product, origin="lower", extent=extent, cmap=SIGNED, vmin=-most, vmax=most)
    plane.axvline(0, color=INK, lw=0.6)
    plane.axhline(0, color=INK, lw=0.6)
    plane.set(title="silu(gate) · up", xlabel="gate", ylabel="up")
    plt.colorbar(image, ax=plane, shrink=0.9)


def draw_turns(
    pair: tuple[float, float], frequency: float, places: Sequence[tuple[int, int]], scores: np.ndarray
) -> None:
    """Draw a query's and a key's pair, turned to several places, and the scores (T, T) of one query with one key."""
    figure = plt.figure(figsize=(7.2, 5.4))
    grid = figure.add_gridspec(2, 6, height_ratios=(1, 1.25))
    for column, (query, key) in enumerate(places):
        axes = figure.add_subplot(grid[0, 2 * column : 2 * column + 2])
        angles = pair[0] + query * frequency, pair[1] + key * frequency
        axes.add_patch(Circle((0, 0), 1, fill=False, ec=PALE))
        for angle, name, colour in zip(angles, ("q", "k"), (BLUE, VERMILION), strict=True):
            tip = np.cos(angle), np.sin(angle)
            axes.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.6})
            axes.text(1.17 * tip[0], 1.17 * tip[1], name, color=colour, ha="center", va="center")
        low, high = sorted(np.degrees(angles))
        axes.add_patch(Arc((0, 0), 0.7, 0.7, theta1=low, theta2=high, color=INK, lw=1.2))
        axes.text(0, -1.38, f"angle between: {high - low:.0f}°", ha="center", fontsize=8, color=INK)
        axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.35), aspect="equal")
        axes.set_title(f"query at {query}, key at {key}", fontsize=9)
        axes.axis("off")
    square, curve = figure.add_subplot(grid[1, :3]), figure.add_subplot(grid[1, 3:])
    most = float(np.abs(scores).max())
    image = square.imshow(scores, cmap=SIGNED, vmin=-most, vmax=most)
    figure.colorbar(image, ax=square, shrink=0.85)
    square.set(title="one query and one key, everywhere", xlabel="place of the key", ylabel="place of the query")
    T = len(scores)
    distances = np.arange(-T + 1, T)
    curve.plot(distances, [np.diagonal(scores, -d).mean() for d in distances], color=ORANGE)
    curve.axvline(0, color=PALE, lw=0.8, zorder=0)
    curve.set(
        title="the same by distance: one number each", xlabel="place of the query − place of the key", ylabel="score"
    )


def draw_sharing(cases: Sequence[tuple[int, int, str]]) -> None:
    """Draw heads of queries above the heads of keys and values that they share: (H, Hk, label) each."""
    _, rows = plt.subplots(len(cases), 1, figsize=(7.2, 1.35 * len(cases)))
    for axes, (heads, shared, text) in zip(rows, cases, strict=True):
        group = heads // shared
        for head in range(heads):
            owner = head // group
            colour = GROUPS[owner]
            centre = owner * group + (group - 1) / 2
            axes.plot([head, centre], [0.65, 0.29], color=colour, lw=1, zorder=0)
            _cell(axes, head, 0.86, colour, 0.42)
            if head % group == 0:
                for side, name in ((-0.24, "k"), (0.24, "v")):
                    _cell(axes, centre + side, 0.08, colour, 0.42)
                    axes.text(centre + side, 0.07, name, ha="center", va="center", fontsize=7, color=INK)
            axes.text(head, 0.85, "q", ha="center", va="center", fontsize=7, color=INK)
        axes.text(heads + 0.1, 0.47, text, va="center", fontsize=8.5, color=INK)
        axes.set(xlim=(-0.6, heads + 5.4), ylim=(-0.22, 1.15), aspect="equal")
        axes.axis("off")


def draw_buckets(distances: np.ndarray, buckets: Mapping[str, np.ndarray], table: np.ndarray) -> None:
    """Draw the bucket of each distance, by name; and the buckets (T, T) of all pairs of a short sentence."""
    _, (line, square) = plt.subplots(1, 2, figsize=(7.2, 3.0), width_ratios=(1.5, 1))
    for (name, found), colour, style in zip(buckets.items(), (BLUE, ORANGE), ("-", "--"), strict=True):
        line.step(distances, found, style, where="mid", color=colour, label=name)
    line.set(title="T5's 32 buckets", xlabel="place of the key − place of the query", ylabel="bucket")
    line.legend(loc="center right")
    later = table > 15
    square.imshow(np.where(later, table - 12, -table), cmap=SIGNED, vmin=-22, vmax=22)
    for (row, column), bucket in np.ndenumerate(table):
        square.text(column, row, str(bucket), ha="center", va="center", fontsize=6, color=INK)
    square.set(title="encoder, 10 tokens", xlabel="key", ylabel="query")
    square.tick_params(length=0)


def draw_worth(gaps: Mapping[str, Interval], colours: Mapping[str, str]) -> None:
    """Draw each variant's loss minus the base's, with its interval."""
    _, axes = plt.subplots(figsize=(7.2, 0.8 + 0.3 * len(gaps)))
    named: dict[str, Any] = dict(gaps)
    draw_intervals(axes, named, [colours[name] for name in named], "loss minus the base's, nats a token")
    axes.axvline(0, color=GREY, lw=1)
    axes.set_ylim(len(gaps) - 0.4, -0.6)
    axes.set_title("left of the line: better than lesson 19's parts")
