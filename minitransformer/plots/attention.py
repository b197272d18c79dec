"""Attention maps: the weight of each source position (a column) at each target position (a row)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from .page import GREY, INK, PALE, Page, fitted, printable, text_style, text_width

COLOURS, SCALE = "Blues", Normalize(0.0, 1.0)
LONGEST_LABEL = 16  # characters
TITLE_WIDTH = 6.0  # inches at least, even if the maps are narrower
SCALE_LENGTH = 0.13  # inches of colour bar for each point of its font size


def plot_attention(
    weights: np.ndarray, source_tokens: Sequence[str], target_tokens: Sequence[str], path: str | Path, title: str = ""
) -> None:
    """Draw every head of every layer: a row for each layer, targets (queries) down, sources (keys) across.

    weights: `(layers, H, Tq, Tk)`, all drawn on one scale from 0 to 1. Raises `ValueError` for another shape, and
    `OSError`, naming the path, if it can't be written. After Vaswani 2017, Figures 3–5.
    """
    sources, targets = _labels(weights, 4, source_tokens, target_tokens)
    layers, heads, num_targets, num_sources = weights.shape
    size = 6.5  # of the labels, in points
    cell = min(max(1.6 / max(num_targets, num_sources), 0.125), 0.3)  # inches: at least a line of the labels
    width, height, gap = cell * num_sources, cell * num_targets, 0.2
    left, below, above = 0.55 + _longest(targets, size), 0.15 + _longest(sources, size), 0.28
    row = max(above + height + below, above + SCALE_LENGTH * size + 0.1)
    right = left + heads * (width + gap)
    title = fitted(title, 10, max(right + 0.35, TITLE_WIDTH))
    page = Page(max(right + 0.6, text_width(title, 10) + 0.25), layers * row + (0.4 if title else 0.05))
    for layer in range(layers):
        bottom = (layers - layer) * row - above - height
        page.text(0.2, bottom + height / 2, f"layer {layer + 1}", 9, rotation=90, ha="center", va="center")
        for head in range(heads):
            axes = page.axes(left + head * (width + gap), bottom, width, height)
            _draw(axes, weights[layer, head], sources, targets if head == 0 else [], size)
            axes.set_title(f"head {head + 1}", pad=3, **text_style([], 7.5, GREY))
    bar_height = max(min(2.0, height), SCALE_LENGTH * size)
    _draw_scale(page, right, layers * row - above - bar_height, 0.08, bar_height, size)
    page.text(0.12, page.height - 0.12, title, 10, ha="left", va="top")
    page.save(path)


def plot_one_attention(
    weights: np.ndarray, source_tokens: Sequence[str], target_tokens: Sequence[str], path: str | Path, title: str = ""
) -> None:
    """Draw one large attention map: weights `(Tq, Tk)`, such as one head's or the mean of a layer's heads.

    Raises as `plot_attention` does.
    """
    sources, targets = _labels(weights, 2, source_tokens, target_tokens)
    num_targets, num_sources = weights.shape
    cell = min(max(5.5 / max(num_targets, num_sources), 0.18), 0.45)
    size = min(11.0, 45 * cell)
    width, height = cell * num_sources, cell * num_targets
    left, above = 0.25 + _longest(targets, size), 0.2 + _longest(sources, size) + (0.4 if title else 0.0)
    bar_height = max(min(2.5, height), SCALE_LENGTH * 9)
    below = 0.2 + max(0.0, bar_height - height)
    title = fitted(title, 12, max(left + width + 0.65, TITLE_WIDTH))
    page = Page(max(left + width + 0.95, text_width(title, 12) + 0.3), below + height + above)
    axes = page.axes(left, below, width, height)
    axes.xaxis.tick_top()
    _draw(axes, weights, sources, targets, size)
    _draw_scale(page, left + width + 0.2, below + height - bar_height, 0.13, bar_height, 9)
    page.text(0.15, page.height - 0.15, title, 12, ha="left", va="top")
    page.save(path)


def _labels(
    weights: np.ndarray, ndim: int, sources: Sequence[str], targets: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the printable labels of both axes. Raises ValueError if the weights do not fit them."""
    leading = ("layers", "heads")[: ndim - 2]
    if weights.ndim != ndim or weights.shape[-2:] != (len(targets), len(sources)) or not weights.size:
        expected = ", ".join([*leading, f"{len(targets)} target tokens", f"{len(sources)} source tokens"])
        raise ValueError(f"weights has shape {weights.shape}, expected ({expected}), none of them 0")
    sources, targets = ([printable(token, LONGEST_LABEL) for token in tokens] for tokens in (sources, targets))
    return sources, targets


def _longest(labels: list[str], size: float) -> float:
    return max(text_width(label, size) for label in labels)


def _draw(axes: Axes, weights: np.ndarray, sources: list[str], targets: list[str], size: float) -> None:
    """Draw one map `(Tq, Tk)` with thin lines between its cells."""
    num_targets, num_sources = weights.shape
    axes.imshow(weights, cmap=COLOURS, norm=SCALE, aspect="auto", interpolation="nearest")
    axes.vlines(np.arange(num_sources - 1) + 0.5, -0.5, num_targets - 0.5, colors=PALE, linewidths=0.4)
    axes.hlines(np.arange(num_targets - 1) + 0.5, -0.5, num_sources - 0.5, colors=PALE, linewidths=0.4)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set(linewidth=0.5, color=GREY)
    axes.set_xticks(range(num_sources), sources, rotation=90, **text_style(sources, size))
    axes.set_yticks(range(len(targets)), targets, **text_style(targets, size))


def _draw_scale(page: Page, x: float, y: float, width: float, height: float, size: float) -> None:
    """Draw the colour bar of all maps."""
    axes = page.axes(x, y, width, height)
    bar: Any = page.figure.colorbar(ScalarMappable(SCALE, COLOURS), cax=axes, ticks=[0, 0.5, 1])
    bar.outline.set(linewidth=0.5, edgecolor=GREY)
    bar.ax.tick_params(labelsize=size, labelcolor=INK, length=2, width=0.5)
    bar.set_label("attention weight", fontsize=size, color=INK)
