"""Drawing code that all charts share: plain axes, and intervals."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from minitransformer.plots.page import GREY, INK, PALE, text_style

from .trials.bootstrap import Interval


def finish(axes: Axes, x: str, y: str) -> None:
    """Set the axes' labels with their units, and hide the upper and the right spine."""
    axes.set_xlabel(x, **text_style([x], 9))
    axes.set_ylabel(y, **text_style([y], 9))
    axes.tick_params(labelsize=8, colors=GREY)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(PALE)


def plain_logarithm(axis: Axis, subs: Sequence[float] = (1, 2, 5)) -> None:
    """Give a logarithmic axis plain numbers at these multiples of the powers of ten."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))


def draw_intervals(axes: Axes, intervals: Mapping[str, Interval], colours: Sequence[str], label: str) -> None:
    """Draw a dot and its interval for each name, from top to bottom."""
    for row, (found, colour) in enumerate(zip(intervals.values(), colours, strict=True)):
        axes.plot([found.low, found.high], [row, row], color=colour, lw=2.2, solid_capstyle="round", alpha=0.55)
        axes.plot(found.value, row, "o", ms=5, color=colour)
    axes.set_yticks(range(len(intervals)), list(intervals))
    axes.invert_yaxis()
    finish(axes, label, "")
    axes.tick_params(axis="y", length=0, colors=INK)
    axes.grid(axis="x", color=PALE, lw=0.8)
    axes.set_axisbelow(True)
