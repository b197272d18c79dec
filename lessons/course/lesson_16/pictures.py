"""Pictures of lesson 16: the strip of frames, the four steps, causal tiles, memory and bytes.

In all of them light blue has been seen, blue is in work, orange is what comes out, and purple is the maximum.
"""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, dark, show


def draw_strip(scores: np.ndarray, frames: Sequence[tuple[float, float, np.ndarray]], block: int) -> None:
    """Draw one query's way over blocks of keys: its `scores (T,)`, and after each block m, l and acc `(D,)`."""
    figure, panels = plt.subplots(3, len(frames), figsize=(7.2, 4.8), sharex="row", sharey="row")
    final = frames[-1][2] / frames[-1][1]
    places, channels = np.arange(len(scores)), np.arange(len(final))
    before = None
    for n, (m, l, acc) in enumerate(frames):
        top, middle, bottom = panels[:, n]
        stop = (n + 1) * block
        current = slice(n * block, stop)
        top.bar(places, scores, color=PALE, width=0.8)
        top.bar(places[: current.start], scores[: current.start], color=SKY, width=0.8)
        top.bar(places[current], scores[current], color=BLUE, width=0.8)
        top.axhline(m, color=PURPLE, lw=1.2)
        top.set_title(f"block {n}\nm = {m:.1f}", fontsize=9)
        weights = np.exp(scores[:stop] - m)
        middle.bar(places[: current.start], weights[: current.start], color=SKY, width=0.8)
        middle.bar(places[current], weights[current], color=BLUE, width=0.8)
        shrink = "" if before is None or before == m else f"\nold ones × {np.exp(before - m):.2f}"
        middle.set_title(f"ℓ = {l:.2f}{shrink or chr(10)}", fontsize=9, color=PURPLE if shrink else INK)
        bottom.plot(channels, final, "o", mfc="none", color=GREY, ms=6)
        bottom.plot(channels, acc / l, "o", color=ORANGE, ms=3.5)
        bottom.margins(y=0.15)
        bottom.set_title("acc / ℓ", fontsize=9)
        bottom.set_xlabel("channel", fontsize=8)
        middle.set_xlabel("key", fontsize=8)
        before = m
    for axes, label in zip(panels[:, 0], ("score", "$e^{\\,score - m}$", "output"), strict=True):
        axes.set_ylabel(label)
    figure.suptitle("One query meets its keys a block at a time (rings: the output in the end)", fontsize=10, color=INK)
    show(
        "One query meets its keys a block at a time. The running maximum rises, the old exponentials are shrunk "
        "whenever it does, and the output moves from block to block until it lies in the rings, the output of "
        "ordinary attention."
    )


def draw_tiles(reach: Sequence[tuple[int, int]], tile: tuple[int, int], Tq: int, Tk: int) -> None:
    """Draw the tiles of a causal score matrix: whole, masked and skipped; `reach` has (whole, stop) of each row."""
    QUERIES, KEYS = tile
    _, axes = plt.subplots(figsize=(5.6, 4.2))
    columns = -(-Tk // KEYS)
    kinds = {"whole: no mask": SKY, "masked": PALE, "not visited": "white"}
    for row, (whole, stop) in enumerate(reach):
        for column in range(columns):
            kind = "whole: no mask" if column < whole else "masked" if column < stop else "not visited"
            place = (column * KEYS, row * QUERIES)
            axes.add_patch(Rectangle(place, KEYS, QUERIES, facecolor=kinds[kind], edgecolor=INK, lw=0.9))
    queries, keys = np.nonzero(np.arange(Tk) <= np.arange(Tq)[:, None] + (Tk - Tq))
    axes.plot(keys + 0.5, queries + 0.5, ".", ms=2.2, color=INK)
    axes.set(xlim=(-0.2, columns * KEYS + 0.2), ylim=(len(reach) * QUERIES + 0.2, -0.2), aspect="equal")
    axes.set(xlabel="key", ylabel="query", xticks=range(0, Tk + 1, KEYS), yticks=range(0, Tq + 1, QUERIES))
    axes.set_title(f"{Tq} queries, {Tk} keys, tiles of {QUERIES} × {KEYS}; a dot: this query sees this key")
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor=INK) for colour in kinds.values()]
    axes.legend(handles, list(kinds), loc="center left", bbox_to_anchor=(1.0, 0.5))
    show(
        "The tiles of a causal attention. Those below the diagonal are whole and need no mask, those on it are "
        "masked, and those above it are not visited."
    )


