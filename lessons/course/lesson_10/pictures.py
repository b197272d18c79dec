"""Lesson 10: a training run as it went, maps with words on both sides, bars of errors, and how sure the model is."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, SKY, VERMILION, show


def draw_map(axes: Any, weights: np.ndarray, sources: Sequence[str], targets: Sequence[str], size: float = 8) -> None:
    """Draw a map (Tq, Tk) of the weights of each target word (down) on each source word (across), 0 white, 1 dark."""
    axes.imshow(weights, vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(sources)), sources, rotation=90, fontsize=size, color=INK)
    axes.set_yticks(range(len(targets)), targets, fontsize=size, color=INK)
    axes.set_xticks(np.arange(len(sources) - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(targets) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color=PALE, lw=0.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set(visible=True, color=PALE)


def draw_training(
    steps: np.ndarray,
    losses: Mapping[str, np.ndarray],
    spreads: np.ndarray,
    maps: Mapping[int, np.ndarray],
    sources: Sequence[str],
    targets: Sequence[str],
) -> None:
    """Draw losses by name, the spread of each layer's heads (N, layers, H) at `steps` (N,), and below the maps."""
    figure = plt.figure(figsize=(7.2, 6.0))
    grid = figure.add_gridspec(3, len(maps), height_ratios=(2.0, 1.4, 1.7))
    upper, lower = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[1, :])
    looks = ((SKY, "-", 1.0), (GREY, "--", 1.6), (BLUE, "-", 2.0))
    for (name, values), (colour, line, width) in zip(losses.items(), looks, strict=True):
        at = np.linspace(1, steps[-1], len(values)) if len(values) != len(steps) else steps
        upper.plot(at, values, line, color=colour, lw=width, label=name, zorder=1 + width)
    upper.set(ylabel="loss (nats per token)", ylim=(0, None), xlim=(0, steps[-1]))
    upper.set_title("Where the losses part, the fog lifts")
    upper.legend(loc="upper right", bbox_to_anchor=(1, 1.05), ncols=3, frameon=True, framealpha=1, edgecolor="none")
    for layer, (colour, line) in enumerate(((ORANGE, "--"), (GREEN, "-"))):
        lower.plot(steps, spreads[:, layer], line, color=colour, lw=0.7, alpha=0.5)
        mean = spreads[:, layer].mean(axis=1)
        lower.plot(steps, mean, line, color=colour, lw=2, label=f"layer {layer + 1}, mean of its heads")
    lower.set(xlabel="optimiser step", ylabel="spread (tokens)", ylim=(0, None), xlim=(0, steps[-1]))
    lower.legend(loc="upper right")
    for column, (step, weights) in enumerate(maps.items()):
        axes = figure.add_subplot(grid[2, column])
        draw_map(axes, weights, sources, targets if column == 0 else [], 7)
        axes.set_title(f"step {step}", fontsize=8)
        if column == len(maps) // 2:
            axes.set_xlabel("maps of the last layer, mean of its heads: white 0 to dark 1", fontsize=8)
        for panel in (upper, lower):
            panel.axvline(step, color=INK, lw=0.7, ls=":")
    show(
        "A training run. At first the test losses with the right and with a wrong source fall together and the "
        "attention map is even fog; then they part, the heads' spread collapses, and the map becomes a line of dots "
        "with a gap where German moves the verb."
    )


def draw_errors(names: Sequence[str], rates: np.ndarray, overall: float, excess: np.ndarray, doubt: np.ndarray) -> None:
    """Draw two panels of bars, a row for each construction: error rate in percent, and excess ± doubt in points."""
    _, (left, right) = plt.subplots(1, 2, sharey=True, figsize=(7.2, 0.19 * len(names) + 0.8))
    rows = np.arange(len(names))
    left.barh(rows, 100 * rates, color=GREY)
    left.axvline(100 * overall, color=INK, lw=0.8)
    left.set(xlabel="sentences with it that are wrong (%)", title="the plain rate")
    colours = np.where(excess > 0, VERMILION, BLUE)
    right.barh(rows, 100 * excess, xerr=100 * doubt, color=colours, error_kw={"ecolor": INK, "lw": 0.7})
    right.axvline(0, color=INK, lw=0.8)
    right.set(xlabel="more than sentences as long (points)", title="not explained by the length")
    left.set_yticks(rows, names, fontsize=7.5)
    left.invert_yaxis()
    for axes in (left, right):
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
    show(
        "Bars for each construction: the error rate on the left, and on the right how much it exceeds that of "
        "sentences of the same length, with error bars. Relative clauses stay far above zero, dates do not."
    )


def draw_certainty(right: np.ndarray, wrong: np.ndarray) -> None:
    """Draw two histograms of the favourite's probability: where it is right, and at a sentence's first wrong token."""
    _, axes = plt.subplots(figsize=(7.2, 2.6))
    looks = ((right, GREY, "", "right"), (wrong, VERMILION, "///", "first wrong"))
    for values, colour, hatch, name in looks:
        weights = np.full(len(values), 100 / len(values))
        axes.hist(
            values, np.linspace(0, 1, 26).tolist(), weights=weights, color=colour, alpha=0.65, hatch=hatch, label=name
        )
    axes.set(xlabel="P of the model's favourite", ylabel="share of the tokens (%)", title="It hesitates before it errs")
    axes.legend(loc="upper left", title="the favourite is")
    show(
        "Two histograms of the probability of the model's favourite token. Where it is right, nearly all lie around "
        "0.9; at the first wrong token of a sentence they spread from 0.1 to 0.9."
    )
