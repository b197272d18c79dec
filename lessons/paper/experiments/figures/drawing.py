"""What the drawings of figures 1 and 2 share."""

from typing import Any

from matplotlib.patches import FancyBboxPatch

from minitransformer.plots.page import INK

from .tracing import Shape

SIZE = 8.5
ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "lw": 0.9, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}


def box(x: float, y: float, width: float, height: float, face: str, edge: str = INK) -> FancyBboxPatch:
    """A rectangle with round corners, its lower left one at (x, y), in inches."""
    style = "round,pad=0,rounding_size=0.06"
    return FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=0.9)


def shape_text(shape: Shape) -> str:
    """A shape as it is written: `(2, 7, 128)`."""
    return f"({', '.join(map(str, shape))})"
