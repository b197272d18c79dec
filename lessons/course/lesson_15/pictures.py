"""Pictures of lesson 15: number formats, the tile walk, bytes moved, partial sums."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, SKY, VERMILION

LABELS = {"float32": (1.0, 1.3e-7), "tf32": (1e8, 8e-5), "bfloat16": (1.0, 9e-3), "float16": (1e1, 0.25)}
"""Where the right picture's lines are named."""

PROGRAMS = (SKY, "#f3cf86", "#a6d3ae")
"""Light enough to be written on."""


def draw_formats(formats: Mapping[str, tuple[int, int]], size: Any, errors: Mapping[str, Any]) -> None:
    """Left: the bits of each format, (exponent, fraction). Right: the rounding error of numbers of each `size`."""
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.7), gridspec_kw={"width_ratios": [1.05, 1]})
    for row, (name, (exponent, fraction)) in enumerate(formats.items()):
        kinds = [("sign", 1, GREY), ("exponent", exponent, ORANGE), ("fraction", fraction, BLUE)]
        place = 0
        for kind, bits, colour in kinds:
            for bit in range(place, place + bits):
                left.add_patch(Rectangle((bit + 0.08, row - 0.28), 0.84, 0.56, color=colour, lw=0))
            if kind != "sign":
                left.text(place + bits / 2, row - 0.36, f"{bits}", ha="center", va="bottom", color=colour, fontsize=8)
            place += bits
        left.text(-0.8, row, name, ha="right", va="center", color=INK)
    for x, (kind, colour) in zip((0, 6, 17), (("sign", GREY), ("exponent", ORANGE), ("fraction", BLUE)), strict=True):
        left.text(x, len(formats) - 0.35, kind, color=colour, fontsize=8, va="top")
    left.set(xlim=(-9, 33), ylim=(len(formats) - 0.1, -0.75))
    left.set_title("Where the bits go")
    left.axis("off")
    for (name, error), colour in zip(errors.items(), (GREY, GREEN, VERMILION, BLUE), strict=True):
        right.loglog(size, error, color=colour, lw=1.6)
        right.text(*LABELS[name], name, color=colour, fontsize=8, ha="center")
    right.set(xlabel="size of the number", ylabel="worst relative error", ylim=(1e-8, 3))
    right.set_title("What rounding costs")
    plt.show()


def draw_tile_walk(owner: np.ndarray, rows: int, block: int) -> None:
    """Above: the tiles of rows × block lanes that programs lay over an array; below: the array as it lies in memory.

    owner `(N, n)`: the number of the program that wrote each element. In each lane its address, counted from x_ptr.
    """
    num_rows, n = owner.shape
    tiles = -(-num_rows // rows)
    _, (lanes, memory) = plt.subplots(2, 1, figsize=(7.2, 4.6), gridspec_kw={"height_ratios": [4.4, 1]})
    for row, column in np.ndindex(tiles * rows, block):
        inside = row < num_rows and column < n
        colour = PROGRAMS[owner[row, column] % 3] if inside else "white"
        lanes.add_patch(
            Rectangle((column, row), 1, 1, facecolor=colour, edgecolor=PALE, hatch=None if inside else "////")
        )
        ink = INK if inside else VERMILION if row < num_rows else GREY
        lanes.text(column + 0.5, row + 0.5, f"{row * n + column}", ha="center", va="center", fontsize=7.5, color=ink)
    for tile in range(tiles):
        lanes.add_patch(Rectangle((0, tile * rows), block, rows, fill=False, edgecolor=INK, lw=1.4))
        lanes.text(-0.3, (tile + 0.5) * rows, f"program {tile}", ha="right", va="center")
    lanes.set(xlim=(-2.6, block + 0.1), ylim=(tiles * rows + 0.1, -0.9))
    lanes.text(n / 2, -0.2, f"columns of a row of {n}", ha="center", color=GREY, fontsize=8)
    lanes.text((n + block) / 2, -0.2, "masked lanes", ha="center", color=VERMILION, fontsize=8)
    lanes.set_title(f"A {num_rows} × {n} array under tiles of {rows} × {block} lanes; the number is the lane's address")
    lanes.axis("off")

    for address, program in enumerate(owner.ravel()):
        memory.add_patch(Rectangle((address, 0), 1, 1, facecolor=PROGRAMS[program % 3], edgecolor="white", lw=0.5))
    for row in range(num_rows):
        memory.plot([row * n] * 2, [-0.25, 1], color=INK, lw=1)
        memory.text(row * n + 0.2, -0.3, f"row {row}: {row * n}…", va="top", fontsize=8)
    memory.set(xlim=(-3, owner.size + 1), ylim=(-1.1, 1.1))
    memory.set_title("The same numbers as they lie in memory", fontsize=9)
    memory.axis("off")
    for axes, place in ((lanes, (n, 0)), (lanes, (0, 1)), (memory, (n, 0))):
        axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor=VERMILION, lw=2, zorder=3))
    plt.show()


