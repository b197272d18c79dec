"""Lesson 21: what may be seen and what is asked, a training that cheats, fine-tuning, and gaps of several words."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, SKY, VERMILION


def draw_objectives(words: Sequence[str], hidden: Sequence[int]) -> None:
    """Three ways to ask: a row is a question, a column a token that may be seen; a red square gives the answer away.

    words: a sentence with the marks around it; hidden: the places that the third way masks.
    """
    count = len(words)
    inputs, answers = list(words[:-1]), list(words[1:])
    masked = ["[MASK]" if place in hidden else word for place, word in enumerate(words)]
    causal = np.tri(count - 1)
    cases = (
        ("the next token,\nseeing what came before", inputs, answers, causal, np.zeros_like(causal)),
        ("the next token,\nseeing everything", inputs, answers, np.ones_like(causal), np.eye(count - 1, k=1)),
        ("masked tokens,\nseeing everything", masked, [words[place] for place in hidden],
         np.ones((len(hidden), count)), np.zeros((len(hidden), count))),
    )  # fmt: skip
    figure, row = plt.subplots(1, 3, figsize=(7.4, 3.3))
    for axes, (title, tokens, asked, sees, leaks) in zip(row, cases, strict=True):
        for line, column in np.ndindex(sees.shape):
            shade = VERMILION if leaks[line, column] else SKY if sees[line, column] else "white"
            axes.add_patch(Rectangle((column - 0.46, line - 0.46), 0.92, 0.92, fc=shade, ec=PALE, lw=0.5))
        axes.set(xlim=(-0.6, count - 0.4), ylim=(count - 1.4, -0.6), title=title)
        axes.set_aspect("equal")
        axes.set_xticks(range(len(tokens)), tokens, rotation=90)
        axes.set_yticks(range(len(asked)), [f"{word}?" for word in asked])
        axes.tick_params(length=0, labelcolor=INK, labelsize=8)
        axes.spines[:].set_visible(False)
        for label, token in zip(axes.get_xticklabels(), tokens, strict=True):
            label.set_color(GREY if token == "[MASK]" else INK)
    figure.suptitle(
        "A row asks for a token, a column is a token of the input: blue may be seen, red is the answer itself",
        fontsize=9,
        color=INK,
    )


def draw_cheat(losses: Mapping[str, Sequence[float]], tests: Mapping[str, Mapping[str, float]], floor: float) -> None:
    """Training losses by name; and test losses, name → what is seen → loss, beside that of even guessing."""
    _, (left, right) = plt.subplots(1, 2, figsize=(7.4, 2.9), width_ratios=(1.25, 1))
    for (name, curve), colour in zip(losses.items(), (BLUE, VERMILION), strict=True):
        left.plot(curve, color=colour, lw=1, label=name)
    left.set(
        xlabel="step", ylabel="loss (nats per token)", title="The training: “everything” seems to win", ylim=(0, None)
    )
    left.legend(loc="upper right")
    names = list(tests)
    for number, (by_view, colour) in enumerate(zip(tests.values(), (BLUE, VERMILION), strict=True)):
        for place, (_, loss) in enumerate(by_view.items()):
            x = place + 0.36 * (number - 0.5)
            right.bar(x, loss, 0.32, color=colour)
            right.text(x, loss + 0.12, f"{loss:.2f}", ha="center", fontsize=8, color=INK)
    right.axhline(floor, color=GREY, lw=0.8, ls=":")
    right.text(-0.45, floor + 0.12, "even guessing", color=GREY, fontsize=8)
    views = list(tests[names[0]])
    right.set_xticks(range(len(views)), views)
    right.tick_params(axis="x", length=0, labelcolor=INK)
    right.set(
        title="The test: what it has learned", ylim=(0, 1.22 * max(floor, *(max(t.values()) for t in tests.values())))
    )


def draw_pretraining(losses: Sequence[float], tested: Mapping[int, float], frequencies: float) -> None:
    """The masked loss over the steps, and the loss of who only knows how frequent words are."""
    _, axes = plt.subplots(figsize=(7.2, 2.6))
    axes.plot(np.arange(1, len(losses) + 1), losses, color=SKY, lw=0.6, label="a training batch")
    axes.plot(list(tested), list(tested.values()), "o-", color=BLUE, ms=3, label="test sentences")
    axes.axhline(frequencies, color=GREY, lw=0.8, ls=":")
    axes.text(len(losses), frequencies + 0.08, "knows only how frequent words are", ha="right", color=GREY, fontsize=8)
    axes.set(xlabel="step", ylabel="loss at masked places", title="Pre-training: filling gaps", ylim=(0, None))
    axes.legend(loc="lower left")


def draw_fine_tuning(
    results: Mapping[str, Mapping[str, np.ndarray]], sizes: Sequence[int], guess: Mapping[str, float]
) -> None:
    """Question → start → accuracies (sizes, seeds); a line through the means, a dot for each seed."""
    _, row = plt.subplots(1, len(results), figsize=(7.4, 3.0), sharey=True)
    for axes, (question, starts) in zip(row, results.items(), strict=True):
        for (name, found), colour in zip(starts.items(), (GREEN, ORANGE), strict=True):
            axes.plot(range(len(sizes)), 100 * found.mean(axis=1), "-", color=colour, label=name)
            for place, seeds in enumerate(found):
                axes.plot([place] * len(seeds), 100 * seeds, "o", ms=3.5, color=colour)
        axes.axhline(100 * guess[question], color=GREY, lw=0.8, ls=":")
        axes.text(len(sizes) - 1, 100 * guess[question] - 1.2, "always the more frequent answer", ha="right", va="top",
                  color=GREY, fontsize=8)  # fmt: skip
        axes.set(title=question, xlabel="sentences with a label", ylim=(50, 101))
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.3))
    row[0].set_ylabel("right, % of test sentences")


def draw_spans(rows: Mapping[str, Sequence[tuple[str, int]]]) -> None:
    """Name of a row → its tokens, each with the number of the gap that it belongs to, −1 for none."""
    _, axes = plt.subplots(figsize=(7.4, 2.2))
    colours = (ORANGE, GREEN, VERMILION, SKY)
    for line, (name, tokens) in enumerate(rows.items()):
        x = 0.0
        axes.text(-0.4, line, name, ha="right", va="center", color=INK)
        for token, gap in tokens:
            width = 0.45 + 0.2 * len(token)
            mark = token.startswith("<")
            colour = "white" if gap < 0 else colours[gap % len(colours)]
            axes.add_patch(
                Rectangle((x, line - 0.3), width, 0.6, fc=colour, ec=GREY, lw=0.6, alpha=1 if mark or gap < 0 else 0.45)
            )
            axes.text(x + width / 2, line, token, ha="center", va="center", fontsize=7.5, color=INK)
            x += width + 0.12
    longest = max(sum(0.57 + 0.2 * len(token) for token, _ in tokens) for tokens in rows.values())
    axes.set(xlim=(-2.6, longest), ylim=(len(rows) - 0.5, -0.6))
    axes.axis("off")
