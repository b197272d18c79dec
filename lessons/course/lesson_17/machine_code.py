"""Lesson 17: list a kernel's machine code, and draw its execution, from the data of `course.compiled`."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from ..style import BLUE, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, on, show

WORDS = {
    "load": "ask memory for numbers",
    "wait": "wait for what was asked for",
    "arithmetic": "compute",
    "other lanes": "read another lane's register",
    "switch lanes": "compute",
    "shared memory": "write or read shared memory",
    "barrier": "wait for the other waves",
    "store": "write to memory",
}

COLOURS = {
    "load": BLUE,
    "arithmetic": "#a6d3ae",
    "other lanes": PURPLE,
    "switch lanes": SKY,
    "shared memory": ORANGE,
    "store": INK,
}

NEIGHBOURS = {
    r"row_shr:(\d+)": "+ lane − {}",
    r"permlanex16": "+ the other 16",
    r"quad_perm:\[2,3,0,1\]": "+ lane ± 2",
    r"quad_perm:\[1,0,3,2\]": "+ lane ± 1",
}
"""Patterns of instructions that read another lane, and the words for the lane's place."""


# --- In words -----------------------------------------------------------------------------------------------------


def lines_of(code: Sequence[Sequence[Any]]) -> Iterator[tuple[str, list[Sequence[Any]]]]:
    """The lines of Python that an assembly comes from, in their order, each with its instructions in theirs."""
    for _, same in groupby(sorted(code, key=lambda each: each[2]), key=lambda each: each[2]):
        instructions = list(same)
        yield instructions[0][3], instructions


def abridged(code: Iterable[Sequence[Any]], first: int) -> list[str]:
    """Return a line for each run of instructions of one kind: number, kind, first instruction. Shorten a long list."""
    rows = []
    for words, same in groupby(code, key=lambda each: WORDS[each[0]]):
        texts = [each[1] for each in same]
        short = re.sub(r" (row_mask|bank_mask|bound_ctrl|op_sel):\S+", "", texts[0])
        rows.append(f"{len(texts):>4} × {words:<30}{short}{' …' * (len(texts) > 1)}")
    return rows if len(rows) <= first + 4 else [*rows[:first], "       …", *rows[-3:]]


# --- In a picture -------------------------------------------------------------------------------------------------


def draw_execution(found: dict[str, Any]) -> None:
    """Draw the instruction of each wave at each turn, and below the values in the lanes of one while it adds up."""
    _, (waves, lanes) = plt.subplots(2, 1, figsize=(7.2, 5.2), height_ratios=[1, 1.6])
    _draw_waves(waves, [kind for kind, _ in found["executed"]], found["turns"])
    shown = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items()]
    shown += [Patch(color=PALE, label="waits at a barrier"), Patch(color=VERMILION, label="barrier opens")]
    waves.legend(handles=shown, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=8)
    _draw_lanes(lanes, *_additions(found))
    show(
        "Above, what each of four waves executes turn by turn: they run apart and meet where a barrier opens. Below, "
        "a sum over the lanes: after each addition a lane holds the sum of twice as many numbers, until the first "
        "holds that of all."
    )


def _draw_waves(axes: Axes, kinds: Sequence[str], turns: Sequence[tuple[int, list[int]]]) -> None:
    waves = 1 + max(wave for _, there in turns for wave in there)
    mine = [[(time, number) for time, (number, there) in enumerate(turns) if wave in there] for wave in range(waves)]
    came: list[tuple[int, int, int]] = []  # a barrier, a wave, and the turn in which it arrives
    opened: dict[int, int] = {}  # by barrier the turn in which the first wave goes on
    for wave, its in enumerate(mine):
        for time, number in its:
            axes.add_patch(Rectangle((time, wave - 0.36), 1, 0.72, color=COLOURS[kinds[number]], lw=0))
        for (time, number), (after, other) in pairwise(its):
            for barrier in (place for place in range(number, other) if kinds[place] == "barrier"):
                came.append((barrier, wave, time + 1))
                opened[barrier] = min(after, opened.get(barrier, after))
    for barrier, wave, time in came:
        axes.add_patch(Rectangle((time, wave - 0.36), opened[barrier] - time, 0.72, color=PALE, lw=0))
    for time in opened.values():
        axes.plot([time] * 2, [-0.5, waves - 0.5], color=VERMILION, lw=1.5)
    axes.set(xlim=(0, len(turns)), ylim=(waves - 0.4, -0.6))
    axes.set_xlabel("turns: in each, some waves that stand at one instruction execute it")
    axes.set_yticks(range(waves), [f"wave {wave}" for wave in range(waves)])
    axes.tick_params(axis="y", length=0, labelcolor=INK)


def _additions(found: dict[str, Any]) -> tuple[list[list[float]], list[str]]:
    """Return the values in the lanes before the first addition and after each, and the source of what each adds."""
    texts, ((number, *before), *after) = [text for _, text in found["executed"]], found["lanes"]
    rows, names, previous = [before], ["e^(x − max)"], number - 1
    for number, *values in after:
        said = " ".join(texts[previous + 1 : number + 1])
        ways = (words.format(*at.groups()) for way, words in NEIGHBOURS.items() if (at := re.search(way, said)))
        names.append("other waves: " * ("ds_load" in said) + next(ways, "+"))
        rows.append(values)
        previous = number
    return rows, names


def _draw_lanes(axes: Axes, rows: Sequence[Sequence[float]], names: Sequence[str]) -> None:
    numbers = np.array(rows)
    logarithms = np.log2(numbers.clip(min=0.5))
    image = axes.imshow(logarithms, aspect="auto", vmin=-1, vmax=1.6 * np.log2(numbers.max()))
    for (row, lane), number in np.ndenumerate(numbers):
        text, colour = f"{number:.0f}" if number else "", on(tuple(image.to_rgba(logarithms[row, lane])))
        axes.text(lane, row, text, ha="center", va="center", fontsize=7, color=colour)
    axes.set_yticks(range(len(names)), names)
    axes.set(xticks=[0, 7, 15, 16, 23, 31], xlabel="lane of wave 0")
    axes.set_title("tl.sum: how many numbers each lane has added up, after each addition")
    axes.axvline(15.5, color=GREY, lw=0.8)
    axes.tick_params(length=0, labelcolor=INK, labelsize=8)
    axes.spines[:].set_visible(False)
