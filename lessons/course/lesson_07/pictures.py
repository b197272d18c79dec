"""Lesson 07: the residual highway, and layer normalisation as geometry."""

from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch

from ..style import BLUE, GREY, INK, ORANGE, PALE, SKY, VERMILION, show

PLANE = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
"""Two unit vectors (2, 3) that span the plane of the points whose three channels sum to zero."""


def draw_highway(shares: np.ndarray) -> None:
    """Draw the residual lane and the ways round it, and below the gradient that came by each number of them.

    shares (n + 1,): the length of what came through 0, 1, …, n sub-layers.
    """
    _, (road, bars) = plt.subplots(2, 1, figsize=(7.2, 4.4), height_ratios=(1, 1.25))
    road.set(xlim=(-0.9, 8.9), ylim=(-0.75, 1.55))
    road.set_axis_off()
    road.annotate("", (8.6, 0), (-0.3, 0), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 2.0})
    for number, left in enumerate((0.4, 3.1, 5.8), 1):
        road.plot([left, left, left + 1.8, left + 1.8], [0, 1, 1, 0.14], color=INK, lw=1.2)
        box = FancyBboxPatch((left + 0.45, 0.75), 0.9, 0.5, boxstyle="round,pad=0.02", fc=PALE, ec=INK, zorder=3)
        road.add_patch(box)
        road.text(left + 0.9, 1, f"sub-layer {number}", ha="center", va="center", fontsize=7.5, zorder=4)
        road.add_patch(Circle((left + 1.8, 0), 0.14, fc="white", ec=INK, zorder=3))
        road.text(left + 1.8, -0.01, "+", ha="center", va="center", zorder=4)
    road.text(-0.4, 0, "$x$", ha="right", va="center", fontsize=11)
    road.text(8.7, 0, "$y$", ha="left", va="center", fontsize=11)
    back = {"arrowstyle": "-|>", "color": ORANGE, "lw": 2.5}
    road.annotate("", (-0.3, -0.42), (8.6, -0.42), arrowprops=back)
    road.text(4.1, -0.68, "the gradient d$y$ arrives as it set out: nothing is on this lane", color=INK, ha="center")
    road.set_title("The residual highway")

    numbers = np.arange(len(shares))
    bars.bar(numbers, shares, width=0.65, color=[ORANGE, *[GREY] * (len(shares) - 1)])
    for number, share in zip(numbers, shares, strict=True):
        bars.text(number, share, f"{share:.2f}", ha="center", va="bottom", fontsize=8, color=INK)
    bars.set(xlabel="sub-layers that the gradient came through", ylabel="its length; d$y$ has 1", xticks=numbers)
    bars.set_ylim(0, 1.15 * shares.max())
    bars.set_title(f"What reaches $x$ through {len(shares) - 1} sub-layers, sorted by the way it took")
    show(
        "Above, the residual stream from x to y with three sub-layers beside it: the gradient comes back along the "
        "stream unchanged. Below, the length of the gradient that reaches x, by the number of sub-layers that it came "
        "through: a part through none, most through a few, almost nothing through all."
    )


def draw_sphere(x: np.ndarray, forward: Callable, backward: Callable, dy: np.ndarray) -> None:
    """Draw layer normalisation of rows with three channels, seen in the plane of zero mean.

    x and dy (N, 3); `forward(x)` gives (y, cache) with gamma 1 and beta 0, `backward(dy, cache)` gives dx.
    """
    y, cache = forward(x)
    dx = backward(dy, cache)
    flat, landed, wanted, slope = (array @ PLANE.T for array in (x, y, dy, dx))  # (N, 2)
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.8))
    left.add_patch(Circle((0, 0), np.sqrt(3), fill=False, ec=GREY, lw=1))
    for a, b in zip(flat, landed, strict=True):
        left.annotate("", b, a, arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 0.9})
    left.plot(*flat.T, "o", ms=4, color=SKY, label="x − mean")
    left.plot(*landed.T, "o", ms=4, color=BLUE, label="normed")
    left.text(0, 0, "radius $\\sqrt{C}$", ha="center", va="center", color=GREY)
    left.set_title("Forward: each row goes to the circle")
    left.legend(loc="upper left", handletextpad=0.1, borderpad=0)

    right.add_patch(Circle((0, 0), np.sqrt(3), fill=False, ec=GREY, lw=1))
    far = np.linalg.norm(landed, axis=1, keepdims=True)
    unit, rstd = landed / far, far / np.linalg.norm(flat, axis=1, keepdims=True)
    for start, want, go in zip(np.sqrt(3) * unit, 0.9 * wanted, 0.9 * slope / rstd, strict=True):
        right.annotate("", start + want, start, arrowprops={"arrowstyle": "-|>", "color": SKY, "lw": 1.3})
        right.annotate("", start + go, start, arrowprops={"arrowstyle": "-|>", "color": BLUE, "lw": 1.8})
        right.plot([0, start[0]], [0, start[1]], color=PALE, lw=0.8, zorder=0)
        right.plot(*start, "o", ms=3, color=INK)
    right.plot([], [], color=SKY, label="d$y$, as it arrives")
    right.plot([], [], color=BLUE, label="d$x$ / rstd: tangent")
    right.set_title("Backward: only the tangent is left")
    right.legend(loc="upper left", borderpad=0)
    for axes in (left, right):
        axes.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), aspect="equal", xticks=[], yticks=[])
        axes.set(xlabel="along (1, −1, 0)", ylabel="along (1, 1, −2)")
    show(
        "Points of zero mean in a plane. Left, layer normalisation moves each along its radius to one circle. Right, "
        "of each gradient that arrives on the circle only the part along its tangent is left."
    )


def draw_bessel(axes: Axes, x: np.ndarray) -> None:
    """Draw the normalized rows of x (N, 3), with the variance divided by C and by C − 1."""
    centred = x - x.mean(-1, keepdims=True)
    for ddof, colour in ((0, BLUE), (1, VERMILION)):
        landed = centred / x.std(-1, ddof=ddof, keepdims=True) @ PLANE.T
        axes.add_patch(Circle((0, 0), np.sqrt(3 - ddof), fill=False, ec=colour, lw=1))
        axes.plot(*landed.T, "o", ms=4, color=colour, label=f"ddof={ddof}: radius $\\sqrt{{{3 - ddof}}}$")
    axes.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.9), aspect="equal", xticks=[], yticks=[])
    axes.set(xlabel="along (1, −1, 0)", ylabel="along (1, 1, −2)", title="Three channels")
    axes.legend(loc="upper center", ncols=2, fontsize=8, handletextpad=0.1, columnspacing=0.8)
