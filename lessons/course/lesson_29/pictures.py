"""Lesson 29: the step in the loss, heads that form, what they look at, where a patch acts, and circuits of tokens."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SIGNED, VERMILION, on, show

Floats = NDArray[np.floating]
WIDTH = 6.4
"""In inches."""


def draw_losses(steps: Sequence[int], curves: Mapping[str, Sequence[float]], even: float) -> None:
    """Draw losses by step, and that of an even guess."""
    _, axes = plt.subplots(figsize=(WIDTH, 3.2))
    axes.axhline(even, color=GREY, lw=1, ls=":")
    axes.text(steps[0], even - 0.04, "an even guess", color=INK, fontsize=8, va="top")
    for (name, values), colour, line in zip(curves.items(), (VERMILION, BLUE, GREEN), ("-", "-", "--"), strict=True):
        axes.plot(steps, values, line, color=colour, label=name)
    axes.set(xlabel="step", ylabel="loss of a token", title="A steep fall", ylim=(0, None))
    axes.legend(fontsize=8, loc="lower left")
    show(
        "The loss by step. New tokens stay a little above an even guess. For tokens of a stretch that comes again the "
        "loss of the model with one layer sinks slowly to a plateau; with two layers it sinks more slowly at first, "
        "and then falls."
    )


def draw_scores(steps: Sequence[int], scores: Mapping[str, Sequence[float]], known: Sequence[float]) -> None:
    """Draw the loss of tokens that can be known (above), and scores of heads (below)."""
    _, (above, below) = plt.subplots(2, 1, figsize=(WIDTH, 4.2), sharex=True)
    above.plot(steps, known, color=VERMILION)
    above.set(ylabel="loss", title="The loss of tokens that can be known …", ylim=(0, None))
    for (name, values), colour, line in zip(
        scores.items(), (BLUE, BLUE, PURPLE, PURPLE), ("-", "--", "-", "--"), strict=True
    ):
        below.plot(steps, values, line, color=colour, label=name)
    below.set(xlabel="step", ylabel="mean attention", title="… and what the heads look at", ylim=(0, 1))
    below.legend(fontsize=8, loc="upper left")
    show(
        "Above, the loss by step, which falls in the middle. Below, four curves of attention: the first layer's "
        "heads look more and more at the token before, and at the same steps the second layer's heads begin to look at "
        "the token after the last same one."
    )


def draw_maps(maps: Mapping[str, Floats], start: int) -> None:
    """Draw maps of attention `(T, T)`; the row's tokens come again from `start` on."""
    _, panels = plt.subplots(1, len(maps), figsize=(WIDTH, 3.5), sharey=True)
    for axes, (name, weights) in zip(panels, maps.items(), strict=True):
        axes.imshow(weights, vmin=0, vmax=1)
        axes.axhline(start - 0.5, color=ORANGE, lw=1)
        axes.axvline(start - 0.5, color=ORANGE, lw=1)
        axes.set(title=name, xlabel="key")
        axes.tick_params(length=0, labelsize=8)
        axes.spines[:].set(visible=True, lw=0.5, color=PALE)
    panels[0].set_ylabel("query")
    show(
        "Two maps of attention of a row whose second half is its first half again. In the first layer's head the "
        "weight lies just below the diagonal: each token looks at the one before. In the second layer's head the "
        "second half has a diagonal of its own in the first half: each token looks at the token after the last same "
        "one."
    )


def draw_terms(terms: Mapping[str, float], total: float) -> None:
    """Draw what each part adds to a logit, as bars."""
    _, axes = plt.subplots(figsize=(WIDTH, 0.5 + 0.34 * len(terms)))
    places, values = range(len(terms)), list(terms.values())
    axes.barh(places, values, color=[GREEN if value >= 0 else PURPLE for value in values], height=0.7)
    for place, value in zip(places, values, strict=True):
        axes.text(max(value, 0) + 0.05, place, f"{value:+.2f}", va="center", fontsize=8, color=INK)
    axes.set_yticks(places, list(terms), fontsize=9, color=INK)
    axes.invert_yaxis()
    axes.set(title=f"What adds up to the lead of the right token, {total:.2f}", xlim=(min(0, *values) - 0.3, None))
    show(
        "A bar for each part of the model: what it adds to the right token's logit, above the mean of all tokens. "
        "Nearly all of it comes from one head of the second layer."
    )


def draw_patches(tables: Mapping[str, Floats], places: Sequence[str]) -> None:
    """Draw shares of patches, `(depths, T)` by title; places: what stands at each position."""
    _, panels = plt.subplots(len(tables), 1, figsize=(WIDTH + 0.6, 1.75 * len(tables) + 0.3), sharex=True)
    for axes, (title, shares) in zip(panels, tables.items(), strict=True):
        image = axes.imshow(np.clip(shares, -1, 1), cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
        for depth, place in np.argwhere(np.abs(shares) >= 0.1):
            value = shares[depth, place]
            colour = on(tuple(image.to_rgba(np.clip(value, -1, 1))))
            axes.text(place, depth, f"{value:.1f}", ha="center", va="center", fontsize=7, color=colour)
        axes.set_yticks(range(len(shares)), ["embedding", *(f"layer {n}" for n in range(1, len(shares)))], color=INK)
        axes.set_xticks(range(len(places)), places, fontsize=8, color=INK)
        axes.tick_params(length=0)
        axes.set_title(f"{title} (green: towards the other row, purple: away from it)", fontsize=9)
    panels[-1].set_xlabel("position, with its token in the other row")
    show(
        "Two tables of three depths by 21 positions. Above, what a patch does: after the embedding all lies at the "
        "token that differs, after layer 1 at the token after it, after layer 2 at the last: a green cell in each row. "
        "Below, the gradient's estimate of the same, which is far too small in most of these cells."
    )


def draw_circuits(matrices: Mapping[str, Floats], axes_of: Mapping[str, tuple[str, str]]) -> None:
    """Draw matrices of tokens by tokens, each divided by its largest number."""
    _, panels = plt.subplots(1, len(matrices), figsize=(WIDTH, 3.7))
    for axes, (name, matrix) in zip(panels, matrices.items(), strict=True):
        _draw_signed(axes, matrix)
        down, across = axes_of[name]
        axes.set_title(name, fontsize=9)
        axes.set(ylabel=down, xlabel=across)
    show(
        "Two matrices of 32 by 32 tokens, green where a number is above 0 and purple below. Both have a dark green "
        "diagonal: a token looks for places after the same token, and a token that is looked at raises its own logit."
    )


def _draw_signed(axes: Axes, matrix: Floats) -> None:
    most = np.abs(matrix).max()
    axes.imshow(matrix, cmap=SIGNED, vmin=-most, vmax=most)
    axes.tick_params(length=0, labelsize=8)
