"""How the lessons' pictures look: plain axes, 100 dots an inch, colours that colour-blind readers can tell apart."""

import matplotlib.pyplot as plt
from cycler import cycler

from minitransformer.plots.page import BLUE, FONT, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION

COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)

__all__ = ["BLUE", "COLOURS", "GREEN", "GREY", "INK", "ORANGE", "PALE", "PURPLE", "SKY", "VERMILION", "use_style"]


def use_style() -> None:
    """Set matplotlib's defaults; sequential data in "Blues" or "viridis", signed data in "RdBu_r" around zero."""
    plt.rcParams.update(
        {
            "figure.figsize": (7.2, 3.2),
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
            "font.family": FONT,
            "font.size": 9,
            "axes.titlesize": 10,
            "axes.titlecolor": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": GREY,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=COLOURS),
            "axes.grid": False,
            "grid.color": PALE,
            "xtick.color": GREY,
            "ytick.color": GREY,
            "legend.frameon": False,
            "image.cmap": "Blues",
            "image.interpolation": "nearest",
        }
    )
