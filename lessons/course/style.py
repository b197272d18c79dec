"""The style of the lessons' pictures: plain axes, 100 dots an inch, colours that colour-blind readers tell apart."""

import matplotlib.pyplot as plt
from cycler import cycler

from minitransformer.plots.page import BLUE, FONT, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SIGNED, SKY, VERMILION

COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
INKED = "Greys"  # the colour map of images that are data: white paper, black ink
AMOUNTS = "Blues"  # the default colour map of matrices, from nothing, white, to much

__all__ = [
    "AMOUNTS",
    "BLUE",
    "COLOURS",
    "GREEN",
    "GREY",
    "INK",
    "INKED",
    "ORANGE",
    "PALE",
    "PURPLE",
    "SIGNED",
    "SKY",
    "VERMILION",
    "use_style",
]


def use_style() -> None:
    """Set matplotlib's defaults.

    Amounts, such as attention's weights, are drawn in `AMOUNTS`, numbers with a sign in `SIGNED`. So blue and red are
    free for what a lesson compares. A lesson that gives each head, or each kind of cell, a colour makes its own map.
    """
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
            "image.cmap": AMOUNTS,
            "image.interpolation": "nearest",
        }
    )
