"""Lesson 14: rates of one operation at all sizes, predictions, blocks of Adam, a step of training as stacked bars."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator

from ..measuring import Machine, caches
from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, show

PARTS = {
    "linear": ("linear layers", BLUE),
    "linear_cross_entropy": ("output layer and loss", SKY),
    "attention": ("attention", ORANGE),
    "add_layernorm": ("add & norm", GREEN),
    "relu": ("relu", PURPLE),
    "embedding": ("embedding", PALE),
    "adam": ("Adam", VERMILION),
}

BOUND = {"the call": (GREY, "s"), "arithmetic": (BLUE, "o"), "memory": (VERMILION, "^")}
Shape = tuple[int, int, int]


def draw_rates(sizes: Sequence[int], seconds: Mapping[int, float], machine: Machine) -> None:
    """Draw the bytes a second of an operation that reads and writes an array, against the array's size in elements."""
    _, axes = plt.subplots()
    kib = np.array(sizes) * 4 / 1024
    axes.plot(kib, [8 * n / seconds[n] / 1e9 for n in sizes], "o-", color=INK, ms=4, label="measured")
    without = [8 * n / (machine.call + 8 * n / machine.bandwidth) / 1e9 for n in sizes]
    axes.plot(kib, without, color=VERMILION, ls="--", label="without caches: call + bytes / bandwidth")
    axes.set(xscale="log", xlabel="size of the array, KiB", ylabel="GB/s, read and written", ylim=(0, None))
    axes.set_title("The same operation on arrays of all sizes, one core")
    for name, size in caches().items():
        axes.axvline(size / 1024, color=PALE, lw=2, zorder=0)
        axes.text(size / 1024, 0.98, f"{name} ", color=INK, ha="right", va="top", transform=axes.get_xaxis_transform())
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1), fontsize=8)
    show(
        "Bytes a second of one operation against the array's size: slow for tiny arrays, where the call decides, "
        "several times the memory's rate for arrays that fit into a cache, and slow again for large ones."
    )


def bound_by(machine: Machine, m: int, k: int, n: int) -> str:
    """Return which of the three prices of a product (m, k) @ (k, n) is the largest."""
    prices = {
        "the call": machine.call,
        "arithmetic": 2 * m * k * n / machine.flops,
        "memory": 4 * (m * k + k * n + m * n) / machine.bandwidth,
    }
    return max(prices, key=lambda kind: prices[kind])


def draw_predictions(predicted: Mapping[Shape, float], measured: Mapping[Shape, float], machine: Machine) -> None:
    """Draw the measured against the predicted seconds of products (m, k) @ (k, n)."""
    _, axes = plt.subplots(figsize=(7.2, 3.8))
    for kind, (colour, marker) in BOUND.items():
        shapes = [shape for shape in predicted if bound_by(machine, *shape) == kind]
        x, y = ([1e6 * times[shape] for shape in shapes] for times in (predicted, measured))
        axes.plot(x, y, marker, color=colour, ms=6, label=f"bound by {kind}")
        for shape, left, up in zip(shapes, x, y, strict=True):
            text = "·".join(f"{size // 1024}k" if size % 1024 == 0 else f"{size}" for size in shape)
            above = kind != "the call" and shape[-1] > 1
            place: dict[str, Any] = {"xytext": (-6, 4), "ha": "right"} if above else {"xytext": (7, -6)}
            axes.annotate(text, (left, up), textcoords="offset points", fontsize=8, color=INK, **place)
    diagonal = np.array([0.2, 1e5])
    axes.plot(diagonal, diagonal, color=GREY, lw=1)
    axes.fill_between(diagonal, diagonal, 2 * diagonal, color=PALE, alpha=0.5, lw=0, label="up to twice the prediction")
    axes.set(xscale="log", yscale="log", xlabel="predicted, µs", ylabel="measured, µs")
    axes.set_title("Products (m, k) @ (k, n) on one core, labelled m·k·n")
    axes.legend(loc="upper left")
    show(
        "Measured times of ten products against the predicted ones, near the diagonal. The smallest product is bound "
        "by the call, larger ones by arithmetic, those with a vector or a few columns by memory."
    )


def draw_blocks(
    count: int, blocks: Mapping[int, float], printed: float, passes: Mapping[str, float], machine: Machine
) -> None:
    """Draw the nanoseconds for a parameter of Adam in blocks of so many parameters, and as printed.

    `passes` are those through memory as printed, and at the least.
    """
    _, axes = plt.subplots(figsize=(7.2, 3.5))
    axes.plot([*blocks], [*blocks.values()], "o-", color=INK, ms=4, label="in place, in blocks, measured")
    axes.axhline(printed, color=INK, label="as printed, measured")
    for style, number in zip(("--", ":"), passes.values(), strict=True):
        label = f"{number:.0f} passes through memory"
        axes.axhline(number * 4e9 / machine.bandwidth, color=VERMILION, ls=style, label=label)
    calls = [15e9 * machine.call / block for block in blocks]
    axes.plot([*blocks], calls, color=GREY, ls="-.", label="15 calls a block")
    for name, size in caches().items():
        axes.axvline(size / (6 * 4), color=PALE, lw=2, zorder=0)
        where = {"ha": "right", "va": "bottom", "rotation": 90, "transform": axes.get_xaxis_transform()}
        axes.text(0.93 * size / (6 * 4), 0.02, f"6 slices fill {name}", color=INK, fontsize=8, **where)
    axes.set(xscale="log", yscale="log", xlabel="parameters in a block", ylabel="ns for a parameter")
    highest = 3 * max(printed, *blocks.values())
    axes.set(ylim=(0.3, highest), yticks=(0.5, 1, 2, 5, 10, 20, 50))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title(f"A step of Adam over {count:,} parameters, one core")
    axes.legend(loc="upper center", fontsize=8, ncols=2)
    show(
        "Adam's time for a parameter against the size of a block: a wide valley, below the printed form, between small "
        "blocks, where calls decide, and large ones, which outgrow the caches."
    )


def draw_steps(steps: Mapping[str, Mapping[str, float]], products: float, title: str) -> None:
    """Draw a bar for each step: the milliseconds of its parts; the rest of "total" is Python's.

    `products` is what the matrix products alone would take.
    """
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    axes.set_title(title)
    names = list(steps)[::-1]
    left = dict.fromkeys(names, 0.0)
    for part, (label, colour) in PARTS.items():
        widths = [steps[name].get(part, 0.0) for name in names]
        axes.barh(names, widths, 0.6, [left[name] for name in names], color=colour, label=label)
        for name, width in zip(names, widths, strict=True):
            left[name] += width
    rest = [max(steps[name]["total"] - left[name], 0.0) for name in names]
    axes.barh(names, rest, 0.6, [left[name] for name in names], color=GREY, label="everything else")
    for y, name in enumerate(names):
        axes.text(steps[name]["total"], y, f" {steps[name]['total']:.0f} ms", va="center", color=INK)
    axes.axvline(products, color=INK, ls=":", lw=1.2, label="products alone")
    axes.set(xlabel="milliseconds of a training step", xlim=(0, 1.12 * max(steps[name]["total"] for name in names)))
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.margins(y=0.12)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    show(
        "Four bars, the milliseconds of a step by part: naive operations, and the package's on one core, with BLAS's "
        "threads and with replicas. Linear layers take the largest part; a dotted line marks the products alone."
    )
