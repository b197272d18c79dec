"""Lesson 08: figure 1 from a running model, where gradients add, beginnings, and gradients layer by layer."""

from collections.abc import Mapping, Sequence
from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch

from minitransformer.models import Transformer
from paper.experiments.figures.architecture import architecture_page

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, VERMILION, on, show, show_image


def figure_1(model: Transformer, source: np.ndarray, target: np.ndarray) -> None:
    """Draw the paper's figure 1 for this model, with the shapes that source (B, Ts) and target (B, Tt) take in it."""
    picture = BytesIO()
    with plt.rc_context({"figure.constrained_layout.use": False}):  # the page places its parts itself
        architecture_page(model, source, target).figure.savefig(picture, format="png", dpi=194)
    show_image(
        picture,
        "The paper's figure 1 with the shape of every array: the encoder's layers on the left, the decoder's on the "
        "right, which look at the encoder's output, and the linear layer and softmax on top.",
    )


def draw_layer_gradients(norms: Mapping[str, np.ndarray]) -> None:
    """Draw the gradient's norms by layer: each (2, L), for the encoder and the decoder, the lowest layer first."""
    styles = zip((BLUE, GREEN, ORANGE), ("o-", "s-", "^--"), strict=True)
    _, both = plt.subplots(1, 2, figsize=(7.2, 3.3), sharey=True)
    for (name, stacks), (colour, style) in zip(norms.items(), styles, strict=True):
        for axes, stack in zip(both, stacks, strict=True):
            axes.semilogy(np.arange(1, len(stack) + 1), stack, style, ms=4, color=colour, label=name)
    for axes, title in zip(both, ("Encoder", "Decoder"), strict=True):
        axes.set(title=title, xlabel="layer (1 is next to the embedding)")
    both[0].set_ylabel("norm of the gradient\nof a layer's parameters")
    both[1].legend(loc="lower right")
    show(
        "The norm of the gradient by layer, in encoder and decoder. In the decoder of the post-norm model it falls "
        "towards the embedding by more than a factor of ten; with pre-norm, or with post-norm and half the initial "
        "bound, it stays about level."
    )


def draw_sums() -> None:
    """Draw the backward through two layers of an encoder and a decoder, with a circle wherever gradients add."""
    _, axes = plt.subplots(figsize=(7.2, 7.0))
    axes.set(xlim=(-0.6, 10.4), ylim=(-1.75, 8.6), aspect="equal")
    axes.set_axis_off()
    encoder, decoder = 2.6, 6.4  # the middles of the two columns
    names = ("self-attention", "cross-attention", "feed-forward")
    top = 7.2
    for number in range(2):
        for place, name in enumerate(names):
            _sublayer(axes, decoder, 3.6 * number + 1.2 * place, name, side=1, memory=name == names[1])
        for place, name in enumerate(names[::2]):
            _sublayer(axes, encoder, 1.2 * (2 * number + place), name, side=-1)
    memory = (encoder, 5.6)
    axes.plot([encoder, encoder], [memory[1], 4.7], color=INK, lw=1.3, zorder=1)
    for number in range(2):
        height = 3.6 * number + 1.2 + 0.55
        _arrow(axes, (decoder - 0.3, height), memory, PURPLE, f"arc3,rad={0.12 if number else -0.12}")
    _plus(axes, memory, PURPLE)
    axes.text(encoder - 0.35, memory[1], "the memory:\none part from\neach layer", ha="right", va="center", fontsize=8)
    axes.plot([decoder, decoder], [8.0, top - 0.1], color=INK, lw=1.3, zorder=1)
    _box(axes, decoder, 8.2, "linear: the table", 2.4)
    table = (4.5, -1.15)
    _arrow(axes, (encoder, 0), table, GREEN, "arc3,rad=0.15")
    _arrow(axes, (decoder, 0), table, GREEN, "arc3,rad=-0.15")
    axes.plot([decoder + 1.2, 10.0, 10.0, 5.0], [8.2, 8.2, table[1], table[1]], color=GREEN, lw=1.3)
    _arrow(axes, (5.4, table[1]), table, GREEN)
    _plus(axes, table, GREEN)
    axes.text(table[0] - 0.35, table[1] - 0.1, "the table of tokens:\nits three uses", ha="right", va="top", fontsize=8)
    for stream, name in ((encoder, "encoder"), (decoder, "decoder")):
        left = stream == decoder
        axes.text(stream + 0.35 if left else stream - 0.35, -0.25, f"embedding\nof the {name}", fontsize=7.5,
                  color=INK, ha="left" if left else "right", va="top")  # fmt: skip
    axes.text(0.0, 8.2, "orange: $x$ goes past a sub-layer and into it\npurple: the memory\ngreen: the table",
              va="center", fontsize=8, color=INK)  # fmt: skip
    axes.set_title("The way back: where gradients add")
    show(
        "The backward pass through an encoder and a decoder of two layers, from the top to the table of tokens. "
        "Gradients add below every sub-layer, at the memory, to which each layer of the decoder sends a part, and at "
        "the table, which is used three times."
    )


