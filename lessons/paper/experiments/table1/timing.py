"""Table 1's layers timed against n and d: in rounds, with what follows from the times and how much that varies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from minitransformer.plots.page import BLUE, GREEN, INK, SKY, VERMILION, Page

from ...charts import finish
from .complexity import ATTENTION, CONVOLUTION, LAYER_TYPES, RECURRENT, RESTRICTED, LayerType, exponent, seconds

COLOURS = {ATTENTION: BLUE, RECURRENT: VERMILION, CONVOLUTION: GREEN, RESTRICTED: SKY}
ALONE_SUFFIX = ", attention alone"


@dataclass(frozen=True)
class Series:
    """What is timed: a layer, or its attention alone."""

    kind: LayerType
    alone: bool = False

    @property
    def name(self) -> str:
        """As tables and legends have it."""
        return self.kind.name + ALONE_SUFFIX if self.alone else self.kind.name


SERIES = [Series(kind) for kind in LAYER_TYPES] + [Series(kind, True) for kind in LAYER_TYPES if kind.alone is not None]


@dataclass(frozen=True)
class Effort:
    """How long a point is timed.

    rounds           each times every point once, so that no layer has a bad minute of the machine's for itself
    repeats, least   forwards and backwards of a round: at least so many, and as many as so many seconds hold
    """

    rounds: int = 5
    repeats: int = 3
    least: float = 0.02


Times = dict[str, Any]
"""Times over some sizes: `sizes`, and of each series, by name, the seconds of each round, `rounds`; the least of each
size, `best`; and the exponents `lower` and `upper` over either half of the sizes."""


def timed(sizes: Sequence[int], points: Sequence[tuple[int, int]], effort: Effort) -> Times:
    """The times of all `SERIES`: n and d at each size are `points`. At least three sizes."""
    taken: dict[str, list[list[float]]] = {series.name: [] for series in SERIES}
    for _ in range(effort.rounds):
        for series in SERIES:
            options = {"least": effort.least, "alone": series.alone}
            taken[series.name].append([seconds(series.kind, n, d, effort.repeats, **options) for n, d in points])
    return {"sizes": list(sizes), "series": {name: _fitted(sizes, rounds) for name, rounds in taken.items()}}


def in_rounds(figure: Callable[..., float | None], *rounds: Sequence[Sequence[float]]) -> dict[str, Any]:
    """A figure that follows from times: `value`, from the least of each size over all rounds, and from each round's.

    rounds  of each series that `figure` takes, the seconds by round and size
    """
    best = [np.min(each, axis=0).tolist() for each in rounds]
    return {"value": figure(*best), "rounds": [figure(*each) for each in zip(*rounds, strict=True)]}


def draw_times(over_n: Times, over_d: Times, labels: tuple[str, str], path: str | Path) -> None:
    """Time against n and against d, both in logarithms; `labels` of both. Raises `OSError` as `Page.save`."""
    page = Page(7.4, 4.8, layout="constrained")
    left, right = page.figure.subplots(1, 2)
    _draw(left, over_n, "n", labels[0], "forward and backward, ms")
    _draw(right, over_d, "d", labels[1], "")
    page.save(path)


def _fitted(sizes: Sequence[int], rounds: list[list[float]]) -> dict[str, Any]:
    half = (len(sizes) + 1) // 2  # an odd number's middle one belongs to both
    return {
        "rounds": rounds,
        "best": np.min(rounds, axis=0).tolist(),
        "lower": in_rounds(lambda times: exponent(sizes[:half], times[:half]), rounds),
        "upper": in_rounds(lambda times: exponent(sizes[-half:], times[-half:]), rounds),
    }


def _draw(axes: Axes, times: Times, symbol: str, x: str, y: str) -> None:
    for series in SERIES:
        found = times["series"][series.name]
        axes.plot(
            times["sizes"],
            [1000 * value for value in found["best"]],
            color=COLOURS[series.kind.name],
            ls="--" if series.alone else "-",
            lw=1.3,
            marker="o",
            markersize=2.5,
            label=f"{series.name}: {symbol}^{found['upper']['value']:.2f}",
        )
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(FixedLocator(times["sizes"]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    finish(axes, x, y)
    axes.legend(frameon=False, fontsize=7.5, labelcolor=INK, loc="lower center", bbox_to_anchor=(0.5, 1.0))
