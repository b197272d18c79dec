"""Pictures of lesson 15: a GPU, the puzzles, the tile walk, partial sums, bytes moved, number formats.

In all of them blue is what is read or moved, orange what is written, red what lies outside of an array.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, dark, show

LABELS = {"float32": (1.0, 1.3e-7), "tf32": (1e8, 8e-5), "bfloat16": (1.0, 9e-3), "float16": (1e1, 0.25)}
"""The places of the names of the right picture's lines."""

PROGRAMS = (SKY, "#f3cf86", "#a6d3ae")
"""The colours of programs, light enough for text on them."""

LILAC = "#bfa6cf"


def draw_gpu(sizes: Mapping[str, str]) -> None:
    """Draw a grid of programs, the multiprocessors that run them, and the memories with their `sizes`."""
    _, axes = plt.subplots(figsize=(7.2, 4.3))

    def box(
        x: float, y: float, width: float, height: float, text: str = "", colour: str = "white", **style: Any
    ) -> None:
        axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=INK, lw=0.9))
        axes.text(
            x + width / 2, y + height / 2, text, ha="center", va="center", **{"fontsize": 8, "color": INK} | style
        )

    axes.text(0.1, 7.45, "a grid of programs", fontsize=9, color=INK)
    for program in range(12):
        row, column = divmod(program, 2)
        box(0.1 + 0.75 * column, 6.5 - 0.8 * row, 0.65, 0.6, f"{program}", PROGRAMS[program % 3])
    axes.annotate("", (2.55, 4.8), (1.7, 4.8), arrowprops={"arrowstyle": "-|>", "color": INK})
    axes.text(2.12, 4.95, "handed\nout", ha="center", va="bottom", fontsize=8, color=GREY)
    many = f"{sizes['multiprocessors']} multiprocessors. Which program runs where, and when, is not known"
    axes.text(2.7, 7.45, many, fontsize=9, color=INK)
    for place, program in enumerate((0, 1, 2)):
        x = 2.7 + 2.35 * place
        box(x, 3.0, 2.2, 4.1)
        box(x + 0.1, 6.3, 2.0, 0.65, f"program {program}, and others", PROGRAMS[program])
        box(x + 0.1, 5.45, 2.0, 0.7, "calculators,\ntensor cores")
        box(x + 0.1, 4.5, 2.0, 0.8, f"registers: {sizes['registers']}\nfor the blocks in use", PALE)
        box(
            x + 0.1,
            3.15,
            2.0,
            1.2,
            f"shared memory:\n{sizes['shared memory']}\nwhat a program's\nthreads exchange",
            PALE,
        )
    axes.text(9.8, 5.0, "…", fontsize=14, color=INK, va="center")
    box(2.7, 1.9, 7.2, 0.65, f"L2 cache: {sizes['L2 cache']}, for all of them", PALE)
    box(2.7, 0.2, 7.2, 0.95, f"device memory: {sizes['device memory']}. Here lie the arrays", PALE, fontsize=9)
    for x, text, colour, ends in ((4.4, "read", BLUE, (1.9, 1.15)), (8.0, "write", ORANGE, (1.15, 1.9))):
        axes.annotate("", (x, ends[0]), (x, ends[1]), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2.5})
        axes.text(x + 0.15, 1.52, text, color=dark(colour), va="center", fontsize=9)
    axes.text(6.15, 1.52, sizes["bandwidth"], color=INK, va="center", ha="center", fontsize=9)
    for x in (3.8, 6.15, 8.5):
        axes.annotate("", (x, 2.55), (x, 3.0), arrowprops={"arrowstyle": "<|-|>", "color": GREY})
    axes.set(xlim=(0, 10.1), ylim=(0, 7.9))
    axes.axis("off")
    show(
        "A grid of programs is handed out to multiprocessors, each with its own registers and shared memory. Below "
        "them lie one L2 cache for all, and the device memory, from which arrays are read and to which results are "
        "written."
    )


def draw_time(tasks: Mapping[str, tuple[float, float]]) -> None:
    """Draw for each task the seconds that its bytes and its operations take, relative to the longer of the two."""
    _, axes = plt.subplots(figsize=(7.2, 0.55 * len(tasks) + 0.9))
    for place, (moving, computing) in enumerate(tasks.values()):
        for shift, seconds, colour in ((-0.18, moving, BLUE), (0.18, computing, GREEN)):
            share = seconds / max(moving, computing)
            axes.barh(place + shift, share, 0.34, color=colour)
            axes.text(share + 0.01, place + shift, f"{1e6 * seconds:,.3g} µs", va="center", fontsize=8)
    axes.set_yticks(range(len(tasks)), list(tasks))
    axes.tick_params(axis="y", length=0, colors=INK)
    axes.set(xlim=(0, 1.65), xticks=[], xlabel="time; the longer of each pair has the full length")
    axes.spines["bottom"].set_visible(False)
    axes.invert_yaxis()
    axes.legend(
        [Rectangle((0, 0), 1, 1, color=BLUE), Rectangle((0, 0), 1, 1, color=GREEN)],
        ["to move the bytes", "to compute"], loc="center right",
    )  # fmt: skip
    show(
        "For each task a pair of bars: the time to move its bytes and the time to compute. Addition and softmax wait "
        "almost only for memory; a linear layer computes for longer than it moves bytes."
    )