def _sublayer(axes: Axes, stream: float, height: float, name: str, side: int, memory: bool = False) -> None:
    """Draw one residual connection, from the norm at its top down to the place where its two paths meet."""
    top, place = height + 1.2, stream + 1.45 * side
    _arrow(axes, (stream, top), (stream, height))
    axes.plot([stream, place, place], [top - 0.2, top - 0.2, height + 0.55], color=INK, lw=1.0)
    axes.plot([place, place], [height + 0.55, height], color=INK, lw=1.0)
    _arrow(axes, (place, height), (stream, height))
    uses = "" if name == "feed-forward" else "\nq | k + v" if memory else "\nq + k + v"
    _box(axes, place, height + 0.55, name + uses)
    if memory:
        axes.plot([stream - 0.3, place - side * 0.8], [height + 0.55] * 2, color=PURPLE, lw=1.3, zorder=1)
    _plus(axes, (stream, height), ORANGE)


def _box(axes: Axes, x: float, y: float, name: str, width: float = 1.7) -> None:
    box = FancyBboxPatch((x - width / 2, y - 0.24), width, 0.48, boxstyle="round,pad=0.02", fc=PALE, ec=INK, zorder=3)
    axes.add_patch(box)
    axes.text(x, y, name, ha="center", va="center", fontsize=7.5, zorder=4)


def _plus(axes: Axes, place: tuple[float, float], colour: str) -> None:
    axes.add_patch(Circle(place, 0.19, fc=colour, ec=INK, lw=0.8, zorder=5))
    axes.text(*place, "+", ha="center", va="center", color=on(colour), fontsize=10, weight="bold", zorder=6)


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = INK, curve: str = "arc3,rad=0"
) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.3, "shrinkB": 8, "shrinkA": 0, "connectionstyle": curve}
    axes.annotate("", end, start, arrowprops=style, zorder=2)


def draw_beginnings(
    sizes: Mapping[str, Sequence[Sequence[float]]], losses: Mapping[str, Sequence[float]], guessing: float
) -> None:
    """Draw sizes along a chain, forward and backward, by name (left), and losses of training runs (right)."""
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2))
    for (name, (forward, backward)), colour, mark in zip(sizes.items(), (ORANGE, BLUE, VERMILION), "vo^", strict=True):
        left.semilogy(forward, f"{mark}-", ms=3.5, color=colour, label=name)
        left.semilogy(backward, "--", color=colour, lw=1.2)
    left.plot([], [], "-", color=GREY, label="$x$, forward")
    left.plot([], [], "--", color=GREY, label="gradient, backward")
    left.set(xlabel="linear maps below", ylabel="size (root mean square)", title="A chain of linear maps")
    left.set_ylim(1e-4, 1e6)
    left.legend(loc="upper center", ncols=2, fontsize=7.5)
    for (name, values), colour, line in zip(losses.items(), (ORANGE, BLUE, VERMILION), (":", "-", "--"), strict=True):
        right.plot(np.arange(1, len(values) + 1), values, line, color=colour, label=name)
    right.axhline(guessing, color=GREY, lw=0.8, ls=":")
    right.text(len(next(iter(losses.values()))), guessing + 0.06, "guessing", color=INK, fontsize=8, ha="right")
    right.set(xlabel="training step", ylabel="loss (nats a token)", title="A Transformer that reverses six tokens",
              ylim=(0, None))  # fmt: skip
    right.legend(loc="lower left")
    show(
        "Left, sizes along a chain of linear maps: with Xavier's bound they stay level forward and backward, with "
        "half of it they shrink, with twice it they grow, by a power of the depth. Right, only the Transformer that "
        "begins with Xavier's bound learns quickly."
    )
