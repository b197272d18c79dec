"""A page to draw on, measured in inches, and text on it in any language."""

from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font

from ..system.atomic import atomic_write
from ..system.visible import printed

INK, GREY, PALE = "#222222", "#737373", "#e3e8ee"  # grey is read on white: a contrast of 4.7
# Colour-blind readers can tell these apart.
BLUE, SKY, ORANGE, VERMILION, GREEN, PURPLE = "#2166ac", "#92c5de", "#e69f00", "#d6604d", "#1b7837", "#762a83"
SIGNED = "PRGn"  # colours from purple, negative, over white to green, positive; limits ±one number, so that 0 is white
FONT = "DejaVu Sans"  # comes with matplotlib
NO_GLYPH = "□"
SHARPEST, LARGEST_SIDE = 200.0, 6_000  # dots per inch, pixels
LONGEST_LINE = 1_000  # characters: more fit on no page and take long to measure


class Page:
    """A white figure whose lower left corner is (0, 0), in inches. A large one has fewer dots per inch."""

    def __init__(self, width: float, height: float, layout: Literal["none", "constrained"] = "none"):
        self.width, self.height = width, height
        dpi = min(SHARPEST, LARGEST_SIDE / max(width, height))
        self.figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
        # Set explicitly, so that matplotlib's settings in a notebook cannot move axes and texts.
        self.figure.set_layout_engine(layout)
        FigureCanvasAgg(self.figure)

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Add axes at this place."""
        return self.figure.add_axes((x / self.width, y / self.height, width / self.width, height / self.height))

    def text(self, x: float, y: float, text: str, size: float, **options: Any) -> None:
        """Write a line of plain text at this place."""
        self.figure.text(x / self.width, y / self.height, printable(text), **text_style([text], size), **options)

    def save(self, path: str | Path) -> None:
        """Write a PNG under a temporary name and rename it to `path`. Raises as `atomic_write` does."""
        with atomic_write(path) as file:
            self.figure.savefig(file, format="png", metadata={"Software": None})


def printable(text: str, longest: int | None = None) -> str:
    """Return `text` with control characters escaped, □ for characters in no installed font, and … where it is cut."""
    escaped = printed(text)
    if longest is not None and len(escaped) > longest:
        escaped = escaped[: longest - 1] + "…"
    return "".join(c if _family(c) else NO_GLYPH for c in escaped)


def text_style(texts: Iterable[str], size: float, color: str = INK) -> dict[str, Any]:
    """Return matplotlib's arguments for text without mathematics, in fonts that have the characters of `texts`."""
    families = {_family(c): None for text in texts for c in printable(text)}  # a set that keeps its order
    family = [FONT, *(name for name in families if name not in (FONT, None))]
    return {"fontsize": size, "fontfamily": family, "color": color, "parse_math": False}


def fitted(text: str, size: float, width: float) -> str:
    """Return `text` as `printable` shows it, cut to at most `width` inches."""
    text = printable(text, LONGEST_LINE)
    if text_width(text, size) <= width:
        return text
    too_long = bisect_left(range(len(text)), True, key=lambda count: text_width(text[:count] + "…", size) > width)
    return text[: max(too_long - 1, 0)] + "…"


def text_width(text: str, size: float) -> float:
    """Return the width of a line in inches."""
    files = [_file(family) for family in text_style([text], size)["fontfamily"]]
    font = get_font(files)
    font.set_size(size, 720)
    font.set_text(printable(text))
    return 1.06 * font.get_width_height()[0] / 64 / 720  # 26.6 fixed-point dots; hinting may widen a line by 6 %


@cache
def _family(character: str) -> str | None:
    """Return the font family that draws a character: the usual one, else the first installed one that has it."""
    return next((name for name in _families() if ord(character) in _characters(name)), None)


@cache
def _families() -> list[str]:
    """Return the installed families that have an upright regular face; "Last Resort" only draws boxes."""
    names = {
        face.name
        for face in fontManager.ttflist
        if face.style == face.stretch == "normal" and face.weight in (400, "normal") and "Last Resort" not in face.name
    }
    return [FONT, *sorted(names - {FONT})]


@cache
def _characters(family: str) -> frozenset[int]:
    return frozenset(get_font(_file(family)).get_charmap())


@cache
def _file(family: str) -> str:
    return fontManager.findfont(FontProperties(family=[family]))