def draw_traffic(counted: Sequence[tuple[str, str, float, float]]) -> None:
    """Bars of reads and writes, in passes over the array; of each `(what, how, read, written)`, grouped by what."""
    _, axes = plt.subplots(figsize=(7.2, 4.6))
    place, ticks, before = 0.0, [], None
    for what, how, read, written in counted:
        if what != before:
            place += 0.5
            ticks.append((place, what))
            place += 0.9
        axes.barh(place, read, 0.7, color=BLUE)
        axes.barh(place, written, 0.7, left=read, color=ORANGE)
        axes.text(read + written + 0.15, place, f"{read + written:.1f}", va="center", fontsize=8)
        ticks.append((place, how))
        place, before = place + 0.9, what
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.tick_params(axis="y", length=0, colors=INK)
    headings = {what for what, *_ in counted}
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() in headings else "normal")
    axes.invert_yaxis()
    axes.set(xlabel="passes over the array (bytes moved ÷ bytes of the array)")
    axes.set_title("Bytes moved, counted")
    axes.legend(
        [Rectangle((0, 0), 1, 1, color=BLUE), Rectangle((0, 0), 1, 1, color=ORANGE)], ["read", "written"],
        loc="lower right",
    )  # fmt: skip
    plt.show()


def draw_partial_sums(owner: np.ndarray, terms: np.ndarray) -> None:
    """Rows `terms (N, C)` in the colour of their program, the partial sums of each program, and the sums of those."""
    programs = int(owner.max()) + 1
    partials = np.stack([terms[owner == program].sum(axis=0) for program in range(programs)])
    shown = [(terms, owner, "dy ∘ n, row by row"), (partials, np.arange(programs), "one row for each program"),
             (partials.sum(axis=0)[None], np.array([-1]), "dgamma")]  # fmt: skip
    _, panels = plt.subplots(1, 3, figsize=(7.2, 2.6))
    for axes, (numbers, programs_of, title) in zip(panels, shown, strict=True):
        for (row, column), number in np.ndenumerate(numbers):
            colour = "white" if programs_of[row] < 0 else PROGRAMS[programs_of[row] % 3]
            axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor=GREY, lw=0.6))
            axes.text(column + 0.5, row + 0.5, f"{number:.0f}", ha="center", va="center", fontsize=8)
        axes.set(xlim=(-0.1, terms.shape[1] + 0.1), ylim=(len(terms) + 0.1, -0.1))
        axes.set_title(title, fontsize=9)
        axes.axis("off")
    captions = "each program adds up\nthe rows that it owns", "then these partial sums\nare added up"
    for axes, text in zip(panels[1:], captions, strict=True):
        axes.text(0, 0.04, text, transform=axes.transAxes, fontsize=8, color=GREY, va="bottom")
    plt.show()
