"""What every head does, as a map: heads down, where their weight lies across."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable

from minitransformer.plots.attention import COLOURS, SCALE
from minitransformer.plots.page import GREY, INK, Page, text_style

from .heads import JOBS

Jobs = Mapping[str, Mapping[str, Sequence[Any]]]
"""Of each attention `shares`, `(layers, heads, 7)`, and those of `even` attention, `(7,)`."""


def draw_jobs(jobs: Jobs, titles: Mapping[str, str], path: str | Path) -> None:
    """The attentions side by side; below each, what even attention would give. Raises `OSError` as `Page.save`."""
    rows = max(np.shape(each["shares"])[0] * np.shape(each["shares"])[1] for each in jobs.values()) + 1
    page = Page(7.4, 1.45 + 0.17 * rows, layout="constrained")
    columns = [*JOBS, "evenness"]
    every = np.atleast_1d(page.figure.subplots(1, len(jobs)))
    for axes, (kind, each) in zip(every, jobs.items(), strict=True):
        shares = np.array(each["shares"])  # (layers, heads, 7)
        layers, heads = shares.shape[:2]
        table = np.vstack([shares.reshape(layers * heads, -1), each["even"]])
        axes.imshow(table, cmap=COLOURS, norm=SCALE, aspect="auto", interpolation="nearest")
        ends = [heads * (layer + 1) - 0.5 for layer in range(layers)]
        axes.hlines(ends, -0.5, len(columns) - 0.5, colors=GREY, lw=0.8)
        axes.vlines(len(JOBS) - 0.5, -0.5, len(table) - 0.5, colors=GREY, lw=0.8)
        names = [*(f"{layer + 1}.{head + 1}" for layer in range(layers) for head in range(heads)), "even"]
        axes.set_yticks(range(len(table)), names, **text_style([], 7))
        axes.set_xticks(range(len(columns)), columns, rotation=90, **text_style([], 7.5))
        axes.tick_params(length=0, pad=2)
        axes.spines[:].set(linewidth=0.5, color=GREY)
        axes.set_title(titles[kind], **text_style([], 9))
    every[0].set_ylabel("layer.head", **text_style([], 8.5))
    bar = page.figure.colorbar(ScalarMappable(SCALE, COLOURS), ax=list(every), pad=0.02, aspect=30, ticks=[0, 0.5, 1])
    bar.ax.tick_params(labelsize=7.5, labelcolor=INK)
    bar.set_label("part of a head's weight", **text_style([], 8))
    page.save(path)
