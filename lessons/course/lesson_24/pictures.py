"""Lesson 24: where a file's bytes go in a GPT-2, and how far each mistake of reading moves the logits."""

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from minitransformer.system.tensor_file import Tensor

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, on
from .stranger import BYTES

KINDS = {"wte": BLUE, "wpe": SKY, "ln": GREY, "c_attn": ORANGE, "attn.c_proj": VERMILION, "c_fc": GREEN, "mlp": PURPLE}
"""A colour for each kind of tensor, by a part of its name; other tensors, such as masks, are pale."""


def colour_of(name: str) -> str:
    """A tensor's colour."""
    return next((colour for part, colour in KINDS.items() if part in name), PALE)


def draw_file(tensors: Mapping[str, Tensor]) -> None:
    """Draw the file to scale, below it the model in the order of its computation, and lines for one layer's weights."""
    _, axes = plt.subplots(figsize=(9.0, 4.2))
    places = {
        name: (tensor.start, tensor.start + math.prod(tensor.shape) * BYTES[tensor.type])
        for name, tensor in tensors.items()
    }
    start, stop = min(first for first, _ in places.values()), max(last for _, last in places.values())

    def x(byte: float) -> float:
        return 10 * byte / stop

    axes.add_patch(Rectangle((x(0), 3.2), x(start), 0.6, fc=INK, ec="white", lw=0.4))
    for name, (first, last) in places.items():
        axes.add_patch(Rectangle((x(first), 3.2), x(last - first), 0.6, fc=colour_of(name), ec="white", lw=0.4))
    axes.annotate(
        "8 bytes, and the header", (x(start / 2), 3.82), (0.0, 4.22), fontsize=8, color=INK, ha="left", va="center",
        arrowprops={"arrowstyle": "-", "color": INK, "lw": 0.8},
    )  # fmt: skip
    axes.text(10, 4.22, f"model.safetensors, {stop:,} bytes", fontsize=8, color=INK, ha="right", va="center")

    boxes = [
        ("wte.weight", "wte"), ("wpe.weight", "wpe"), ("h.0.ln_1.weight", "ln_1"),
        ("h.0.attn.c_attn.weight", "c_attn"), ("h.0.attn.c_proj.weight", "attn.\nc_proj"),
        ("h.0.ln_2.weight", "ln_2"), ("h.0.mlp.c_fc.weight", "c_fc"),
        ("h.0.mlp.c_proj.weight", "mlp.\nc_proj"),
        ("ln_f.weight", "ln_f"), ("wte.weight", "wte"),
    ]  # fmt: skip
    width, gap = 0.82, 0.2
    for place, (name, label) in enumerate(boxes):
        left = place * (width + gap)
        middle = left + width / 2
        _box(axes, left, width, name, label, tensors[name].shape, last=place == len(boxes) - 1)
        first, last = places[name]
        axes.plot([x((first + last) / 2), middle], [3.2, 1.55], color=colour_of(name), lw=1.0, alpha=0.8, zorder=0)
        if place + 1 < len(boxes):
            axes.annotate(
                "", (left + width + gap, 1.15), (left + width, 1.15), arrowprops={"arrowstyle": "->", "color": GREY}
            )
    left, right = 2 * (width + gap) - 0.1, 7 * (width + gap) + width + 0.1
    axes.plot([left, left, right, right], [0.28, 0.18, 0.18, 0.28], color=GREY, lw=1)
    below = "layer 0; every layer has these"
    axes.text((left + right) / 2, 0.02, below, ha="center", va="top", fontsize=8, color=GREY)
    axes.set(xlim=(-0.15, 10.3), ylim=(-0.3, 4.45))
    axes.axis("off")
    axes.set_title("One file: its bytes in their order (above), and where they go (below)")


def _box(axes: Axes, left: float, width: float, name: str, label: str, shape: Sequence[int], last: bool) -> None:
    colour = colour_of(name)
    axes.add_patch(
        FancyBboxPatch((left, 0.75), width, 0.8, boxstyle="round,pad=0.0,rounding_size=0.08", fc=colour, lw=0)
    )
    shown = shape[::-1] if last else shape
    text = f"{label}ᵀ" if last else label
    axes.text(
        left + width / 2, 1.15 if "\n" in text else 1.3, text, ha="center", va="center", fontsize=9, color=on(colour)
    )
    if label == "c_attn":
        for third, letter in enumerate("QKV"):
            middle = left + width * (third + 0.5) / 3
            axes.text(middle, 0.95, letter, ha="center", va="center", fontsize=8, color=on(colour))
        for third in (1, 2):
            axes.plot([left + width * third / 3] * 2, [0.78, 1.1], color=on(colour), lw=0.8)
    axes.text(left + width / 2, 0.6, " × ".join(map(str, shown)), ha="center", va="center", fontsize=7, color=INK)


def draw_mistakes(errors: Mapping[str, Mapping[str, float]], rounding: Mapping[str, float]) -> None:
    """Draw the largest difference of a logit for each mistake and model, and the size of rounding errors, by name."""
    names = sorted(errors, key=lambda name: errors[name]["trained"])
    figure, axes = plt.subplots(figsize=(7.6, 0.27 * len(names) + 1.4))
    lowest = min(rounding.values()) / 12
    highest = max(value for each in errors.values() for value in each.values())
    looks = {"as it starts": (GREY, "o"), "loud": (BLUE, "D"), "trained": (VERMILION, "s")}
    for row, name in enumerate(names):
        axes.axhline(row, color=PALE, lw=0.6, zorder=0)
        for model, (colour, mark) in looks.items():
            value = errors[name][model]
            seen = value > 0
            axes.plot(
                [max(value, lowest * 1.5)], [row], mark, color=colour, ms=5.5, zorder=3,
                mfc=colour if seen else "white", label=model if row == 0 else None,
            )  # fmt: skip
    for name, value in rounding.items():
        axes.axvline(value, color=INK, lw=0.8, ls=":")
        axes.text(1.3 * value, len(names) - 0.35, name, fontsize=7, color=INK, ha="left", va="bottom")
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set(
        xscale="log", xlim=(lowest, 4 * highest), ylim=(-0.6, len(names) + 0.3),
        xlabel="largest error of a logit, in units of the logits' standard deviation (hollow: 0)",
    )  # fmt: skip
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8)


def draw_halves(order: np.ndarray) -> None:
    """Draw the moves of the sinusoids' channels: from sine and cosine in turn to all sines first."""
    _, axes = plt.subplots(figsize=(7.2, 1.9))
    for new, old in enumerate(order):
        colour = BLUE if old % 2 == 0 else ORANGE
        for y, place in ((1.0, old), (0.0, new)):
            axes.add_patch(Rectangle((place + 0.05, y), 0.9, 0.35, fc=colour, lw=0))
            axes.text(place + 0.5, y + 0.17, str(old), ha="center", va="center", fontsize=8, color=on(colour))
        axes.plot([old + 0.5, new + 0.5], [1.0, 0.35], color=colour, lw=0.9)
    axes.text(-0.2, 1.17, "the paper", ha="right", va="center", fontsize=8, color=INK)
    axes.text(-0.2, 0.17, "Marian", ha="right", va="center", fontsize=8, color=INK)
    axes.set(xlim=(-2.2, len(order) + 0.1), ylim=(-0.1, 1.45))
    axes.axis("off")
    axes.set_title("The channels of a model: sines (even, blue) and cosines (odd, orange)")
