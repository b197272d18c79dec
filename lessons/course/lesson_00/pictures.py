"""Pictures of lesson 00: a translator's attention with and without a head, and a computation graph."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from minitransformer.decoding.translator import AttentionMaps

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, VERMILION, dark, show


def draw_attention(whole: AttentionMaps, less: AttentionMaps, layer: int, head: int) -> None:
    """Draw the cross-attention of each written word, in one layer (from 1): all heads, one head (from 1), all others.

    `whole` is of the model with all heads, `less` of the one in which this head is off.
    """
    before, after = whole.cross[layer - 1], less.cross[layer - 1]  # (H, Tq, Tk) each
    others = [number for number in range(len(after)) if number != head - 1]
    panels = (
        ("all heads", before.mean(axis=0), whole),
        (f"head {head} alone", before[head - 1], whole),
        (f"without head {head}", after[others].mean(axis=0), less),
    )
    height = 0.19 * max(len(whole.target_tokens), len(less.target_tokens)) + 1.2
    _, axes = plt.subplots(1, 3, figsize=(7.4, height))
    for place, (title, weights, maps) in zip(axes, panels, strict=True):
        _draw_map(place, weights, maps.source_tokens, maps.target_tokens)
        place.set_title(title)
    for label, changed in zip(axes[2].get_yticklabels(), _changed(whole, less), strict=True):
        if changed:
            label.set(color=PURPLE, weight="bold")
    axes[0].set_ylabel("German, as it is written")
    axes[1].set_xlabel("English, as it is read")
    show(
        "Three maps of the cross-attention of one sentence: all heads, one head alone, and the others with this head "
        "switched off. The head alone is nearly a diagonal of single dark cells; without it the map is paler where it "
        "looked, and the tokens that change are bold."
    )


def _draw_map(axes: Any, weights: np.ndarray, columns: Sequence[str], rows: Sequence[str]) -> None:
    axes.imshow(weights, vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=8, color=INK)
    axes.set_yticks(range(len(rows)), rows, fontsize=8, color=INK)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set(visible=True, lw=0.5, color=PALE)


def _changed(whole: AttentionMaps, less: AttentionMaps) -> list[bool]:
    """Mark the tokens written without the head that the whole model did not write."""
    changed = [True] * len(less.target_tokens)
    for block in SequenceMatcher(None, whole.target_tokens, less.target_tokens, autojunk=False).get_matching_blocks():
        changed[block.b : block.b + block.size] = [False] * block.size
    return changed


def draw_errors(epsilons: np.ndarray, errors: Mapping[str, np.ndarray]) -> None:
    """Draw relative errors of a slope by three kinds of difference (by name), for each step `(S,)`."""
    _, axes = plt.subplots(figsize=(7.2, 3.6))
    for (name, error), colour, mark in zip(errors.items(), (GREY, GREEN, ORANGE), "os^", strict=True):
        axes.loglog(epsilons, error, mark, ms=3, color=colour, label=name)
    axes.loglog(epsilons, epsilons**2 / 6, color=ORANGE, lw=1, alpha=0.7)
    axes.text(0.25, 2e-3, "ε²/6", color=dark(ORANGE))
    axes.loglog(epsilons, 1e-16 / epsilons, color=INK, lw=1, alpha=0.5)
    axes.text(1.5e-14, 3e-2, "10⁻¹⁶/ε", color=INK)
    axes.axvline(1e-5, color=GREY, lw=0.8, ls=":")
    axes.text(1.3e-5, 0.6, "ε = 10⁻⁵", color=GREY, fontsize=8)
    axes.set(xlabel="ε", ylabel="relative error of the slope", ylim=(1e-13, 3))
    axes.set_title("The derivative of sin at 1, by differences")
    axes.legend(loc="lower left")
    show(
        "The error of a derivative by differences against the step. From large steps it falls, along ε² for central "
        "differences and along ε for one-sided ones, then it rises again as 1/ε, because of rounding. Central "
        "differences in float64 are best near 10⁻⁵; float32 is far worse."
    )


def draw_graph(values: Mapping[str, float], gradients: Mapping[str, float]) -> None:
    """Draw the graph of y = x + o, o = w2 · max(0, w1 · x + b1) + b2, with each edge's value and gradient.

    Both are by the edge's name; of what comes back to x, `through` came through the layers and `around` past them.
    """
    _, axes = plt.subplots(figsize=(7.4, 3.3))
    boxes = ((0, "x"), (2, "w₁·x + b₁"), (4, "max(0, h)"), (6, "w₂·a + b₂"), (8, "x + o"), (10, "y"))
    for place, text in boxes:
        axes.text(
            place, 0, text, ha="center", va="center", color=INK, fontsize=9, zorder=3,
            bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": GREY},
        )  # fmt: skip

    def edge(start: tuple[float, float], end: tuple[float, float], curve: float = 0.0) -> None:
        """Draw two arrows side by side: forward and back."""
        along = np.subtract(end, start)
        aside = 0.1 * np.array([-along[1], along[0]]) / np.hypot(*along)
        for colour, side, tail, tip in ((BLUE, 1, start, end), (VERMILION, -1, end, start)):
            style = {"arrowstyle": "-|>", "color": colour, "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
            bend = {"connectionstyle": f"arc3,rad={-side * curve}"}
            axes.annotate("", tuple(tip + side * aside), tuple(tail + side * aside), arrowprops=style | bend)

    def number(kind: Mapping[str, float], name: str) -> str:
        return f"{kind[name]:g}".replace("-", "−")

    def write(place: float, height: float, text: str, colour: str, **options: Any) -> None:
        axes.text(place, height, text, **{"color": colour, "ha": "center", "va": "center", "fontsize": 8} | options)

    for left, right, name in ((0.25, 1.2, ""), (2.8, 3.35, "h"), (4.65, 5.2, "a"), (6.8, 7.5, "o"), (8.5, 9.75, "y")):
        edge((left, 0), (right, 0))
        middle = (left + right) / 2
        if name:
            write(middle, 0.32, f"{name} = {number(values, name)}", BLUE)
            write(middle, -0.32, f"d{name} = {number(gradients, name)}", VERMILION)
        else:
            write(middle, -0.32, number(gradients, "through"), VERMILION)
    edge((0, 0.42), (8, 0.42), curve=0.17)
    write(4, 1.3, f"x = {number(values, 'x')}", BLUE)
    write(4, 0.6, number(gradients, "around"), VERMILION)
    write(0, -0.45, f"x = {number(values, 'x')}", BLUE)
    ways = " + ".join(number(gradients, way) for way in ("through", "around"))
    write(0, -0.85, f"dx = {ways}\n= {number(gradients, 'x')}", VERMILION, weight="bold")
    for place, layer in ((2, 1), (6, 2)):
        for aside, letter in ((-0.45, "w"), (0.45, "b")):
            name, shown = f"{letter}{layer}", letter + "₁₂"[layer - 1]
            edge((place + aside, -1.05), (place + 0.6 * aside, -0.36))
            write(place + 1.7 * aside, -1.25, f"{shown} = {number(values, name)}", BLUE)
            write(place + 1.7 * aside, -1.52, f"d{shown} = {number(gradients, name)}", VERMILION)
    write(10.3, 1.75, "forward: values", BLUE, ha="right", fontsize=9)
    write(10.3, 1.42, "backward: gradients of y", VERMILION, ha="right", fontsize=9)
    axes.set(xlim=(-0.9, 10.4), ylim=(-1.7, 1.95))
    axes.axis("off")
    show(
        "A computation graph of two linear maps with a ReLU between them and a connection around all three. Values go "
        "forward; gradients come back along the same edges, and at x those of the two ways are added."
    )