def draw_lanes(n: int, block: int) -> None:
    """Draw a vector of n under blocks: the lanes of each program with their positions, those beyond it in red."""
    blocks = -(-n // block)
    _, axes = plt.subplots(figsize=(7.2, 1.5))
    for i in range(blocks * block):
        inside = i < n
        colour = PROGRAMS[i // block % 3] if inside else "white"
        axes.add_patch(Rectangle((i, 0), 1, 1, facecolor=colour, edgecolor=GREY, lw=0.6))
        axes.text(i + 0.5, 0.5, f"{i}", ha="center", va="center", fontsize=9, color=INK if inside else VERMILION)
    for program in range(blocks):
        axes.add_patch(Rectangle((program * block, 0), block, 1, fill=False, edgecolor=INK, lw=1.6))
        axes.text((program + 0.5) * block, 1.2, f"program {program}: i = {program} · {block} + (0 … {block - 1})",
                  ha="center", fontsize=9)  # fmt: skip
    axes.plot([n, n], [-0.25, 1], color=VERMILION, lw=2)
    axes.text(n - 0.15, -0.45, f"here the vector ends: n = {n}", ha="right", va="center", fontsize=8, color=VERMILION)
    axes.text((n + blocks * block) / 2, -0.45, "mask off", ha="center", va="center", fontsize=8, color=VERMILION)
    axes.set(xlim=(-0.1, blocks * block + 0.1), ylim=(-0.7, 1.7))
    axes.axis("off")
    show(
        "A vector cut into blocks, one for each program. The last block reaches beyond the vector's end; there the "
        "mask is off."
    )


def draw_product(tiles: tuple[int, int, int], program: tuple[int, int]) -> None:
    """Draw c = a · b in (M, K, N) `tiles`, with the tiles that the program of one tile of c reads."""
    M, K, N = tiles
    _, axes = plt.subplots(figsize=(5.4, 3.4))
    shapes = {"a": (0, K + 0.6, M, K), "b": (K + 0.6, 0, K, N), "c": (K + 0.6, K + 0.6, M, N)}  # x, y, rows, columns
    for name, (x, y, rows, columns) in shapes.items():
        for row, column in np.ndindex(rows, columns):
            walked = (name == "a" and row == program[0]) or (name == "b" and column == program[1])
            own = name == "c" and (row, column) == program
            colour = PROGRAMS[0] if walked else "#f3cf86" if own else "white"
            axes.add_patch(Rectangle((x + column, y + row), 1, 1, facecolor=colour, edgecolor=GREY, lw=0.8))
            if walked:
                axes.text(x + column + 0.5, y + row + 0.5, f"step {column if name == 'a' else row}", ha="center",
                          va="center", fontsize=7.5)  # fmt: skip
            if own:
                axes.text(x + column + 0.5, y + row + 0.5, "total", ha="center", va="center", fontsize=8)
        axes.add_patch(Rectangle((x, y), columns, rows, fill=False, edgecolor=INK, lw=1.4))
    axes.text(K / 2, K + 0.6 + M + 0.15, "a (M, K)", ha="center", va="top")
    axes.text(K + 0.6 + N + 0.15, K / 2, "b (K, N)", va="center")
    axes.text(K + 0.6 + N / 2, K + 0.6 + M + 0.15, "c (M, N)", ha="center", va="top")
    axes.text(0, 0.2, f"program {program}\nowns one tile of c\nand walks along K", fontsize=8, color=GREY, va="top")
    axes.set(xlim=(-0.1, K + N + 2.2), ylim=(K + M + 1.3, -0.1), aspect="equal")
    axes.axis("off")
    show(
        "A product of matrices in tiles: the program of one tile of c walks along a row of tiles of a and a column of "
        "tiles of b, step by step, and adds up the products."
    )


def draw_running_maximum(x: np.ndarray, block: int) -> None:
    """Draw one row in blocks: the numbers, the maximum so far, and the correction of the sum at each block."""
    _, axes = plt.subplots(figsize=(7.2, 2.9))
    axes.bar(np.arange(len(x)) + 0.5, x, 0.8, color=BLUE)
    m, l, low = -np.inf, 0.0, x.min() - 0.3
    for first in range(0, len(x), block):
        part = x[first : first + block]
        new_m = max(m, part.max())
        added = np.exp(part - new_m).sum()
        shrink = np.exp(m - new_m)
        axes.plot([first, first + block], [new_m] * 2, color=PURPLE, lw=2)
        lines = [f"m = {new_m:.2f}"]
        lines += [f"{l:.2f} · {shrink:.2f} + {added:.2f}"] if first else [f"{added:.2f}"]
        m, l = new_m, l * shrink + added
        axes.text(first + block / 2, low, "\n".join([*lines, f"l = {l:.2f}"]), ha="center", va="top", fontsize=8.5)
        axes.axvline(first, color=PALE, lw=1, zorder=0)
    axes.axhline(0, color=GREY, lw=0.6)
    axes.text(0.1, x.max() + 0.25, "the maximum so far", color=PURPLE, fontsize=8)
    axes.set(xlim=(0, len(x)), ylim=(low - 1.9, x.max() + 0.7), xticks=[], ylabel="x")
    axes.set_yticks(np.arange(np.ceil(x.min()), x.max() + 0.1))
    axes.spines["bottom"].set_visible(False)
    show(
        "The numbers of a row as bars, in blocks, with the maximum so far as a line that only rises. Below each "
        "block, the sum of the exponentials: the old sum is shrunk to the new maximum before the block's own is "
        "added."
    )


def draw_formats(formats: Mapping[str, tuple[int, int]], size: Any, errors: Mapping[str, Any]) -> None:
    """Draw the bits of each format, (exponent, fraction) (left), and the rounding errors by `size` (right)."""
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.7), gridspec_kw={"width_ratios": [1.05, 1]})
    for row, (name, (exponent, fraction)) in enumerate(formats.items()):
        kinds = [("sign", 1, GREY), ("exponent", exponent, PURPLE), ("fraction", fraction, LILAC)]
        place = 0
        for kind, bits, colour in kinds:
            for bit in range(place, place + bits):
                left.add_patch(Rectangle((bit + 0.08, row - 0.28), 0.84, 0.56, color=colour, lw=0))
            if kind != "sign":
                left.text(
                    place + bits / 2, row - 0.36, f"{bits}", ha="center", va="bottom", color=dark(colour), fontsize=8
                )
            place += bits
        left.text(-0.8, row, name, ha="right", va="center", color=INK)
    for x, (kind, colour) in zip((0, 6, 17), (("sign", GREY), ("exponent", PURPLE), ("fraction", LILAC)), strict=True):
        left.text(x, len(formats) - 0.35, kind, color=dark(colour), fontsize=8, va="top")
    left.set(xlim=(-9, 33), ylim=(len(formats) - 0.1, -0.75))
    left.set_title("Where the bits go")
    left.axis("off")
    for (name, error), line in zip(errors.items(), ("-", "--", "-.", ":"), strict=True):
        right.loglog(size, error, color=INK, lw=1.6, ls=line)
        right.text(*LABELS[name], name, color=INK, fontsize=8, ha="center")
    right.set(xlabel="size of the number", ylabel="worst relative error", ylim=(1e-8, 3))
    right.set_title("What rounding costs")
    show(
        "Left, the bits of four number formats: float32, tf32 and bfloat16 have equally many bits of exponent, "
        "float16 has fewer; the fractions differ. Right, the error of rounding: the fraction's bits set its level, "
        "and float16 fails for very small and very large numbers."
    )


