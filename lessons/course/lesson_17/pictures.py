"""Lesson 17: rooflines, and the ladder of swaps."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, show
from .roofline import GPUS, WORKS, Gpu, Work
from .solutions import attention_work

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
    axes.text(along[0] / 1.2, heights[0], text, fontsize=8, color=INK, ha="right")


def draw_core(tasks: Mapping[str, tuple[float, float, float]], core: Gpu) -> None:
    """Draw each task, (operations, bytes, measured seconds), below the roof of one core of the processor."""
    _, axes = plt.subplots(figsize=(7.2, 3.6))
    lowest = min(flops / seconds / 1e9 for flops, _, seconds in tasks.values())
    axes.set(xscale="log", yscale="log", xlim=(0.05, 3000), ylim=(0.6 * lowest, 2.5 * core.flops / 1e9))
    roof(axes, core.flops / 1e9, core.bandwidth / 1e9, color=INK, lw=1.5)
    for name, (flops, moved, seconds) in tasks.items():
        colour, intensity = COLOURS.get(name, GREY), flops / moved
        ceiling, reached = min(core.flops, intensity * core.bandwidth) / 1e9, flops / seconds / 1e9
        axes.plot([intensity] * 2, [reached, ceiling], color=colour, lw=1)
        axes.plot(intensity, reached, "o", color=colour)
        left, down = name in ("softmax", "linear"), 13 if name == "linear" else 4
        place = {"xytext": (-7 if left else 7, -down), "ha": "right" if left else "left"}
        text = f"{name}, {reached / ceiling:.0%}"
        axes.annotate(text, (intensity, reached), textcoords="offset points", fontsize=8, color=INK, **place)
    axes.set(xlabel="intensity, operations for each byte", ylabel="GFLOP/s")
    axes.set_title("One core: what the counts allow (the roof), what NumPy reaches, and its share")
    show(
        "Six tasks below the roof of one core. A linear layer comes near its roof; relu, softmax and layer norm, where "
        "memory decides, stay far below theirs."
    )


def draw_kernels(shown: Gpu, seconds: Mapping[int, float], source: str) -> None:
    """Draw every kernel's dot under the roof of one GPU, near by and whole, with the roofs of the others."""
    figure, (near, whole) = plt.subplots(1, 2, figsize=(7.2, 4.4), width_ratios=[1, 1.2])
    near.set(xscale="log", yscale="log", xlim=(0.1, 4), ylim=(0.06 * shown.bandwidth, 5 * shown.bandwidth))
    whole.set(xscale="log", yscale="log", xlim=(0.1, 200_000), ylim=(2e10, 3e15))
    for gpu in GPUS:
        roof(whole, gpu.flops, gpu.bandwidth, color=INK if gpu is shown else GREY, lw=2 if gpu is shown else 0.8)
        if gpu.name != "H100":  # its flat roof is the H200's
            whole.text(180_000, gpu.flops, f"{gpu.name} ", ha="right", va="bottom", fontsize=8, color=INK)
    roof(near, shown.flops, shown.bandwidth, color=INK, lw=2)
    fused, unfused = (flops / moved for flops, moved in (attention_work(4096, 128, kept) for kept in (True, False)))
    move(whole, shown, unfused, fused, "attention,\nscores written")
    move(near, shown, 5 / (8 * 2), 5 / (2 * 2), "softmax,\n8 passes")
    for axes in (near, whole):
        kernel_dots(axes, WORKS, shown, seconds)
        axes.set(xlabel="intensity, operations for each byte")
    near.set(ylabel="operations a second", title="where memory decides", xticks=(0.2, 0.5, 1, 2))
    near.xaxis.set_major_formatter("{x:g}")
    near.xaxis.set_minor_locator(NullLocator())
    whole.set(title="the whole roof, and other GPUs'")
    figure.suptitle(f"{shown.name}, {shown.kind}: every kernel's dot\n{source}", color=INK, fontsize=10)
    figure.legend(*near.get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=5)
    show(
        "Every kernel under a GPU's roof. All but attention and the fused loss lie on the slope, where memory decides. "
        "Arrows show softmax and attention move along the roof when they make fewer passes over memory."
    )


def draw_ladder(rungs: Mapping[str, Mapping[str, float]], gpu: Gpu) -> None:
    """Draw a bar for each rung, stacked from its parts' milliseconds."""
    figure, axes = plt.subplots(figsize=(7.2, 3.6))
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
    axes.set(xlabel="milliseconds, at the least")
    figure.suptitle(f"A training step of base on one {gpu.name}, at the least: predicted from counts", fontsize=10)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    show(
        "Bars of a step's predicted milliseconds, one kernel more in each. The two large steps down are Add & Norm and "
        "the loss; in the end products, in grey, are the largest part."
    )
