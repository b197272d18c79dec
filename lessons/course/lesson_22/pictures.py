"""Lesson 22: an image as a sentence, what a class token looks at, positions that are alike, and little data."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from ..style import BLUE, GREY, INK, INKED, ORANGE, PALE, SIGNED, VERMILION


def draw_sentence(image: np.ndarray, size: int) -> None:
    """Draw an image (height, width), cut into patches, and the patches in a row behind the class token."""
    height, width = image.shape
    down, across = height // size, width // size
    figure = plt.figure(figsize=(7.4, 2.9))
    grid = figure.add_gridspec(2, 1, height_ratios=(2.3, 1))
    whole = figure.add_subplot(grid[0])
    _pixels(whole, image, 0.0, 0.0)
    for line in range(down + 1):
        whole.plot([0, width], [-line * size] * 2, color=VERMILION, lw=1)
    for line in range(across + 1):
        whole.plot([line * size] * 2, [0, -height], color=VERMILION, lw=1)
    for number in range(down * across):
        row, column = divmod(number, across)
        where = column * size + 0.15, -row * size - 0.15
        label = whole.text(*where, str(number + 1), color=VERMILION, fontsize=7, ha="left", va="top")
        label.set_path_effects([withStroke(linewidth=2, foreground="white")])  # readable on dark pixels too
    whole.set(xlim=(-0.3, width + 0.3), ylim=(-height - 0.3, 0.3), aspect="equal", title="an image ...")

    line = figure.add_subplot(grid[1])
    step = size + 0.7
    line.add_patch(Rectangle((0, -size), size, size, fc=ORANGE, ec=INK, lw=0.8))
    line.text(size / 2, -size / 2, "class", ha="center", va="center", fontsize=7, color=INK)
    for number in range(down * across):
        row, column = divmod(number, across)
        patch = image[row * size : (row + 1) * size, column * size : (column + 1) * size]
        left = (number + 1) * step
        _pixels(line, patch, left, 0.0)
        line.add_patch(Rectangle((left, -size), size, size, fill=False, ec=VERMILION, lw=1))
    for place in range(1 + down * across):
        line.text(place * step + size / 2, -size - 0.35, str(place), ha="center", va="top", fontsize=7, color=GREY)
    end = (1 + down * across) * step
    line.set(xlim=(-0.3, end - 0.4), ylim=(-size - 1.6, 0.3), aspect="equal")
    line.set_title("... and the sentence: the class token, then a word for each patch; below, the positions")
    for axes in (whole, line):
        axes.axis("off")


def draw_looks(images: np.ndarray, titles: Sequence[str], maps: Mapping[str, np.ndarray]) -> None:
    """Draw a column for each image (N, height, width), with each name's map (N, rows, columns), scaled by itself."""
    count = len(images)
    _, grid = plt.subplots(1 + len(maps), count, figsize=(7.4, 1.05 * (1 + len(maps)) + 0.3))
    for column in range(count):
        grid[0, column].imshow(images[column], cmap=INKED, vmin=-1, vmax=1)
        grid[0, column].set_title(titles[column], fontsize=9)
        for axes, each in zip(grid[1:, column], maps.values(), strict=True):
            axes.imshow(each[column], vmin=min(0.0, each[column].min()), vmax=each[column].max())
    for axes, name in zip(grid[:, 0], ("image", *maps), strict=True):
        axes.set_ylabel(name, rotation=0, ha="right", va="center", color=INK)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set(visible=True, color=PALE, lw=0.6)


def draw_positions(by_offset: np.ndarray, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Draw mean cosines of two positions, (2n + 1, 2n + 1) by offset (left), and by distance for each name (right)."""
    reach = len(by_offset) // 2
    _, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.2), width_ratios=(1, 1.3))
    shown = left.imshow(by_offset, cmap=SIGNED, vmin=-0.3, vmax=0.3, extent=(-reach - 0.5, reach + 0.5) * 2)
    left.plot(0, 0, "x", color=INK, ms=5)
    left.set(xlabel="pixels to the right", ylabel="pixels up", title="Words of one pixel")
    left.set_xticks(range(-reach, reach + 1))
    left.set_yticks(range(-reach, reach + 1))
    left.figure.colorbar(shown, ax=left, label="mean cosine", fraction=0.046)
    right.axhline(0, color=GREY, lw=0.8)
    for (name, (distances, cosines)), colour in zip(curves.items(), (BLUE, ORANGE), strict=True):
        right.plot(distances, cosines, "o-", ms=3, color=colour, label=name)
    right.set(xlabel="distance of two positions (pixels)", ylabel="mean cosine", title="Near positions, and far ones")
    right.legend()


def draw_little_data(sizes: Sequence[int], results: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Draw accuracies (sizes, seeds) by title and model: a line through the means, a dot for each seed."""
    _, row = plt.subplots(1, len(results), figsize=(7.4, 3.2), sharey=True)
    for axes, (title, models) in zip(row, results.items(), strict=True):
        for (name, found), colour in zip(models.items(), (BLUE, VERMILION, GREY), strict=True):
            axes.plot(range(len(sizes)), 100 * found.mean(axis=1), color=colour, label=name)
            for place, seeds in enumerate(found):
                axes.plot([place] * len(seeds), 100 * seeds, "o", ms=3.5, color=colour)
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
        axes.set(xlabel="images to learn from", ylim=(None, 101), title=title)
        axes.grid(axis="y")
    row[0].set_ylabel("right, % of held-out digits")
    row[-1].legend(loc="lower right")


def _pixels(axes: Axes, pixels: np.ndarray, left: float, top: float) -> None:
    height, width = pixels.shape
    axes.imshow(pixels, cmap=INKED, vmin=-1, vmax=1, extent=(left, left + width, top - height, top))