def draw_steps() -> None:
    """Draw the four steps to the kernel: the reads, the state and the writes of one of its programs."""
    _, panels = plt.subplots(2, 2, figsize=(7.2, 3.9))
    rows, columns, mine = 3, 4, 1
    titles = "1: a tile of scores", "2: the softmax, m and ℓ", "3: the output, acc", "4: edges, the future, heads"
    for step, (axes, title) in enumerate(zip(panels.ravel(), titles, strict=True), 1):
        for shadow in (0.5, 0.25) if step == 4 else ():
            place = (shadow, -shadow)
            axes.add_patch(Rectangle(place, columns, rows, facecolor="white", edgecolor=GREY, lw=0.7))
        for row, column in np.ndindex(rows, columns):
            future = step == 4 and column > row + 1
            colour = "white"
            if row == mine and step == 1:
                colour = ORANGE if column == 1 else "white"
            elif row == mine and not future:
                colour = BLUE if column == 2 else SKY if column < 2 else "white"
            style = {"facecolor": colour, "edgecolor": PALE if future else GREY, "lw": 0.8}
            axes.add_patch(Rectangle((column, row), 1, 1, **style))
            if future:
                axes.text(column + 0.5, row + 0.5, "×", ha="center", va="center", color=GREY)
        if step > 1:
            names = ("m", PURPLE), ("ℓ", PURPLE), *((("acc", ORANGE),) if step > 2 else ())
            for place, (name, colour) in enumerate(names):
                x, width = columns + 0.75 + 0.8 * place, 1.5 if name == "acc" else 0.6
                axes.add_patch(Rectangle((x, mine), width, 1, facecolor="white", edgecolor=colour, lw=1.5))
                axes.text(x + width / 2, mine + 0.5, name, ha="center", va="center", fontsize=8, color=dark(colour))
        axes.text(-0.15, rows / 2, "queries", rotation=90, ha="right", va="center", fontsize=8, color=GREY)
        axes.text(columns / 2, rows + 0.15, "keys", ha="center", va="top", fontsize=8, color=GREY)
        axes.set(xlim=(-0.8, columns + 4), ylim=(rows + 0.7, -0.6), aspect="equal")
        axes.set_title(title, fontsize=9, loc="left")
        axes.axis("off")
    show(
        "Four steps of building the kernel: one tile of scores; the running softmax along the row of tiles; the "
        "output beside it; and the edges, the future and all heads."
    )


def draw_memory(
    largest: Mapping[str, tuple[Sequence[int], Sequence[int]]],
    moved: tuple[Sequence[int], Sequence[float]],
    predicted: tuple[np.ndarray, np.ndarray],
    naive: float,
    length: int,
) -> None:
    """Draw bytes of the largest array by length (left), and bytes moved by the rows of a block of queries (right)."""
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.3))
    far = np.array([64, 65536])
    for (name, (lengths, sizes)), colour, power in zip(largest.items(), (GREY, GREEN), (2, 1), strict=True):
        left.loglog(lengths, sizes, "o", color=colour, ms=4, label=f"{name}, counted")
        left.loglog(far, sizes[-1] * (far / lengths[-1]) ** power, color=colour, lw=1, ls="--")
    left.set_xscale("log", base=2)
    left.set(xlabel="length T", ylabel="bytes of the largest array, one head")
    left.set_title("Memory against T (dashed: as T², as T)")
    left.legend(loc="upper left", fontsize=8)
    right.axhline(naive / 1e6, color=GREY, lw=1.4)
    right.text(predicted[0][-1], naive / 1e6 * 0.97, "written out, counted", color=GREY, fontsize=8, ha="right",
               va="top")  # fmt: skip
    right.plot(predicted[0], predicted[1] / 1e6, color=GREEN, lw=1, ls="--", label="flash, predicted")
    right.plot(moved[0], np.array(moved[1]) / 1e6, "o", color=GREEN, ms=4, label="flash, counted")
    right.set_xscale("log", base=2)
    right.set(xlabel="rows of a block of queries", ylabel="megabytes moved, one head", ylim=(0, None))
    right.set_title(f"Bytes moved at T = {length}")
    right.legend(loc="center right", fontsize=8)
    show(
        "Left, the largest array: attention written out grows with the square of the length, flash attention in "
        "proportion to it. Right, the bytes that flash attention moves fall as its blocks grow and agree with the "
        "prediction; written out, it moves more."
    )
