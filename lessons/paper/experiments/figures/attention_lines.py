"""Attention as lines between two columns of words, the thicker the more weight. After Vaswani 2017, figures 3 to 5."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from minitransformer.plots.page import GREY, INK, Page, fitted, text_style

LINE, TOP, FOOT = 0.185, 0.62, 0.08
"""Inches: from a word to the next, and the room above and below them."""

FAINTEST = 0.02
"""The least weight that is drawn."""

THICKEST = 5.0
WORDS = 1.15
"""Points of a line of weight 1; inches that a column of words may take."""


@dataclass(frozen=True)
class Panel:
    """One head on one sentence.

    queries, keys  words, the queries to the left
    weights        `(Tq, Tk)`
    columns        what to write above the queries and above the keys
    shown          the queries whose lines are drawn, all where it is None; their words and `marked` keys are in colour
    """

    title: str
    queries: list[str]
    keys: list[str]
    weights: list[list[float]]
    columns: list[str]
    colour: str
    shown: list[int] | None = None
    marked: list[int] | None = None


def draw_lines(panels: Sequence[Panel], path: str | Path, width: float = 7.4) -> None:
    """The panels side by side on a page so many inches wide. Raises `OSError` as `Page.save`.

    Raises `ValueError` where a panel's weights are not one row a query and one column a key.
    """
    for panel in panels:
        if [len(row) for row in panel.weights] != [len(panel.keys)] * len(panel.queries):
            raise ValueError(f"{panel.title}: the weights are not {len(panel.queries)} rows of {len(panel.keys)}")
    rows = max(max(len(panel.queries), len(panel.keys)) for panel in panels)
    page = Page(width, TOP + rows * LINE + FOOT)
    each = width / len(panels)
    for number, panel in enumerate(panels):
        axes = page.axes(number * each, 0, each, page.height)
        axes.set(xlim=(0, each), ylim=(0, page.height))
        axes.set_axis_off()
        _draw(axes, panel, each, page.height)
    page.save(path)


def _draw(axes: Axes, panel: Panel, width: float, height: float) -> None:
    left, right = 0.1 + WORDS, width - 0.1 - WORDS
    top = height - TOP
    axes.text(width / 2, height - 0.1, panel.title, ha="center", va="top", **text_style([panel.title], 9))
    shown = range(len(panel.queries)) if panel.shown is None else panel.shown
    for x, align, name, words, marked in (
        (left, "right", panel.columns[0], panel.queries, panel.shown or []),
        (right, "left", panel.columns[1], panel.keys, panel.marked or []),
    ):
        axes.text(x, top + 0.12, name, ha=align, va="center", **text_style([name], 7, GREY))
        for number, word in enumerate(words):
            text = fitted(word, 8, WORDS)
            style = text_style([text], 8, panel.colour if number in marked else INK)
            weight = "bold" if number in marked else "normal"
            axes.text(x, _y(top, number), text, ha=align, va="center", fontweight=weight, **style)
    for query in shown:
        for key, weight in enumerate(panel.weights[query]):
            if weight >= FAINTEST:
                ends = [left + 0.05, right - 0.05], [_y(top, query), _y(top, key)]
                strength = min(weight, 1.0)
                axes.plot(*ends, color=panel.colour, lw=THICKEST * strength, alpha=0.25 + 0.6 * strength)


def _y(top: float, number: int) -> float:
    return top - (number + 0.5) * LINE
