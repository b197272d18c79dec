"""Time table 1's layers against n and d, in rounds, and derive exponents and crossings with their variation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from minitransformer.plots.page import BLUE, GREEN, INK, SKY, VERMILION, Page
from study.charts import finish
from study.experiment import Findings
from study.markdown import bullets, paragraph, picture, table
from study.measuring import crossing, crossing_text, in_rounds, rounds_text

from .complexity import (
    ATTENTION,
    CONVOLUTION,
    LAYER_TYPES,
    RECURRENT,
    RESTRICTED,
    LayerType,
    exponent,
    seconds,
    two_terms,
)

COLOURS = {ATTENTION: BLUE, RECURRENT: VERMILION, CONVOLUTION: GREEN, RESTRICTED: SKY}
ALONE_SUFFIX = ", attention alone"


@dataclass(frozen=True)
class Series:
    """A series of times: of a layer, or of its attention alone."""

    kind: LayerType
    alone: bool = False

    @property
    def name(self) -> str:
        """The name in tables and legends."""
        return self.kind.name + ALONE_SUFFIX if self.alone else self.kind.name


SERIES = [Series(kind) for kind in LAYER_TYPES] + [Series(kind, True) for kind in LAYER_TYPES if kind.alone is not None]


@dataclass(frozen=True)
class Effort:
    """The settings that decide how long each point is timed.

    rounds           each round times every point once, so that a slow minute of the machine affects all layers
    repeats, least   the fewest forwards and backwards in a round; there are more until `least` seconds have passed
    """

    rounds: int = 5
    repeats: int = 3
    least: float = 0.02


Times = dict[str, Any]
"""Times over some `sizes`; for each series, by name: `rounds`, the seconds in each round; `best`, the least seconds for
each size; and the exponents `lower` and `upper` over the two halves of the sizes."""


def timed(sizes: Sequence[int], points: Sequence[tuple[int, int]], effort: Effort) -> Times:
    """Time all `SERIES` at `points`, the n and d for each size. There must be at least three sizes."""
    taken: dict[str, list[list[float]]] = {series.name: [] for series in SERIES}
    for _ in range(effort.rounds):
        for series in SERIES:
            options = {"least": effort.least, "alone": series.alone}
            taken[series.name].append([seconds(series.kind, n, d, effort.repeats, **options) for n, d in points])
    return {"sizes": list(sizes), "series": {name: _fitted(sizes, rounds) for name, rounds in taken.items()}}


def draw_times(over_n: Times, over_d: Times, labels: tuple[str, str], path: str | Path) -> None:
    """Draw time against n and against d on logarithmic axes with `labels`. Raises `OSError` as `Page.save` does."""
    page = Page(7.4, 4.8, layout="constrained")
    left, right = page.figure.subplots(1, 2)
    _draw(left, over_n, "n", labels[0], "forward and backward, ms")
    _draw(right, over_d, "d", labels[1], "")
    page.save(path)


def _fitted(sizes: Sequence[int], rounds: list[list[float]]) -> dict[str, Any]:
    half = (len(sizes) + 1) // 2  # with an odd number of sizes the middle one belongs to both halves
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


PRINTED = {
    ATTENTION + ALONE_SUFFIX: ("2", "1"),
    RESTRICTED + ALONE_SUFFIX: ("1", "1"),
    RECURRENT: ("1", "2"),
    CONVOLUTION: ("1", "2"),
}
"""The paper's exponents of n and of d. Attention with its projections is a sum and has none."""


def compared(over_n: Times, width: int) -> dict[str, Any]:
    """Self-attention in the times: its two terms, and the sizes from which it is slower than other layers."""
    lengths = over_n["sizes"]
    rounds = {name: found["rounds"] for name, found in over_n["series"].items()}
    linear, square = two_terms(lengths, over_n["series"][ATTENTION]["best"])
    fitted = [linear * n + square * n * n for n in lengths]
    misses = [abs(fit / time - 1) for fit, time in zip(fitted, over_n["series"][ATTENTION]["best"], strict=True)]

    def crossed(first: str, second: str) -> dict[str, Any]:
        return in_rounds(lambda *times: crossing(lengths, *times), rounds[first], rounds[second])

    at = lengths.index(width)
    attention, recurrent = ([kind.derived(n, width) for n in lengths] for kind in LAYER_TYPES[:2])
    return {
        "linear": linear,
        "square": square,
        "miss": max(misses),
        "worst": lengths[int(np.argmax(misses))],
        "counted": crossing(lengths, attention, recurrent),
        "layer": crossed(ATTENTION, RECURRENT),
        "alone": crossed(f"{ATTENTION}{ALONE_SUFFIX}", RECURRENT),
        "restricted": crossed(ATTENTION, RESTRICTED),
        "at_d": in_rounds(lambda a, b: a[at] / b[at], rounds[RECURRENT], rounds[ATTENTION]),
        "shortest": in_rounds(lambda a, b: a[0] / b[0], rounds[RECURRENT], rounds[ATTENTION]),
    }


def time_blocks(findings: Findings, name: str) -> list[str]:
    """The part of the report on times against n and d, with the picture of this name."""
    sizes, effort = findings["sizes"], findings["sizes"]["effort"]
    return [
        "### Time",
        paragraph(f"""
            Forward and backward of one sequence, the least of at least {effort["repeats"]} in each of
            {effort["rounds"]} rounds; in brackets, the lowest and the highest result of single rounds and of their
            least. *Attention alone* is the paper's count, without projections; with them a layer is a sum, of which the
            paper gives one term.
        """),
        picture(name, "Time of each layer against n and against d, in logarithms"),
        _time_table(findings["over_n"], "n", f"against n, d = {sizes['width']}", 0),
        _time_table(findings["over_d"], "d", f"against d, n = {sizes['length']}", 1),
        _away_from_theory(findings),
    ]


