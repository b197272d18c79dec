"""Lesson 03: how a symbol gets to its copy, accuracy against length, gradients against distance, an alignment."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, SKY, VERMILION

COLOURS = {
    "RNN": VERMILION,
    "LSTM": ORANGE,
    "LSTM, twice the steps": ORANGE,
    "LSTM, twice the width": ORANGE,
    "RNN with attention": BLUE,
    "RNN, s = 3": GREEN,
    "RNN, s = 1": VERMILION,
    "RNN, s = 1, with attention": BLUE,
}
STYLES = {"LSTM, twice the steps": "--", "LSTM, twice the width": ":"}


def draw_paths() -> None:
    """Draw the path from the A that is read to the A that is written, without attention and with it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.7))
    for axes in (left, right):
        _network(axes)
    for x in range(3):
        _arrow(left, (x, 0), (x + 1, 0), VERMILION, 2.2)
    _arrow(left, (0, -0.8), (0, 0), VERMILION, 2.2)
    _arrow(left, (3, 0), (3, 0.8), VERMILION, 2.2)
    left.set_title("without attention: through every state")
    _arrow(right, (0, -0.8), (0, 0), BLUE, 2.2)
    for x in (1, 2):
        _arc(right, x, SKY, 1.2)
    _arc(right, 0, BLUE, 2.2)
    _arrow(right, (3, 0), (3, 0.8), BLUE, 2.2)
    right.set_title("with attention: one step, at any distance")
    figure.canvas.draw_idle()


def draw_distances(curves: Mapping[str, np.ndarray]) -> None:
    """Draw gradient norms `(k,)` at each distance from where the gradient entered, relative to distance 0."""
    _, axes = plt.subplots(figsize=(7.2, 3.2))
    longest = len(next(iter(curves.values())))
    for name, values in curves.items():
        relative = values / values[0]
        axes.semilogy(relative, color=COLOURS[name], lw=1.8)
        axes.annotate(
            name, (len(values) - 1, relative[-1]), (6, 0), textcoords="offset points", va="center", color=COLOURS[name]
        )
    axes.plot([0, longest], [1, 1], color=GREY, lw=0.8, ls=":")
    axes.set(xlabel="distance from where the gradient entered, positions", ylabel="gradient, relative to distance 0")
    axes.set_xlim(0, 1.4 * longest)
    axes.set_xticks(range(0, longest + 1, 20))
    axes.spines["bottom"].set_bounds(0, longest)
    axes.set_title("What is left of a gradient that has come far")


def draw_copying(lengths: Sequence[int], accuracy: Mapping[str, Sequence[float]], longest: int, chance: float) -> None:
    """Draw the share of symbols copied right against length; lengths beyond `longest` were not trained on."""
    _, axes = plt.subplots(figsize=(7.2, 3.6))
    axes.axvspan(longest, lengths[-1], color=PALE, alpha=0.6, lw=0)
    axes.text((longest + lengths[-1]) / 2, 1.04, "longer than any in training", color=INK, ha="center")
    axes.axhline(chance, color=GREY, lw=0.8, ls=":")
    axes.text(0.3, chance - 0.055, "chance", color=GREY)
    for name, values in sorted(accuracy.items(), key=lambda item: -sum(item[1])):
        axes.plot(lengths, values, STYLES.get(name, "-"), color=COLOURS[name], lw=1.8, marker="o", ms=3, label=name)
    axes.set(xlabel="length of the sequence, symbols", ylabel="symbols copied right")
    axes.set(xlim=(0, lengths[-1]), ylim=(0, 1.1))
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes.set_title("Copying, without a teacher")
    axes.legend(loc="lower left", bbox_to_anchor=(0.54, 0.36), handlelength=3.2)


def draw_alignment(weights: np.ndarray, source: np.ndarray, end: int) -> None:
    """Draw attention weights `(Tq, Tk)` while `source` is copied; `end` is the number of the end mark."""
    _, axes = plt.subplots(figsize=(4.6, 4.0))
    image = axes.imshow(weights, vmin=0, vmax=1)
    letters = ["end" if symbol == end else "ABCDEFGHIJ"[symbol] for symbol in source]
    axes.set_xticks(range(len(letters)), letters, fontsize=8)
    axes.set_yticks(range(len(letters)), letters, fontsize=8)
    axes.set(xlabel="read", ylabel="written")
    axes.set_title("where the decoder looks")
    axes.figure.colorbar(image, ax=axes, label="attention weight", shrink=0.8)


def _network(axes: Axes) -> None:
    """Draw six states in a row, the inputs of the first three and the outputs of the last three."""
    for x in range(6):
        reads, colour = ("ABC" if x < 3 else "‹AB")[x % 3], SKY if x < 3 else PALE
        if x:
            _arrow(axes, (x - 1, 0), (x, 0), GREY, 1.0)
        _arrow(axes, (x, -0.8), (x, 0), GREY, 1.0)
        axes.text(x, -1.0, reads, ha="center", va="center", color=INK, fontsize=11)
        if x >= 3:
            _arrow(axes, (x, 0), (x, 0.8), GREY, 1.0)
            axes.text(x, 1.0, "ABC"[x - 3], ha="center", va="center", color=INK, fontsize=11)
        axes.add_patch(Circle((x, 0), 0.2, facecolor=colour, edgecolor=GREY, lw=1, zorder=3))
    axes.text(1, -1.45, "encoder reads", ha="center", color=GREY)
    axes.text(4, -1.45, "decoder reads", ha="center", color=GREY)
    axes.text(4, 1.35, "decoder writes", ha="center", color=GREY)
    axes.set(xlim=(-0.5, 5.5), ylim=(-1.6, 1.6), aspect="equal")
    axes.axis("off")


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, width: float) -> None:
    """Draw an arrow between states or letters; `end` is a centre, and the arrow stops at the circle around it."""
    options = {"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 7, "shrinkB": 7, "mutation_scale": 9}
    axes.annotate("", end, start, arrowprops=options, zorder=4 if width > 2 else 1)


def _arc(axes: Axes, x: int, colour: str, width: float) -> None:
    """Draw an arc from an encoder's state over the others to the decoder's first."""
    options = {
        "arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 8, "shrinkB": 8, "mutation_scale": 9,
        "connectionstyle": "arc3,rad=-0.45",
    }  # fmt: skip
    axes.annotate("", (3, 0), (x, 0), arrowprops=options, zorder=4 if width > 2 else 2)
