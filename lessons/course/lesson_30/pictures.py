"""Lesson 30: a scene as a row of patches, where each word looks, and cosines of pictures and texts."""

from collections.abc import Sequence
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from ..style import INK, PALE, SIGNED, VERMILION, on, show

Floats = NDArray[np.floating]


def _draw(axes: Axes, picture: Floats) -> None:
    """Draw a picture (3, height, width) with numbers from −1 to 1."""
    axes.imshow((picture.transpose(1, 2, 0) + 1) / 2)
    _bare(axes)


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(visible=True, color=PALE, lw=0.6)


def draw_scene(picture: Floats, size: int, text: str) -> None:
    """Draw a picture, cut into patches, and below the patches in a row, as the encoder reads them."""
    side = picture.shape[1]
    count = side // size
    figure = plt.figure(figsize=(7.2, 3.9))
    grid = figure.add_gridspec(2, 1, height_ratios=(3.4, 1))
    whole, line = (figure.add_subplot(each) for each in grid)
    _draw(whole, picture)
    for cut in range(0, side + 1, size):
        whole.plot([cut - 0.5] * 2, [-0.5, side - 0.5], color=VERMILION, lw=0.8)
        whole.plot([-0.5, side - 0.5], [cut - 0.5] * 2, color=VERMILION, lw=0.8)
    for number in range(count**2):
        row, column = divmod(number, count)
        label = whole.text(column * size - 0.2, row * size - 0.2, str(number), color=INK, fontsize=6, va="top")
        label.set_path_effects([withStroke(linewidth=1.5, foreground="white")])
    whole.set_title(text)
    whole.axis("off")
    step = size + 1
    for number in range(count**2):
        row, column = divmod(number, count)
        patch = picture[:, row * size : (row + 1) * size, column * size : (column + 1) * size]
        down, across = divmod(number, count**2 // 2)
        left, top = across * step, down * (step + 1)
        line.imshow((patch.transpose(1, 2, 0) + 1) / 2, extent=(left, left + size, top + size, top))
        line.add_patch(Rectangle((left, top), size, size, fill=False, ec=VERMILION, lw=0.6))
    line.set(xlim=(-0.5, count**2 // 2 * step), ylim=(2 * step + 1, -0.5), aspect="equal")
    line.set_title("the memory's source: its patches, row by row")
    line.axis("off")
    show(
        f"A picture of 24 by 24 pixels with two things on grey ground, cut into {count**2} numbered patches, and the "
        f"patches in a row. Its caption: {text}"
    )


def draw_looks(picture: Floats, words: Sequence[str], maps: Floats) -> None:
    """Draw a picture for each word (T,), darkened where its attention (T, height, width) is small."""
    columns = 6
    rows = -(-len(words) // columns)
    _, grid = plt.subplots(rows, columns, figsize=(7.2, 1.35 * rows + 0.2))
    for axes in grid.flat[len(words) :]:
        axes.axis("off")
    for axes, word, attention in zip(grid.flat, words, maps, strict=False):
        light = attention[None] / attention.max()
        _draw(axes, (picture + 1) * (0.15 + 0.85 * light) - 1)
        axes.set_title(word, fontsize=9)
    show(
        "The picture once for each word of its caption, bright where the word looks and dark elsewhere, each scaled by "
        "itself. The words of a thing mostly light up patches of that thing."
    )


def draw_similarities(pictures: Floats, texts: Sequence[str], cosines: Floats) -> None:
    """Draw the cosines (N, N) of pictures, down the side, and texts, across."""
    count = len(texts)
    figure = plt.figure(figsize=(7.2, 5.2))
    grid = figure.add_gridspec(count, 2, width_ratios=(1, count), wspace=0.02)
    for row, picture in enumerate(pictures):
        _draw(figure.add_subplot(grid[row, 0]), picture)
    axes = figure.add_subplot(grid[:, 1])
    shown = axes.imshow(cosines, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
    for (row, column), cosine in np.ndenumerate(cosines):
        colour = on(tuple(shown.to_rgba(np.array(cosine))))
        weight = "bold" if row == column else "normal"
        axes.text(
            column,
            row,
            f"{round(float(cosine), 2) + 0:.2f}".replace("-", "−"),
            ha="center",
            va="center",
            color=colour,
            fontsize=9,
            fontweight=weight,
        )
    axes.set_xticks(range(count), [fill(text, 15) for text in texts], fontsize=8)
    axes.set_yticks([])
    axes.set_title("cosine of each picture and each text; the own ones are bold")
    show(
        f"{count} pictures down the side, their {count} captions across, and the cosine of each two: "
        "green above zero, purple below. On the diagonal, "
        "where picture and caption belong together, the cosines are the largest of their rows."
    )
