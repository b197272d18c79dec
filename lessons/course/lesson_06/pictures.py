"""Lesson 06's drawings: tables of positions, their dot products, dials, heads that look at an offset.

Green and purple are signs; blue and orange two positions to start from.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Arc, Circle

from ..style import BLUE, GREY, INK, ORANGE, PALE, SIGNED, dark


def tables(bits: np.ndarray, table: np.ndarray) -> None:
    """Draw positions in binary (T, bits), the last bit first, beside the sinusoids (T, C)."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.4), width_ratios=(1, 3.2))
    left.imshow(bits, aspect="auto", cmap=SIGNED, vmin=-1.5, vmax=1.5)
    left.set(xlabel="bit, the last one first", ylabel="position", title="Binary")
    left.set_xticks(range(bits.shape[1]))
    drawn = right.imshow(table[:, 0::2], aspect="auto", cmap=SIGNED, vmin=-1.5, vmax=1.5)
    right.set(xlabel="pair (of each, the sine)", title="Sinusoids")
    figure.colorbar(drawn, ax=right, label="value", ticks=[-1, 0, 1])


def products(matrix: np.ndarray) -> None:
    """Draw dot products (T, T) of positions, and three of its rows against the offset."""
    length = len(matrix)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.3), width_ratios=(1, 1.25))
    drawn = left.imshow(matrix)
    figure.colorbar(drawn, ax=left, shrink=0.8)
    left.set(xlabel="position q", ylabel="position p", title="$PE_p \\cdot PE_q$")
    rows = (length // 4, length // 2, 3 * length // 4)
    for row, colour, width in zip(rows, (PALE, ORANGE, BLUE), (9, 4.5, 1.2), strict=True):
        left.axhline(row, color=colour if colour != PALE else GREY, lw=1)
        right.plot(np.arange(length) - row, matrix[row], color=colour, lw=width, label=f"p = {row}")
    right.axhline(0, color=GREY, lw=0.8)
    right.set(xlabel="offset q − p", ylabel="dot product", ylim=(0, None), title="Three rows, each from its own p")
    right.legend(loc="upper right")


def dials(table: np.ndarray, starts: tuple[int, int], offset: int) -> None:
    """Draw column pairs of the sinusoids (T, C) as hands on dials, from each of the starts and `offset` words on."""
    chosen = (0, 1, 2)
    figure, row = plt.subplots(1, len(chosen), figsize=(7.2, 3.0))
    for axes, pair in zip(row, chosen, strict=True):
        axes.add_patch(Circle((0, 0), 1, fill=False, ec=GREY, lw=0.8))
        turned = 0.0
        for start, colour, radius in zip(starts, (BLUE, ORANGE), (0.5, 0.7), strict=True):
            for position, style, width in ((start, ":", 1.6), (start + offset, "-", 2.4)):
                sine, cosine = table[position, 2 * pair : 2 * pair + 2]
                # As on a clock: 0 at the top, clockwise. So x is the sine and y the cosine.
                axes.plot([0, sine], [0, cosine], style, color=colour, lw=width, solid_capstyle="round")
                place = 1.2 * sine, 1.2 * cosine
                axes.text(*place, str(position), ha="center", va="center", fontsize=8, color=dark(colour))
            first, second = (
                90 - np.degrees(np.arctan2(*table[position, 2 * pair : 2 * pair + 2]))
                for position in (start, start + offset)
            )
            turned = (first - second) % 360
            axes.add_patch(Arc((0, 0), 2 * radius, 2 * radius, theta1=second, theta2=first, color=colour, lw=1.2))
        axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal", title=f"pair {pair}")
        axes.text(0, -1.5, f"both turned by {turned:.0f}°", ha="center", va="top", color=INK)
        axes.axis("off")
    a, b = starts
    title = f"From position {a} to {a + offset} (blue) and from {b} to {b + offset} (orange): the same turn"
    figure.suptitle(title, size=10)


def looking(maps: dict[int, np.ndarray]) -> None:
    """Draw attention weights (T, T) of heads built to look at an offset."""
    figure, row = plt.subplots(1, len(maps), figsize=(7.2, 2.6), sharey=True)
    for axes, (offset, weights) in zip(row, maps.items(), strict=True):
        axes.imshow(weights, vmin=0, vmax=1)
        names = {0: "itself", -1: "one back"}
        axes.set_title(names.get(offset, f"{abs(offset)} {'back' if offset < 0 else 'ahead'}"))
        axes.set_xlabel("key position")
        axes.tick_params(length=0)
    row[0].set_ylabel("query position")
    figure.colorbar(row[-1].images[0], ax=row, label="weight", shrink=0.8)
