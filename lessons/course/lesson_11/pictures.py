"""Lesson 11: beam searches, as they went and how good they are; a key/value cache, and the time it saves."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

from ..style import BLUE, GREEN, GREY, INK, PALE, PURPLE, VERMILION, show

Ids = tuple[int, ...]


def optima(widths: Sequence[int], shares: Sequence[float]) -> None:
    """Draw the share of searches that found the best sentence, for each number of places."""
    _, axes = plt.subplots(figsize=(7.2, 2.6))
    axes.plot(widths, [100 * share for share in shares], "o-", color=BLUE)
    axes.set(xlabel="places in the beam", ylabel="found the optimum (%)", ylim=(0, 105), xticks=widths)
    axes.grid(axis="y")
    show(
        "The share of random models for which a beam finds the best of all sentences, against its places. It rises "
        "steeply with the second place, and is near 100 percent from four places on."
    )


def beams(
    log_probs: Mapping[Ids, float],
    sentences: Mapping[str, Ids],
    label: Callable[[Ids], str],
    steps: range,
    title: str,
) -> None:
    """Draw the prefixes of each step, the most probable on top, each with its log P and a line to its parent.

    log_probs: log P of every prefix to be drawn; sentences: name → a whole sentence, greedy's first, drawn in colour
    where their prefixes differ, in black where they are the same; label: a token's text; steps: the lengths to draw.
    """
    _, axes = plt.subplots(figsize=(7.2, 3.4))
    looks = ((PURPLE, "--"), (BLUE, "-"))
    paths = {name: (ids, *look) for (name, ids), look in zip(sentences.items(), looks, strict=True)}
    places: dict[Ids, tuple[int, int]] = {}
    for length in steps:
        alive = sorted((ids for ids in log_probs if len(ids) == length), key=lambda ids: -log_probs[ids])
        places |= {ids: (length, rank) for rank, ids in enumerate(alive)}
    colours, lines = {}, {}
    for ids in places:
        on = [look for sentence, *look in paths.values() if sentence[: len(ids)] == ids]
        colours[ids], lines[ids] = (GREY, "-") if not on else on[0] if len(on) < len(paths) else (INK, "-")
    for ids, (x, y) in places.items():
        plain = colours[ids] == GREY
        if ids[:-1] in places:
            old_x, old_y = places[ids[:-1]]
            style = {"color": PALE if plain else colours[ids], "lw": 1.2 if plain else 2.2, "zorder": 1 + (not plain)}
            axes.plot([old_x, x], [old_y, y], lines[ids], **style)
        text = "… " * (x == steps[0] > 1) + label(ids[-1:])
        box = {"boxstyle": "round,pad=0.25", "fc": "white", "ec": colours[ids], "lw": 0.6 if plain else 1.4}
        axes.text(x, y, text, color=colours[ids], fontsize=8.5, ha="center", va="center", bbox=box, zorder=3)
        number = f"{log_probs[ids]:.2f}"
        axes.text(x, y + 0.3, number, color=colours[ids], fontsize=7, ha="center", va="center", zorder=3)
    for name, (_, colour, line) in paths.items():
        axes.plot([], [], line, color=colour, lw=2.2, label=name)
    rows = 1 + max(y for _, y in places.values())
    axes.set(xlim=(steps[0] - 0.6, steps[-1] + 0.6), ylim=(rows - 0.45, -0.6), xticks=list(steps))
    axes.set_yticks(range(rows), [f"{rank + 1}." for rank in range(rows)])
    axes.set(xlabel="tokens written", ylabel="rank by log P")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=len(paths))
    axes.set_title(f"“{title}”")
    show(
        "A tree of prefixes, ranked by log P at each step. The prefixes of the greedy sentence are in front at first; "
        "one step after the two part, those of the beam's sentence overtake them and stay ahead."
    )


def cache(written: Sequence[str], source: Sequence[str]) -> None:
    """Draw the positions that each step of decoding computes and keeps, without a cache (above) and with one.

    written: the target's tokens, the begin token first; source: the source's. A row is a step, a column a position.
    """
    steps = len(written) - 1
    parts = (
        ("query, feed-forward\nand all else", written[:-1]),
        ("keys and values\nof self-attention", written[:-1]),
        ("keys and values\nof the source", source),
    )
    widths = [len(tokens) for _, tokens in parts]
    figure, grid = plt.subplots(2, 3, figsize=(7.2, 5.2), width_ratios=widths)
    for row, (cached, name) in zip(grid, ((False, "without a cache"), (True, "with a cache")), strict=True):
        for column, (axes, (title, tokens)) in enumerate(zip(row, parts, strict=True)):
            for step in range(steps):
                for place in range(len(tokens) if column == 2 else step + 1):
                    computed = not cached or (step == 0 if column == 2 else place == step)
                    kept = not computed and column > 0
                    face = VERMILION if computed else GREEN if kept else "white"
                    edge = "white" if computed or kept else PALE
                    axes.add_patch(Rectangle((place - 0.45, step - 0.45), 0.9, 0.9, fc=face, ec=edge))
                    if computed:
                        axes.plot(place, step, "x", ms=4, color="white")
            axes.set(xlim=(-0.6, len(tokens) - 0.4), ylim=(steps - 0.4, -0.6), aspect="equal")
            axes.set_xticks(range(len(tokens)), tokens, rotation=90, color=INK)
            axes.set_yticks(range(steps), written[1:] if column == 0 else [], color=INK)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            if not cached:
                axes.set_title(title)
        row[0].set_ylabel(name, fontsize=10, color=INK)
    labels = {
        VERMILION: "computed in this step",
        GREEN: "kept from an earlier step",
        "white": "no longer needed",
    }
    handles = [Patch(fc=colour, ec=PALE, label=label) for colour, label in labels.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    show(
        "Every step of writing a short sentence, without and with a cache. Without, each step computes all positions "
        "again; with a cache each step computes one position, and keeps the keys and values of all earlier ones and of "
        "the source."
    )


def times(lengths: Sequence[int], without: Sequence[float], with_cache: Sequence[float]) -> None:
    """Draw the milliseconds that sentences of these lengths take."""
    _, axes = plt.subplots(figsize=(7.2, 3.0))
    axes.plot(lengths, without, "s-", color=VERMILION, label="everything again at each step")
    axes.plot(lengths, with_cache, "o-", color=GREEN, label="with the cache")
    axes.set(xlabel="tokens written", ylabel="milliseconds", ylim=(0, None), xticks=lengths)
    axes.set_title("One sentence, written token by token")
    axes.legend(loc="upper left")
    show(
        "The time to write a sentence against its length. Without a cache the curve bends upwards; with it, it is "
        "nearly a straight line and stays far below."
    )
