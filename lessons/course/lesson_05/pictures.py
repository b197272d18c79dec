"""Lesson 05's drawings: heads as block structure, right and wrong splits, what one head cannot do.

A colour is a head. Everything else is drawn in other colours than those of `HEADS`, or in grey.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.patches import Rectangle

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION

HEADS = (BLUE, VERMILION, GREEN, ORANGE)


def blocks(weights: np.ndarray, width: int) -> None:
    """Draw multi-head attention as matrices, a colour a head; and the same as one block-diagonal product.

    weights (H, T, T), each head's; the model is `width` wide.
    """
    heads, time, _ = weights.shape
    depth = width // heads
    _, (above, below) = plt.subplots(2, 1, figsize=(7.2, 5.5), height_ratios=(1, 1.9))

    left = _plain(above, 0, time, width, "x", f"T × C\n{time} × {width}")
    left = _sign(above, left, "@")
    left = _columns(above, left, width, heads, depth, "$W^Q$", f"C × H·D\n{width} × {width}")
    left = _sign(above, left, "=")
    left = _columns(above, left, time, heads, depth, "queries", f"T × H·D\n{time} × {width}")
    left = _sign(above, left, "…")
    left = _columns(above, left, time, heads, depth, "heads", f"T × H·D\n{time} × {width}")
    left = _sign(above, left, "@")
    for head in range(heads):
        _cells(above, left, width / 2 - (head + 1) * depth, depth, width, HEADS[head])
    _name(above, left, width, width, "$W^O$", f"H·D × C\n{width} × {width}")
    left = _sign(above, left + width, "=")
    left = _plain(above, left, time, width, "out", f"T × C\n{time} × {width}")
    above.set(xlim=(-0.5, left + 0.5), ylim=(-6.8, 5.8), aspect="equal")
    above.set_title("Side by side: a head owns columns, and rows of $W^O$")

    size = heads * time
    below.add_patch(Rectangle((0, -size / 2), size, size, fill=False, ec=GREY, lw=0.6))
    for head in range(heads):
        corner = (head * time, size / 2 - (head + 1) * time)
        shade = LinearSegmentedColormap.from_list("head", ["white", HEADS[head]])
        extent = (corner[0], corner[0] + time, corner[1], corner[1] + time)
        below.imshow(weights[head], cmap=shade, vmin=0, vmax=weights.max(), extent=extent)
        below.add_patch(Rectangle(corner, time, time, fill=False, ec=HEADS[head], lw=1))
    _name(below, 0, size, size, "weights", f"H·T × H·T, {size} × {size}")
    left = _sign(below, size, "@", 4)
    for name in ("values", "heads"):
        for head in range(heads):
            _cells(below, left, size / 2 - (head + 1) * time, time, depth, HEADS[head])
        _name(below, left, size, depth, name, f"H·T × D\n{size} × {depth}")
        left = left + depth if name == "heads" else _sign(below, left + depth, "=", 4)
    below.text(size * 0.74, size * 0.22, "0", color=GREY, fontsize=16, ha="center", va="center")
    below.text(size * 0.26, -size * 0.22, "0", color=GREY, fontsize=16, ha="center", va="center")
    below.set(xlim=(-0.5, left + 0.5), ylim=(-size / 2 - 2.6, size / 2 + 1.8), aspect="equal")
    below.set_title("Under each other: all heads are one attention with block-diagonal weights")
    for axes in (above, below):
        axes.axis("off")


def splits(before: tuple[np.ndarray, np.ndarray], after: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Draw where each way to split moves the numbers: each with its column's head and its position.

    before: heads and positions (T, C); after: the same (H, T, D), for each way to split.
    """
    _, rows = plt.subplots(len(after), 1, figsize=(7.2, 3.6))
    for axes, (name, (heads, positions)) in zip(rows, after.items(), strict=True):
        time, width = before[0].shape
        _numbered(axes, 0, *before)
        axes.text(width / 2, -0.35, "x: T × C", ha="center", color=GREY)
        axes.annotate(
            "", (width + 6.6, time / 2), (width + 0.6, time / 2), arrowprops={"arrowstyle": "-|>", "color": INK}
        )
        axes.text(width + 3.5, time / 2 - 0.35, name, ha="center", family="monospace", fontsize=8)
        left = width + 7.6
        for head in range(len(heads)):
            _numbered(axes, left, heads[head], positions[head])
            axes.text(left + heads.shape[2] / 2, -0.35, f"head {head + 1}", ha="center", color=GREY)
            left += heads.shape[2] + 1.4
        axes.set(xlim=(-0.2, left), ylim=(time + 0.2, -1.2), aspect="equal")
        axes.axis("off")
    rows[0].set_title("Right: every head gets its columns, at every position")
    rows[-1].set_title("Wrong: the shape fits, but a head gets columns of all heads and only some positions")


