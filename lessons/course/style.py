"""The style of the lessons' pictures: plain axes, colours that colour-blind readers tell apart, and a text for each."""

from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.colors import to_hex, to_rgb
from matplotlib.typing import ColorType
from PIL import Image

from minitransformer.plots.page import BLUE, FONT, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SIGNED, SKY

VERMILION = "#cc4125"  # darker than the package's, so that text of this colour is read on white
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
    "contrast",
    "dark",
    "on",
    "show",
    "show_image",
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


def contrast(one: ColorType, other: ColorType) -> float:
    """Return the contrast of two colours, 1 to 21, as WCAG 2 defines it; text needs 4.5."""
    rgb = np.array([to_rgb(one), to_rgb(other)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ (0.2126, 0.7152, 0.0722))
    return float((high + 0.05) / (low + 0.05))


def on(ground: ColorType) -> str:
    """Return the colour for text on this one: white or black, of which one always has a contrast above 4.5."""
    return max("white", "black", key=lambda colour: contrast(colour, ground))


def dark(colour: ColorType) -> str:
    """Return this colour as text on white has it: as dark as it must be to be read."""
    shades = (to_hex(share * np.array(to_rgb(colour))) for share in np.linspace(1, 0, 51))
    return next(shade for shade in shades if contrast(shade, "white") >= 4.5)


def show(alt: str) -> None:
    """Show the current figure and close it; `alt` says in a sentence what it shows, for readers who do not see it.

    In a notebook it has twice the pixels of its place on the page; a script opens matplotlib's window, if it can.
    Raises `ValueError` if `alt` says nothing.
    """
    if not alt.strip():
        raise ValueError("show(alt): say in a sentence what the picture shows, for readers who do not see it")
    figure = plt.gcf()
    if "inline" in plt.get_backend():
        file = BytesIO()
        figure.savefig(file, dpi=2 * figure.dpi, bbox_inches="tight")
        show_image(file, alt)
    else:
        plt.show()
    plt.close(figure)


def show_image(file: BytesIO, alt: str) -> None:
    """Show a picture, with at most 256 colours, that has twice the pixels of its place on a notebook's page."""
    from IPython import display  # here: only a notebook has it

    small = BytesIO()
    Image.open(file).convert("RGB").quantize().save(small, "png", optimize=True)
    display.display(display.Image(small.getvalue(), retina=True, alt=alt))
