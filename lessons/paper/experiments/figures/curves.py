"""The paper's formulas as pictures: the learning rate's schedule, and the positional encodings."""

from pathlib import Path

import numpy as np

from minitransformer.layers import SinusoidalPositions
from minitransformer.ops import numpy_ops
from minitransformer.optimizer import noam
from minitransformer.plots.page import BLUE, GREEN, GREY, INK, SKY, VERMILION, Page

from ...charts import finish

SCHEDULES = [
    ("base with half the warm-up", 512, 2000, SKY),
    ("base: d_model 512", 512, 4000, BLUE),
    ("big: d_model 1024", 1024, 4000, VERMILION),
]
STEPS = 40_000


def draw_schedule(path: str | Path) -> None:
    """The learning rate of base, of base with half the warm-up, and of big. Source: Vaswani 2017, §5.3, eq. 3."""
    page = Page(7.4, 3.0, layout="constrained")
    axes = page.figure.subplots()
    steps = np.arange(1, STEPS + 1, 20)
    for name, d_model, warmup, colour in SCHEDULES:
        axes.plot(steps, [noam(int(step), d_model, warmup) for step in steps], color=colour, lw=1.6, label=name)
    axes.axvline(4000, color=GREY, lw=0.8, ls=":")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    axes.set(xlim=(0, STEPS), ylim=(0, None))
    finish(axes, "optimiser step", "learning rate")
    page.save(path)


def draw_positions(path: str | Path, length: int = 100, d_model: int = 128) -> None:
    """The sinusoids as a map, and the dot products of one position's with all others': they depend on the distance.

    Source: Vaswani 2017, §3.5.
    """
    table = np.asarray(SinusoidalPositions(numpy_ops, length, d_model, "float64").table)  # (length, d_model)
    page = Page(7.4, 3.2, layout="constrained")
    left, right = page.figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    image = left.imshow(table, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    page.figure.colorbar(image, ax=left, pad=0.02).ax.tick_params(labelsize=7.5, colors=GREY)
    finish(left, "dimension", "position")
    for position, colour, width in ((20, BLUE, 4.5), (50, VERMILION, 2.7), (80, GREEN, 1.0)):  # they lie on each other
        products = table @ table[position]
        right.plot(np.arange(length) - position, products, color=colour, lw=width, label=f"position {position}")
    right.legend(frameon=False, fontsize=8, labelcolor=INK, title="dot product with", title_fontsize=8)
    finish(right, "distance", "PE(pos) · PE(pos + distance)")
    page.save(path)
