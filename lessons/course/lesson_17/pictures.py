"""Lesson 17: rooflines, and the ladder of swaps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION
from .roofline import Gpu, Work

COLOURS = {  # one for each kind of operation, in all of the lesson's pictures; products are grey
    "relu": SKY,
    "dropout": SKY,
    "embedding": SKY,
    "adam": PURPLE,
    "softmax": BLUE,
    "layernorm": BLUE,
    "add_layernorm": BLUE,
    "cross_entropy": ORANGE,
    "linear_cross_entropy": ORANGE,
    "attention": GREEN,
}

MARKS = dict(zip(COLOURS, "os^DosD^v*", strict=True))

PARTS = {
    "linear layers": GREY,
    "output layer and loss": ORANGE,
    "attention": GREEN,
    "add & norm": BLUE,
    "embedding, relu": SKY,
    "Adam": PURPLE,
}


def roof(axes: Axes, flops: float, bandwidth: float, **style: Any) -> None:
    """Draw the attainable operations a second at every intensity on the axis."""
    low, high = axes.get_xlim()
    intensity = np.array([low, flops / bandwidth, high])
    axes.plot(intensity, np.minimum(flops, intensity * bandwidth), **style)


def kernel_dots(axes: Axes, works: Sequence[Work], gpu: Gpu, measured: Mapping[int, float]) -> None:
    """Draw for each task a hollow mark on the roof, from its counts, and a full one at its measured seconds."""
    named = set()
    for number, work in enumerate(works):
        mark, colour = MARKS[work.op], COLOURS[work.op]
        style = {"marker": mark, "ms": 11 if mark == "*" else 6, "color": colour, "ls": "none"}
        ceiling = min(gpu.flops, work.intensity * gpu.bandwidth)
        label = None if work.op in named else work.op
        axes.plot([work.intensity], [ceiling], markerfacecolor="white", label=label, zorder=3, **style)
        named.add(work.op)
        if number in measured:
            reached = work.flops / measured[number]
            axes.plot([work.intensity] * 2, [reached, ceiling], color=colour, lw=0.8)
            axes.plot([work.intensity], [reached], zorder=3, **style)


def move(axes: Axes, gpu: Gpu, before: float, after: float, text: str) -> None:
    """Draw a cross on the roof, and an arrow beside it to another intensity."""
    along = np.array([before, *([gpu.ridge] if before < gpu.ridge < after else []), after])
    heights = 1.6 * np.minimum(gpu.flops, along * gpu.bandwidth)  # beside the roof, not over its dots
    axes.plot(along[:-1], heights[:-1], color=VERMILION, lw=1.5)
    arrow = {"arrowstyle": "-|>", "color": VERMILION, "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (along[-1], heights[-1]), (along[-2], heights[-2]), arrowprops=arrow)
    axes.plot(along[0], heights[0] / 1.6, "X", color=VERMILION, ms=7)
    axes.text(along[0] / 1.2, heights[0], text, fontsize=8, color=VERMILION, ha="right")


def ladder(axes: Axes, rungs: Mapping[str, Mapping[str, float]]) -> None:
    """Draw a bar for each rung, stacked from its parts' milliseconds."""
    names = list(rungs)[::-1]
    left = np.zeros(len(names))
    for part, colour in PARTS.items():
        widths = np.array([rungs[name][part] for name in names])
        axes.barh(names, widths, 0.65, left, color=colour, label=part)
        left += widths
    for y, total in enumerate(left):
        axes.text(total, y, f" {total:.1f}", va="center", color=INK)
    axes.set_xlim(0, 1.1 * left.max())
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="x", color=PALE)
    axes.set_axisbelow(True)