def _time_table(times: Times, axis: str, title: str, column: int) -> str:
    points, half = times["sizes"], (len(times["sizes"]) + 1) // 2
    shown = (0, half - 1, len(points) - 1)
    head = [title, *(f"ms, {axis} = {points[i]:,}" for i in shown)]
    head += [f"exponent up to {points[half - 1]:,}", f"exponent from {points[-half]:,}", "paper"]
    rows = (
        [
            name,
            *(f"{1000 * found['best'][i]:.2f}" for i in shown),
            *(rounds_text(found[part]) for part in ("lower", "upper")),
            PRINTED[name][column] if name in PRINTED else "",
        ]
        for name, found in times["series"].items()
    )
    return table(head, rows)


def _away_from_theory(findings: Findings) -> str:
    """A paragraph on why exponents of times differ from those of operations: the cost of calls, and memory."""
    fits = [found for axis in ("over_n", "over_d") for found in findings[axis]["series"].values()]
    flatter = sum(found["lower"]["value"] < found["upper"]["value"] for found in fits)
    length, widths = findings["sizes"]["length"], findings["over_d"]["sizes"]
    times = findings["over_d"]["series"][RECURRENT]["best"]
    work, longer = (widths[1] / widths[0]) ** 2, times[1] / times[0]
    text = (
        f"{flatter} of the {len(fits)} exponents are lower over the lower half of the sizes than over the upper: a "
        "call has its price, however little it computes. A recurrent layer makes the most calls: from "
        f"d = {widths[0]} to d = {widths[1]} it has {work:g} times the operations and takes {longer:.2f} times as "
        f"long, {1e6 * times[0] / length:.1f} and {1e6 * times[1] / length:.1f} µs a position."
    )
    if longer < work / 2:
        text += " There it pays for calls that wait for each other, not for arithmetic."
    longest = findings["over_n"]["sizes"][-1]
    steep = min(findings["over_n"]["series"][ATTENTION + ALONE_SUFFIX]["upper"]["rounds"])
    if steep > 2:
        text += (
            f" Attention alone grows faster than n² in every round, by n^{steep:.2f} or more. Its operations do "
            f"not; but the weights of all pairs take {4 * longest**2 / 2**20:,.3g} MiB at n = {longest:,}, and are "
            "read and written several times."
        )
    return text


def comparison_blocks(findings: Findings) -> list[str]:
    """The part of the report on the terms of self-attention's time, and where it costs as much as other layers."""
    found, d, lengths = findings["compared"], findings["sizes"]["width"], findings["over_n"]["sizes"]
    whole = {row["name"]: row["whole_at_d"] for row in findings["layers"]}
    linear, square, block, r = found["linear"], found["square"], findings["block"], findings["window"]
    terms = f"equal at n ≈ {linear / square:,.0f}" if linear and square else "one of which is nothing"
    count = found["counted"]
    counted = f"at no n up to {lengths[-1]:,}" if count is None else f"from n = {count:,.0f}"
    alone, layer, faster = (crossing_text(found[name], lengths) for name in ("alone", "layer", "restricted"))
    return [
        paragraph(f"""
            Self-attention's time, projections included, at d = {d}: a · n + b · n² with a = {1e6 * linear:.2f} µs a
            position and b = {1e9 * square:.2f} ns a pair, two terms {terms}; in operations, 8 n d² and 4 n² d, they are
            equal at n = 2 d = {2 * d}. The fit is furthest from the times at n = {found["worst"]:,}, by
            {100 * found["miss"]:.0f} %.
        """),
        f"When does attention cost more than a recurrent layer of width d = {d}?",
        bullets(
            [
                paragraph(f"""
                    In operations, attention alone from n = d, where 4 n² d = 4 n d²; by the counts, {counted}. With its
                    projections it takes more at any n, {whole[ATTENTION] / whole[RECURRENT]:g} times as many at n = d.
                """),
                paragraph(f"""
                    In time, attention alone {alone}, with its projections {layer}.
                    {_waiting(found["shortest"], found["at_d"], lengths[0], d)}
                """),
            ]
        ),
        paragraph(f"""
            Restricted to r = {r} on either side, it is faster than unrestricted {faster}. Up to n = {2 * block} our
            window is only a mask on full attention. Beyond, {block} queries at a time meet up to {block + 2 * r} keys,
            though each may attend to {2 * r + 1}: {(block + 2 * r) / (2 * r + 1):.1f} times the pairs that are counted,
            but linear in n.
        """),
    ]


def _waiting(shortest: dict[str, Any], at_d: dict[str, Any], n: int, d: int) -> str:
    """A sentence that compares a recurrent layer's time with self-attention's; its claim holds in every round."""
    text = (
        f"At n = {n} a recurrent layer takes {rounds_text(shortest)} times as long as self-attention with its "
        f"projections, and {rounds_text(at_d)} times as long at n = d = {d}"
    )
    rounds = [*shortest["rounds"], *at_d["rounds"]]
    if min(rounds) > 1:
        return f"{text}: with fewer operations, since each position waits for the one before."
    return f"{text}." if max(rounds) < 1 else f"{text}: recurrence is not slower in every round."
