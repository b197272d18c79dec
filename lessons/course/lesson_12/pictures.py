"""Lesson 12: the maps of every head, and bars for each."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from ..style import GREEN, GREY, INK, ORANGE, PALE, PURPLE, dark, on, show

KINDS = {"encoder": PURPLE, "decoder": ORANGE, "cross": GREEN}  # blue is for weights
NAMES = {"encoder": "encoder,\nself", "decoder": "decoder,\nself", "cross": "decoder,\nto the source"}


def draw_every_head(found: Any) -> None:
    """Draw a row of maps for each kind and layer of `found`, an attention of a `Translator`, with its tokens."""
    maps = {kind: getattr(found, kind) for kind in KINDS}  # (layers, H, Tq, Tk) each
    queries = {"encoder": found.source_tokens, "decoder": found.target_tokens, "cross": found.target_tokens}
    keys = {"encoder": found.source_tokens, "decoder": found.target_inputs, "cross": found.source_tokens}
    rows = [(kind, layer) for kind in KINDS for layer in range(len(maps[kind]))]
    heads = maps["encoder"].shape[1]
    figure, grid = plt.subplots(len(rows), heads, figsize=(7.4, len(rows) * 6.9 / heads + 0.5), squeeze=False)
    for line, (kind, layer) in zip(grid, rows, strict=True):
        for head, axes in enumerate(line):
            axes.imshow(maps[kind][layer, head], vmin=0, vmax=1, aspect="auto")
            axes.set_title(f"{layer + 1}.{head + 1}", fontsize=7, color=dark(KINDS[kind]), pad=2)
            axes.tick_params(length=0, pad=1)
            axes.spines[:].set(visible=True, lw=0.5, color=PALE)
            below = keys[kind] if layer == len(maps[kind]) - 1 else []
            axes.set_xticks(range(len(below)), below, rotation=90, fontsize=6, color=INK)
            shown = queries[kind] if head == 0 else []
            axes.set_yticks(range(len(shown)), shown, fontsize=6, color=INK)
        line[0].set_ylabel(NAMES[kind] + f"\nlayer {layer + 1}", fontsize=7, color=dark(KINDS[kind]))
    figure.suptitle("Every head: a row is a query, a column a key (white 0, dark blue 1)", fontsize=9, color=INK)
    show(
        "A map of attention for each head. In the decoder's last layer nearly every head that looks at the source "
        "follows its words one by one along the diagonal; heads of the encoder's first layer spread over many words."
    )


def draw_offsets(scores: Mapping[str, np.ndarray], offsets: Sequence[int]) -> None:
    """Draw mean weights (layers, H, offsets) by kind, a table for each layer: heads down, offsets across."""
    layers = max(len(each) for each in scores.values())
    figure, grid = plt.subplots(layers, len(scores), figsize=(7.2, 1.7 * layers + 0.3), squeeze=False, sharex=True)
    scale = ScalarMappable(Normalize(0, 0.6))
    for column, (kind, each) in zip(grid.T, scores.items(), strict=True):
        for layer, axes in enumerate(column):
            axes.imshow(each[layer], norm=scale.norm, aspect="auto")
            for head, offset in np.ndindex(each[layer].shape):
                value = each[layer, head, offset]
                if value >= 0.2:
                    colour = on(tuple(scale.to_rgba(value)))
                    axes.text(offset, head, f"{value:.2f}"[1:], ha="center", va="center", fontsize=7, color=colour)
            axes.set_yticks(range(each.shape[1]), [f"{layer + 1}.{head + 1}" for head in range(each.shape[1])])
            axes.set_xticks(range(len(offsets)), [f"{offset:+d}" if offset else "0" for offset in offsets])
            axes.tick_params(length=0, labelsize=7)
        column[0].set_title(NAMES[kind].replace("\n", " "), fontsize=9, color=dark(KINDS[kind]))
        column[-1].set_xlabel("key − query (tokens)")
    figure.suptitle("How much each head looks at each distance (0.20 and more is written out)", fontsize=10, color=INK)
    grid[0, 0].set_ylabel("head")
    figure.colorbar(scale, ax=grid, label="mean weight", fraction=0.025)
    show(
        "Two tables, for the encoder and the decoder: each head's mean weight at each distance. In the encoder a few "
        "heads look one token back or ahead; the decoder's heads look most at the token itself and at the one before "
        "it."
    )


def draw_bars(costs: Mapping[str, np.ndarray], whole: float) -> None:
    """Draw the rise of the loss (layers, H) by kind as bars, a group for each layer; `whole` is the loss itself."""
    _, axes = plt.subplots(figsize=(7.2, 3.2))
    hatches = dict(zip(costs, ("", "///", "..."), strict=True))
    x, ticks, names = 0, [], []
    for kind, each in costs.items():
        for layer, row in enumerate(each):
            places = x + np.arange(len(row))
            label = NAMES[kind].replace("\n", " ") if layer == 0 else None
            axes.bar(places, row, color=KINDS[kind], hatch=hatches[kind], edgecolor="white", label=label)
            for place, head in zip(places, range(len(row)), strict=True):
                ticks.append(place)
                names.append(f"{layer + 1}.{head + 1}")
            x += len(row) + 0.8
        x += 0.8
    axes.set_xticks(ticks, names, fontsize=6, rotation=90)
    axes.tick_params(axis="x", length=0)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.set(xlabel="head removed (layer.head)", ylabel="rise of the loss (nats per token)")
    axes.set_title(f"The worth of each head (with all of them the loss is {whole:.3f})")
    axes.legend(loc="upper left")
    show(
        "A bar for each head: how much the loss rises without it. The six heads of the decoder's last layer that look "
        "at the source are worth most; most of the others cost little."
    )


def draw_pruning(counts: Sequence[int], curves: Mapping[str, np.ndarray], heads: int) -> None:
    """Draw, by name, the loss against the number of removed heads, on a logarithmic scale."""
    _, axes = plt.subplots(figsize=(7.2, 2.8))
    looks = ((GREY, "s-"), (INK, "o-"), (INK, "--"))  # the colours are those of the kinds
    for (name, curve), (colour, line) in zip(curves.items(), looks, strict=True):
        axes.semilogy(counts, curve, line, ms=3, color=colour, label=name)
    axes.set(xlabel=f"heads removed, of {heads}", ylabel="loss (nats per token)")
    axes.set_yticks([0.1, 0.2, 0.5, 1, 2, 5], ["0.1", "0.2", "0.5", "1", "2", "5"])
    axes.minorticks_off()
    axes.grid(axis="y")
    axes.legend(loc="upper left")
    axes.set_title("Together, heads are worth more than the sum of each alone")
    show(
        "The loss against the number of removed heads. It rises slowly where the cheapest go first, faster in a random "
        "order; from about a dozen heads on both rise far above the sum of the single costs."
    )
