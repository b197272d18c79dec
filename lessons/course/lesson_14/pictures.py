"""Lesson 14: a step of training as stacked bars."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION

PARTS = {
    "linear": ("linear layers", BLUE),
    "linear_cross_entropy": ("output layer and loss", SKY),
    "attention": ("attention", ORANGE),
    "add_layernorm": ("add & norm", GREEN),
    "relu": ("relu", PURPLE),
    "embedding": ("embedding", PALE),
    "adam": ("Adam", VERMILION),
}


def stacked_steps(axes: Axes, steps: Mapping[str, Mapping[str, float]], products: float) -> None:
    """Draw a bar for each step: the milliseconds of its parts; the rest of "total" is Python's.

    `products` is what the matrix products alone would take.
    """
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
