"""Lesson 04's drawings: attention as matrices, the scale, the pull on the scores, masks.

Green and purple are signs, orange is the query that is followed, vermilion marks mistakes.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ..style import AMOUNTS, BLUE, GREY, INK, ORANGE, PALE, SIGNED, VERMILION

Floats = NDArray[np.float64]


def equation(query: Floats, key: Floats, value: Floats, weights: Floats, out: Floats, row: int) -> None:
    """Draw equation 1 as matrices, every number a square of the same size, one row of queries framed."""
    scores = query @ key.T / np.sqrt(query.shape[1])
    parts = [
        (query, "query", "(Tq, D)", "@"),
        (key.T, "keyᵀ", "(D, Tk)", "/ √D ="),
        (scores, "scores", "(Tq, Tk)", "softmax →"),
        (weights, "weights", "(Tq, Tk)", "@"),
        (value, "value", "(Tk, Dv)", "="),
        (out, "out", "(Tq, Dv)", ""),
    ]
    gaps = {"@": 1.8, "/ √D =": 3.6, "softmax →": 5.2, "=": 1.8, "": 0.0}
    _, axes = plt.subplots(figsize=(7.2, 2.3))
    left = 0.0
    for matrix, name, shape, operator in parts:
        height, width = matrix.shape
        bottom = -height / 2
        signed = name != "weights"
        reach = np.abs(matrix).max() if signed else 1
        axes.imshow(
            matrix,
            extent=(left, left + width, bottom, bottom + height),
            cmap=SIGNED if signed else AMOUNTS,
            vmin=-reach if signed else 0,
            vmax=reach,
        )
        axes.add_patch(Rectangle((left, bottom), width, height, fill=False, color=GREY, lw=0.6))
        if height == len(query):
            frame = Rectangle((left, bottom + height - 1 - row), width, 1, fill=False, color=ORANGE, lw=2, zorder=3)
            axes.add_patch(frame)
        axes.text(left + width / 2, 4.0, name, ha="center", va="bottom", color=INK)
        axes.text(left + width / 2, -4.0, f"{shape}\n{height} × {width}", ha="center", va="top", color=GREY, fontsize=8)
        axes.text(left + width + gaps[operator] / 2, 0, operator, ha="center", va="center", color=INK)
        left += width + gaps[operator]
    axes.set(xlim=(-0.2, left + 0.2), ylim=(-6.2, 5.0), aspect="equal")
    axes.set_title("Equation 1, every number a square (green positive, purple negative; weights white, 0, to blue, 1)")
    axes.axis("off")


Measured = tuple[float, Floats, Floats]


def scaling(widths: NDArray[np.int_], unscaled: list[Measured], scaled: list[Measured], width: int) -> None:
    """Draw the scores' variance against D, one query's weights at `width`, and the gradient through the softmax."""
    _, (left, middle, right) = plt.subplots(1, 3, figsize=(7.2, 2.9), width_ratios=(1, 0.8, 1.1))
    kinds = (("as they are", unscaled, VERMILION, "s--", -0.2), ("divided by √D", scaled, BLUE, "o-", 0.2))
    for name, measured, colour, mark, shift in kinds:
        left.loglog(widths, [variance for variance, _, _ in measured], mark, ms=4, color=colour, label=name)
        weights = measured[list(widths).index(width)][1]
        ordered = -np.sort(-weights.reshape(-1, weights.shape[-1]), axis=1)
        typical = ordered[np.argsort(ordered[:, 0])[len(ordered) // 2]]
        middle.bar(np.arange(1, 9) + shift, typical[:8], width=0.4, color=colour)
        low, half, high = np.percentile([lengths for _, _, lengths in measured], [10, 50, 90], axis=1)
        right.loglog(widths, half, mark, ms=4, color=colour)
        right.fill_between(widths, low, high, color=colour, alpha=0.2, lw=0)
    left.loglog(widths, widths, color=GREY, lw=0.8, ls=":")
    left.text(widths[5], widths[5] * 2.5, "variance = D", color=GREY, ha="right")
    left.set(xlabel="D", ylabel="variance of the scores", title="The scores", ylim=(0.3, 3e4))
    left.legend(loc="upper left", handlelength=1.2)
    middle.set(xlabel="key, by its weight", ylabel="weight", title=f"One query, D = {width}", ylim=(0, 1))
    middle.set_xticks([1, 4, 8])
    right.set(xlabel="D", ylabel="length of dscores", title="The gradient that passes", ylim=(1e-8, 10))


def pulls(values: Floats, weights: Floats, out: Floats, dout: Floats, dscores: Floats) -> None:
    """Draw values in the plane, as large as their weights, and the scores that gradient descent raises and lowers."""
    figure, axes = plt.subplots(figsize=(7.2, 3.6))
    hull = values[_hull(values)]
    axes.fill(*hull.T, color=PALE, alpha=0.6, lw=0, zorder=0)
    reach = np.abs(dscores).max()
    dots = axes.scatter(
        *values.T, s=60 + 900 * weights, c=-dscores, cmap=SIGNED, vmin=-reach, vmax=reach, edgecolor=GREY, zorder=2
    )
    for j, (point, weight) in enumerate(zip(values, weights, strict=True)):
        radius = np.sqrt(60 + 900 * weight) / 2
        name = f"v{'₀₁₂₃₄₅₆₇₈₉'[j]}  {weight:.2f}"
        axes.annotate(name, tuple(point), (radius + 2, 0), textcoords="offset points", va="center", color=INK)
    here, wanted, across = ((float(x), float(y)) for x, y in (out, out - 0.9 * dout, out + dout[::-1] * (-1, 1)))
    axes.plot(*here, "*", ms=13, color=ORANGE, zorder=4)
    axes.annotate("answer", here, (0, -14), textcoords="offset points", ha="center", color=INK, zorder=4)
    axes.axline(here, across, color=ORANGE, lw=1, ls="--", zorder=1)
    arrow = {"arrowstyle": "-|>", "color": ORANGE, "lw": 2}
    axes.annotate("", wanted, here, arrowprops=arrow, zorder=3)
    axes.set(aspect="equal", xlabel="first component of a value", ylabel="second component")
    axes.set_title("The answer should move along the arrow: which scores rise, and which fall")
    axes.margins(0.12)
    figure.colorbar(dots, label="−dscore: raised (green), lowered (purple)", shrink=0.9)


def rates(rates: Floats, scaled: list[float], unscaled: list[float], chance: float) -> None:
    """Draw the share of queries that found their key against the learning rate, with the scale and without."""
    _, axes = plt.subplots(figsize=(7.2, 2.8))
    axes.semilogx(rates, scaled, "o-", color=BLUE, label="divided by √D")
    axes.semilogx(rates, unscaled, "s--", color=VERMILION, label="as they are")
    axes.axhline(chance, color=GREY, lw=0.8, ls=":")
    axes.text(rates[-1], chance + 0.02, "a random key", color=INK, ha="right")
    axes.set(xlabel="learning rate", ylabel="share of queries that found their key", ylim=(0, 1.05))
    axes.set_title("The same task, the same start, 50 steps of gradient descent (D = 256)")
    axes.legend(loc="upper left")


def masks(weights: dict[str, Floats], moved: dict[str, NDArray[np.bool_]], mask: NDArray[np.bool_]) -> None:
    """Draw for each way to mask the weights with the sum of each row, and the outputs that move with each key."""
    figure, axes = plt.subplots(2, len(weights), figsize=(7.2, 3.8), sharex=True, sharey=True)
    length = len(mask)
    for column, name in enumerate(weights):
        top, bottom = axes[0, column], axes[1, column]
        top.imshow(weights[name], vmin=0, vmax=0.8)
        top.set_title(name)
        for i, total in enumerate(weights[name].sum(axis=1)):
            top.text(length - 0.3, i, f"{total:.2f}", va="center", fontsize=7, color=GREY)
        # 0: the output stays, 1: it moves and may, 2: it moves and may not
        bottom.imshow(moved[name] * (1 + ~mask), vmin=0, vmax=2, cmap=ListedColormap(["white", PALE, VERMILION]))
        leaks = int((moved[name] & ~mask).sum())
        bottom.set_xlabel(f"key j: {leaks} leaks" if leaks else "key j: no leak")
        for each in (top, bottom):
            _triangle(each, length)
            each.set_xticks(range(length))
            each.set_yticks(range(length))
            each.tick_params(length=0)
    axes[0, 0].set_ylabel("weights\n\nquery i")
    axes[1, 0].set_ylabel("output i moves\nwith key j\n\nquery i")
    figure.suptitle(
        "Weights, with each row's sum; and whether key j moves output i (grey: it may; red: a leak)", size=10
    )


def _triangle(axes: Axes, length: int) -> None:
    """Draw the border between past and future."""
    corners = [(-0.5, -0.5), (0.5, -0.5)]
    for i in range(1, length):
        corners += [(i - 0.5, i - 0.5), (i + 0.5, i - 0.5)]
    corners += [(length - 0.5, length - 0.5)]
    axes.plot(*np.array(corners).T, color=INK, lw=1)


def _hull(points: Floats) -> list[int]:
    """The numbers of the points on the convex hull, in order around it (Andrew's monotone chain)."""
    order = [int(i) for i in np.lexsort(points.T[::-1])]

    def half(numbers: list[int]) -> list[int]:
        chain: list[int] = []
        for i in numbers:
            while len(chain) > 1:
                (ax, ay), (bx, by) = points[chain[-1]] - points[chain[-2]], points[i] - points[chain[-2]]
                if ax * by - ay * bx > 0:
                    break
                chain.pop()
            chain.append(i)
        return chain[:-1]

    return half(order) + half(order[::-1])