def wishes(errors: dict[str, list[float]], maps: dict[str, np.ndarray], places: np.ndarray) -> None:
    """Draw training errors; and attention maps (T, T), with marks at the places (T, 2) that each word wants."""
    figure = plt.figure(figsize=(7.2, 5.0))
    grid = figure.add_gridspec(2, len(maps), height_ratios=(1, 1.05))
    curve = figure.add_subplot(grid[0, :])
    for (name, values), colour, dashes in zip(errors.items(), (GREY, PURPLE, SKY), ("-", "--", "-."), strict=True):
        curve.plot(values, dashes, color=colour, lw=1.4, label=name)
    curve.axhline(0.5, color=GREY, lw=0.8, ls=":")
    curve.text(max(map(len, errors.values())), 0.4, "the floor of one head: ½", color=INK, ha="right")
    curve.set(xlabel="step", ylabel="mean squared error", ylim=(0, 1.05))
    curve.set_title("Fetching two values at once with the same number of parameters")
    curve.legend(loc="upper right", ncols=len(errors))
    for column, (name, weights) in enumerate(maps.items()):
        axes = figure.add_subplot(grid[1, column])
        shade = LinearSegmentedColormap.from_list("head", ["white", HEADS[column - 1] if column else GREY])
        axes.imshow(weights, vmin=0, vmax=1, cmap=shade)
        for wish, (label, marker) in enumerate((("first wish", "o"), ("second wish", "s"))):
            spots = places[:, wish], np.arange(len(places))
            axes.scatter(*spots, s=130, marker=marker, facecolors="none", edgecolors=INK, lw=1.4, label=label)
        axes.set(title=name, xlabel="key: place in the sentence")
        axes.set_xticks(range(len(places)))
        axes.set_yticks(range(len(places)))
        axes.tick_params(length=0)
        if not column:
            axes.set_ylabel("query: place in the sentence")
            figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def _cells(axes: Axes, left: float, bottom: float, height: int, width: int, colour: str) -> None:
    """Draw a block of numbers, each a little square."""
    tint = tuple(1 - 0.75 * (1 - c) for c in to_rgb(colour))
    for row in range(height):
        for column in range(width):
            axes.add_patch(Rectangle((left + column, bottom + row), 1, 1, fc=tint, ec="white", lw=0.5))


def _plain(axes: Axes, left: float, height: int, width: int, name: str, shape: str) -> float:
    _cells(axes, left, -height / 2, height, width, GREY)
    _name(axes, left, height, width, name, shape)
    return left + width


def _columns(axes: Axes, left: float, height: int, heads: int, depth: int, name: str, shape: str) -> float:
    for head in range(heads):
        _cells(axes, left + head * depth, -height / 2, height, depth, HEADS[head])
    _name(axes, left, height, heads * depth, name, shape)
    return left + heads * depth


def _name(axes: Axes, left: float, height: float, width: float, name: str, shape: str) -> None:
    axes.text(left + width / 2, height / 2 + 0.4, name, ha="center", va="bottom", color=INK)
    axes.text(left + width / 2, -height / 2 - 0.4, shape, ha="center", va="top", color=GREY, fontsize=7.5)


def _sign(axes: Axes, left: float, sign: str, room: float = 2.4) -> float:
    axes.text(left + room / 2, 0, sign, ha="center", va="center", color=INK)
    return left + room


def _numbered(axes: Axes, left: float, heads: np.ndarray, positions: np.ndarray) -> None:
    """Draw a matrix (rows downwards): the letter and the colour are the head, the number is the position."""
    for (row, column), head in np.ndenumerate(heads):
        tint = tuple(1 - 0.6 * (1 - c) for c in to_rgb(HEADS[head]))
        axes.add_patch(Rectangle((left + column, row), 1, 1, fc=tint, ec="white", lw=1))
        name = f"{'abc'[head]}{positions[row, column]}"
        axes.text(left + column + 0.5, row + 0.53, name, ha="center", va="center", fontsize=7)