def draw_tile_walk(owner: np.ndarray, rows: int, block: int) -> None:
    """Draw the tiles of rows × block lanes that programs lay over an array, and below the array in memory.

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
    show(
        "An array under tiles of lanes, each lane with its address. The lanes beyond a row's end are masked; their "
        "addresses are those of the next row, which lies right behind it in memory."
    )


def draw_traffic(counted: Sequence[tuple[str, str, float, float]]) -> None:
    """Draw bars of reads and writes, in passes over the array, for each `(what, how, read, written)`, by what."""
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
    show(
        "Bars of the bytes read and written, in passes over the array. The kernels that are fused move less for every "
        "task, most of all in the backward of layer norm."
    )


def draw_partial_sums(owner: np.ndarray, terms: np.ndarray) -> None:
    """Draw rows `terms (N, C)` in the colour of their program, the programs' partial sums, and the sums of those."""
    programs = int(owner.max()) + 1
    partials = np.stack([terms[owner == program].sum(axis=0) for program in range(programs)])
    shown = [(terms, owner, "dy ∘ normed, row by row"), (partials, np.arange(programs), "one row for each program"),
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
    show(
        "Rows of terms in the colours of three programs; each program adds up its own rows, and then the three "
        "partial sums are added to the gradient of gamma."
    )
