"""Lesson 19: the two blocks, a row of examples, a training, a piece with a cache, and what sampling does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, on

GONE = "#bbbbbb"


def two_blocks() -> None:
    """Draw the paper's decoder layer, dropped parts in grey (left), and GPT-2's block with its tables (right)."""
    _, axes = plt.subplots(figsize=(7.2, 5.6))
    axes.set(xlim=(0, 14.4), ylim=(-0.4, 10.8), aspect="equal")
    axes.set_axis_off()
    _paper(axes, 3.6)
    _gpt2(axes, 10.4)
    axes.set_title("A layer of the paper's decoder, and GPT-2")


def _paper(axes: Axes, lane: float) -> None:
    axes.plot([lane, lane], [0.6, 9.9], color=INK, lw=1.3, zorder=1)
    _box(axes, lane, 0.5, "E[ids] · √C + sinusoids", 3.4, GREEN)
    for bottom, name, gone in (
        (1.3, "self-attention", False),
        (4.1, "cross-attention", True),
        (6.9, "feed-forward", False),
    ):
        colour = GONE if gone else INK
        side = lane + 1.9
        axes.plot(
            [lane, side, side, lane], [bottom, bottom, bottom + 1.4, bottom + 1.4], color=colour, lw=1.1, zorder=1
        )
        _box(axes, side, bottom + 0.7, name, 2.2, GONE if gone else BLUE)
        _plus(axes, (lane, bottom + 1.4), colour)
        _box(axes, lane, bottom + 2.1, "norm", 1.0, GONE if gone else ORANGE)
    _box(axes, 1.0, 4.8, "encoder", 1.7, GONE)
    axes.annotate("", (lane + 0.75, 4.8), (1.9, 4.8), arrowprops={"arrowstyle": "-|>", "color": GONE, "lw": 1.1})
    axes.text(2.28, 5.0, "memory", fontsize=6.5, color=GREY, ha="center")
    axes.add_patch(Rectangle((lane - 0.9, 1.0), 4.1, 8.35, fill=False, ec=GREY, ls=":", lw=1))
    axes.text(lane - 1.05, 7.4, "a layer,\nN times", fontsize=8, color=GREY, ha="right", va="center")
    _box(axes, lane, 10.1, "logits: · Eᵀ", 2.2, GREEN)


def _gpt2(axes: Axes, lane: float) -> None:
    axes.plot([lane, lane], [0.6, 9.9], color=INK, lw=1.3, zorder=1)
    _box(axes, lane, 0.5, "E[ids] + P[0 … T−1]", 3.4, GREEN)
    for bottom, name in ((1.7, "self-attention"), (5.0, "feed-forward")):
        side = lane + 1.9
        axes.plot([lane, side, side, lane], [bottom, bottom, bottom + 2.4, bottom + 2.4], color=INK, lw=1.1, zorder=1)
        _box(axes, side, bottom + 0.7, "norm", 1.0, ORANGE)
        _box(axes, side, bottom + 1.7, name, 2.2, BLUE)
        _plus(axes, (lane, bottom + 2.4), INK)
    axes.add_patch(Rectangle((lane - 0.7, 1.4), 4.0, 6.4, fill=False, ec=GREY, ls=":", lw=1))
    axes.text(lane - 0.85, 4.6, "a block,\nL times", fontsize=8, color=GREY, ha="right", va="center")
    _box(axes, lane, 8.6, "norm", 1.0, ORANGE)
    axes.text(lane + 0.7, 8.6, "the last norm", fontsize=8, color=GREY, va="center")
    _box(axes, lane, 10.1, "logits: · Eᵀ", 2.2, GREEN)


def _box(axes: Axes, x: float, y: float, name: str, width: float, colour: str) -> None:
    gone = colour == GONE
    face = "white" if gone else colour
    box = FancyBboxPatch(
        (x - width / 2, y - 0.26), width, 0.52, boxstyle="round,pad=0.03", fc=face, ec=colour, zorder=3
    )
    axes.add_patch(box)
    axes.text(x, y, name, ha="center", va="center", fontsize=8, color=GREY if gone else on(face), zorder=4)


def _plus(axes: Axes, place: tuple[float, float], colour: str) -> None:
    axes.add_patch(Circle(place, 0.2, fc="white", ec=colour, lw=1.1, zorder=5))
    ink = GREY if colour == GONE else colour
    axes.text(*place, "+", ha="center", va="center", color=ink, fontsize=9, zorder=6)


def row_of_examples(tokens: Sequence[str], targets: Sequence[str]) -> None:
    """Draw an example on each line: the tokens read so far, and the one to be predicted."""
    count = len(tokens)
    _, axes = plt.subplots(figsize=(7.2, 0.27 * count + 0.5))
    axes.set(xlim=(-0.1, count + 1.1), ylim=(count, -0.9))
    axes.set_axis_off()
    for line in range(count):
        for place in range(line + 2):
            guess = place > line
            word = (targets[line] if guess else tokens[place]).replace("▁", "")
            colour, weight = (VERMILION, "bold") if guess else (PALE, "normal")
            axes.add_patch(Rectangle((place, line), 0.96, 0.86, fc=colour, ec="none"))
            axes.text(place + 0.48, line + 0.45, word, ha="center", va="center", fontsize=7, weight=weight,
                      color=on(colour))  # fmt: skip
    axes.text(0, -0.3, "pale: what has been read; red, bold: what has to be guessed", fontsize=8, color=GREY)


def activations(x: np.ndarray, gelu_forward: Callable[[np.ndarray], Any]) -> None:
    """Draw ReLU and GELU, and their slopes."""
    y, slope = gelu_forward(x)
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.3))
    for axes, curves, title in ((left, (np.maximum(x, 0), y), "$y$"), (right, ((x > 0) * 1.0, slope), "its slope")):
        axes.plot(x, curves[0], "--", color=GREY, label="ReLU")
        axes.plot(x, curves[1], color=BLUE, label="GELU")
        axes.set(xlabel="$x$", title=title)
    left.legend(loc="upper left")


def training(losses: Sequence[float], references: Mapping[str, float]) -> None:
    """Draw the loss of each step, its mean over 20 steps, and lines to compare with."""
    steps = np.arange(1, len(losses) + 1)
    _, axes = plt.subplots(figsize=(7.2, 3.2))
    axes.plot(steps, losses, color=PALE, lw=1)
    axes.plot(steps[19:], np.convolve(losses, np.ones(20) / 20, "valid"), color=BLUE, lw=2)
    for name, value in references.items():
        axes.axhline(value, color=GREY, ls=":", lw=1)
        axes.text(len(losses), value + 0.05, f"{name} ({value:.2f})", color=GREY, ha="right", va="bottom", fontsize=8)
    axes.set(xlabel="step", ylabel="loss (nats per token)", ylim=(min(losses) - 0.3, max(losses) + 0.4))


def piece(cached: int, new: int) -> None:
    """Draw the keys that the new positions of a piece see, as the last rows of the whole triangle."""
    total = cached + new
    _, axes = plt.subplots(figsize=(5.2, 3.0))
    for query in range(total):
        for key in range(total):
            seen, is_new = key <= query, query >= cached
            colour = (BLUE if key < cached else SKY) if seen and is_new else PALE if seen else "white"
            axes.add_patch(Rectangle((key, query), 0.94, 0.94, fc=colour, ec=PALE, lw=0.5))
    axes.set(xlim=(-0.1, total + 0.1), ylim=(total + 0.1, -0.1), aspect="equal")
    axes.set_xticks(np.arange(total) + 0.5, [str(place) for place in range(total)])
    axes.set_yticks(np.arange(total) + 0.5, [str(place) for place in range(total)])
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="key", ylabel="query")
    names = ((BLUE, "a new position sees the cache"), (SKY, "and the new ones up to itself"), (PALE, "done before"))
    for place, (colour, name) in enumerate(names):
        axes.add_patch(Rectangle((total + 0.6, 1 + 1.2 * place), 0.8, 0.8, fc=colour, clip_on=False))
        axes.text(total + 1.7, 1.4 + 1.2 * place, name, va="center", fontsize=8, color=INK)


def cost_of_a_token(lengths: Sequence[int], times: Mapping[str, Sequence[float]]) -> None:
    """Draw milliseconds of one more token after texts of some lengths."""
    _, axes = plt.subplots(figsize=(7.2, 2.8))
    for (name, each), colour, style in zip(times.items(), (VERMILION, GREEN), ("o-", "s--"), strict=True):
        axes.plot(lengths, each, style, ms=4, color=colour, label=name)
    axes.set(xlabel="tokens so far", ylabel="ms for the next token", xscale="log", yscale="log")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.minorticks_off()
    axes.legend(loc="upper left")


def temperatures(logits: Mapping[str, np.ndarray], taus: Sequence[float], k: int, p: float) -> None:
    """Draw the best tokens' probabilities, a row a context, a column a temperature, with the nucleus dark."""
    shown = 40
    _, grid = plt.subplots(len(logits), len(taus), figsize=(7.2, 1.55 * len(logits) + 0.4), sharey="row", squeeze=False)
    for line, (text, z) in zip(grid, logits.items(), strict=True):
        for axes, tau in zip(line, taus, strict=True):
            probabilities = np.exp((z - z.max()) / tau)
            probabilities = np.sort(probabilities / probabilities.sum())[::-1]
            kept = np.cumsum(probabilities) - probabilities < p
            count = int(kept.sum())
            colours = [BLUE if inside else SKY for inside in kept[:shown]]
            axes.bar(np.arange(shown), probabilities[:shown], width=1.0, color=colours)
            axes.axvline(k - 0.5, color=VERMILION, lw=1, ls="--")
            axes.text(0.97, 0.9, f"nucleus: {count}", transform=axes.transAxes, ha="right", va="top", fontsize=8)
            axes.set_xticks([])
            axes.tick_params(labelsize=7)
        line[0].set_ylabel(f"{text} …", fontsize=8)
    for axes, tau in zip(grid[0], taus, strict=True):
        axes.set_title(f"τ = {tau:g}")
    grid[-1][1].set_xlabel(
        f"tokens in their order; dark: the nucleus of {p:g}; left of the red line: the best {k}", fontsize=8
    )


