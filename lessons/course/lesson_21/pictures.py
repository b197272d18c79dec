"""Lesson 21: what may be seen and what is asked, a training that cheats, fine-tuning, and gaps of several words."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, SKY, VERMILION


def draw_objectives(words: Sequence[str], hidden: Sequence[int]) -> None:
    """Draw three objectives: a row is a prediction, a column a visible token; red squares show the answer.

    words: a sentence with the marks around it; hidden: the places that the third way masks.
    """
    count = len(words)
    masked = ["[MASK]" if place in hidden else word for place, word in enumerate(words)]
    causal, everything = np.tri(count - 1), np.ones((count - 1, count - 1))
    gaps = np.isin(np.arange(count), hidden)[:, None] * np.ones(count)
    cases = (
        ("the next token,\nseeing what came before", words[:-1], words[1:], causal, False),
        ("the next token,\nseeing everything", words[:-1], words[1:], everything, True),
        ("masked tokens,\nseeing everything", masked, words, gaps, False),
    )
    figure, row = plt.subplots(1, 3, figsize=(7.4, 3.1))
    for axes, (title, tokens, answers, sees, leaks) in zip(row, cases, strict=True):
        for line, column in np.ndindex(sees.shape):
            shade = VERMILION if leaks and column == line + 1 else SKY if sees[line, column] else "white"
            axes.add_patch(Rectangle((column - 0.46, line - 0.46), 0.92, 0.92, fc=shade, ec=PALE, lw=0.5))
        axes.set(xlim=(-0.6, count - 0.4), ylim=(count - 0.4, -0.6), title=title)
        axes.set_aspect("equal")
        asked = [line for line in range(len(answers)) if sees[line].any()]
        axes.set_xticks(range(len(tokens)), tokens, rotation=90)
        axes.set_yticks(asked, [f"{answers[line]}?" for line in asked])
        axes.tick_params(length=0, labelcolor=INK, labelsize=8)
        axes.spines[:].set_visible(False)
        for label, token in zip(axes.get_xticklabels(), tokens, strict=True):
            label.set_color(VERMILION if token == "[MASK]" else INK)
    figure.suptitle(
        "A row asks for a token, a column is a token of the input: blue may be seen, red is the answer itself",
        fontsize=9,
        color=INK,
    )


def draw_cheat(losses: Mapping[str, Sequence[float]], tests: Mapping[str, Mapping[str, float]], floor: float) -> None:
    """Draw training losses by name, and test losses (name → visible tokens → loss), with that of an even guess."""
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
    right.text(0.5, floor + 0.12, "even guessing", ha="center", color=GREY, fontsize=8)
    views = list(tests[names[0]])
    right.set_xticks(range(len(views)), views)
    right.tick_params(axis="x", length=0, labelcolor=INK)
    right.set(
        title="The test: what it has learned", ylim=(0, 1.22 * max(floor, *(max(t.values()) for t in tests.values())))
    )


def draw_pretraining(losses: Sequence[float], tested: Mapping[int, float], frequencies: float) -> None:
    """Draw the masked loss over the steps, and the loss of a guess by the words' frequencies."""
    _, axes = plt.subplots(figsize=(7.2, 2.6))
    axes.plot(np.arange(1, len(losses) + 1), losses, color=SKY, lw=0.6, label="a training batch")
    axes.plot(list(tested), list(tested.values()), "o-", color=BLUE, ms=3, label="test sentences")
    axes.axhline(frequencies, color=GREY, lw=0.8, ls=":")
    axes.text(len(losses), frequencies + 0.08, "a guess by how frequent words are", ha="right", color=GREY, fontsize=8)
    axes.set(xlabel="step", ylabel="loss at masked places", title="Pre-training: filling gaps", ylim=(0, None))
    axes.legend(loc="lower left")


def draw_fine_tuning(
    results: Mapping[str, Mapping[str, np.ndarray]], sizes: Sequence[int], guess: Mapping[str, float]
) -> None:
    """Draw accuracies (sizes, seeds) by question and start: a line through the means, a dot for each seed."""
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
    row[0].legend(loc="lower right", bbox_to_anchor=(1, 0.25))
    row[0].set_ylabel("right, % of test sentences")


def draw_spans(source: Sequence[str], target: Sequence[str]) -> None:
    """Draw a text, the input of an encoder, and the output of a decoder; "<0>" marks the first gap.

    source and target end with a mark. A row that is too wide goes on below.
    """
    widest = 17.0
    gap, cut = -1, list[tuple[str, int]]()  # the target's tokens, each with the number of its gap
    for token in target[:-1]:
        gap += token.startswith("<")
        cut.append((token, gap))
    kept = [(token, int(token[1:-1]) if token.startswith("<") else -1) for token in source]
    text = list[tuple[str, int]]()  # the source with what was cut out in the place of each mark
    for token, gap in kept[:-1]:
        text += [(token, gap)] if gap < 0 else [each for each in cut if each[1] == gap and each[0] != token]
    rows = {"text": text, "source": kept, "target": [*cut, (target[-1], -1)]}
    _, axes = plt.subplots(figsize=(7.4, 2.7))
    colours, line = (ORANGE, SKY, VERMILION, GREEN), 0.0
    for name, tokens in rows.items():
        x = 0.0
        axes.text(-0.4, line, name, ha="right", va="center", color=INK)
        for token, gap in tokens:
            width = 0.3 + 0.17 * max(len(token), 2)
            if x + width > widest:
                x, line = 0.0, line + 0.75
            strong = gap < 0 or token.startswith("<")
            colour = "white" if gap < 0 else colours[gap % len(colours)]
            axes.add_patch(
                Rectangle((x, line - 0.3), width, 0.6, fc=colour, ec=GREY, lw=0.6, alpha=1 if strong else 0.45)
            )
            axes.text(x + width / 2, line, token, ha="center", va="center", fontsize=8, color=INK)
            x += width + 0.1
        line += 1.15
    axes.set(xlim=(-1.9, widest), ylim=(line - 0.7, -0.5))
    axes.axis("off")