def grammatical(
    taus: Sequence[float],
    found: Sequence[tuple[float, int]],
    cuts: Mapping[str, tuple[float, int]],
    count: int,
) -> None:
    """Draw the share of grammatical texts against temperature (left), and against the variety of words (right)."""
    shares, words = np.array(found).T
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), sharey=True)
    off = np.sqrt(shares * (1 - shares) / count)
    left.errorbar(taus, 100 * shares, 100 * off, fmt="o-", ms=4, color=BLUE, capsize=2)
    left.set(xlabel="temperature τ", ylabel="grammatical, % of the texts", ylim=(0, 102))
    right.plot(words, 100 * shares, "o-", ms=4, color=BLUE, label="temperature")
    for tau, share, each in zip(taus, shares, words, strict=True):
        right.annotate(f"{tau:g}", (each, 100 * share), (9, 3), textcoords="offset points", fontsize=7, color=BLUE,
                       ha="center")  # fmt: skip
    looks = zip(cuts.items(), ("s", "D", "^"), (ORANGE, VERMILION, PURPLE), strict=True)
    for (name, (share, each)), marker, colour in looks:
        right.plot(each, 100 * share, marker, color=colour, label=name)
    right.set(xlabel="different words among the first 1,000")
    right.legend(loc="lower left", fontsize=8)


def long_texts(lengths: Sequence[int], kinds: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw milliseconds and bytes of one more token, after texts of up to thousands of tokens."""
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.9))
    for (name, kind), colour, style in zip(kinds.items(), (VERMILION, GREEN), ("o-", "s--"), strict=True):
        left.plot(lengths, 1e3 * np.array(kind["best"]), style, ms=4, color=colour, label=name)
        right.plot(lengths, np.array(kind["kept"]) / 2**20, style, ms=4, color=colour)
        right.axhline(4 * kind["parameters"] / 2**20, color=colour, ls=":", lw=1)
    left.set(xscale="log", yscale="log", xlabel="tokens so far", ylabel="ms for the next token")
    right.set(xscale="log", yscale="log", xlabel="tokens so far", ylabel="MiB; dotted: the weights", title="the cache")
    left.set_title("time")
    left.legend(loc="upper left", fontsize=8)
    left.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
    right.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    for axes in (left, right):
        axes.set_xticks(lengths[::3], [f"{length:,}" for length in lengths[::3]])
        axes.minorticks_off()
