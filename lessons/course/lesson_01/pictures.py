"""Pictures of lesson 01: overflow, Jacobians, label smoothing, gradient descent."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SIGNED, SKY, dark, on, show

CHOICES = (BLUE, ORANGE, PURPLE)  # a colour for each of the three outcomes
GOAL = GREEN


def draw_overflow(shifts: np.ndarray, naive: np.ndarray, stable: np.ndarray) -> None:
    """Draw probabilities `(S, n)` of the same n scores, shifted by each of `shifts` `(S,)`, by two programs."""
    _, panels = plt.subplots(1, 2, sharey=True, figsize=(7.2, 2.9))
    for axes, probabilities, title in zip(
        panels, (naive, stable), ("exp(x) / Σ exp(x)", "a softmax that lasts"), strict=True
    ):
        for y, colour in zip(probabilities.T, CHOICES, strict=True):
            axes.plot(shifts, y, lw=1.6, color=colour)
        broken = ~np.isfinite(probabilities).all(axis=1)
        for side, name in ((shifts < 0, "0 / 0"), (shifts > 0, "∞ / ∞")):
            if (broken & side).any():
                low, high = shifts[broken & side].min(), shifts[broken & side].max()
                axes.axvspan(low, high, color=GREY, alpha=0.2, lw=0)
                axes.text((low + high) / 2, 0.5, f"{name}\nNaN", ha="center", va="center", color=INK)
        axes.set(title=title, xlabel="added to every score", xlim=(shifts[0], shifts[-1]), ylim=(0, 1))
    panels[0].set_ylabel("probability")
    for number, y in enumerate(stable[0]):
        panels[1].text(shifts[-1], y + 0.02, f"score {number + 1}", ha="right", color=dark(CHOICES[number]))
    show(
        "Probabilities of three scores when one number is added to all. The textbook's formula gives NaN where the "
        "number is large or very negative; a stable softmax gives the same three probabilities everywhere."
    )


def draw_jacobians(titles: Sequence[str], probabilities: np.ndarray, jacobians: np.ndarray) -> None:
    """Draw probabilities `(K, n)` as bars, and under each its softmax's Jacobian `(K, n, n)` as a heat map."""
    n = probabilities.shape[-1]
    limit = float(np.abs(jacobians).max())
    figure, panels = plt.subplots(
        2, len(titles), figsize=(7.2, 3.9), height_ratios=(1, 2.6), sharex=True, squeeze=False
    )
    images = []
    for k, (title, y, jacobian) in enumerate(zip(titles, probabilities, jacobians, strict=True)):
        above, below = panels[0, k], panels[1, k]
        above.bar(range(n), y, color=GREY, width=0.8)
        above.set(title=title, ylim=(0, 1), yticks=(0, 1))
        images.append(below.imshow(jacobian, cmap=SIGNED, vmin=-limit, vmax=limit, aspect="auto"))
        below.set(xticks=range(n), yticks=range(n), xlabel="score j", xticklabels=range(1, n + 1))
        below.set_yticklabels([str(i) for i in range(1, n + 1)])
        below.spines[:].set_visible(False)
        for i in range(n):
            for j in range(n):
                text = f"{jacobian[i, j]:.2f}".replace("-0.00", "0.00").replace("-", "−")
                colour = on(images[-1].to_rgba(jacobian[i, j]))
                below.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
    panels[0, 0].set_ylabel("y")
    panels[1, 0].set_ylabel("probability i")
    figure.colorbar(images[0], ax=panels[1], label="∂yᵢ / ∂xⱼ", shrink=0.9)
    show(
        "The softmax's probabilities and its Jacobian for scores of three sizes. The diagonal is positive and the "
        "rest negative; with large scores, where one probability is almost 1, almost all of the Jacobian is 0."
    )


def draw_losses_and_slopes(
    gap: np.ndarray,
    losses: Mapping[str, np.ndarray],
    slopes: Mapping[str, np.ndarray],
    xlabel: str,
    alt: str,
    mark: tuple[float, float] | None = None,
) -> None:
    """Draw losses (left) and slopes by the right answer's score (right) against `gap`, a line for each name.

    `alt` says what is seen; `mark` is a minimum, (gap, loss), to point at.
    """
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0))
    for name, colour, line in zip(losses, (INK, SKY), ("-", "--"), strict=True):
        left.plot(gap, losses[name], line, label=name, color=colour)
        right.plot(gap, slopes[name], line, label=name, color=colour)
    left.set(title="the loss", xlabel=xlabel, ylabel="L", ylim=(0, None))
    right.set(title="its slope by the right answer's score", xlabel=xlabel, ylabel="∂L / ∂x")
    right.axhline(0, color=GREY, lw=0.8)
    if mark is not None:
        for axes, height in ((left, mark[1]), (right, 0.0)):
            axes.plot(mark[0], height, "o", color=GOAL, ms=5, zorder=3)
            axes.axvline(mark[0], color=GOAL, lw=0.8, ls=":")
    left.legend()
    show(alt)


def draw_descent(frequencies: np.ndarray, paths: Mapping[str, np.ndarray], outcomes: str) -> None:
    """Draw descents over the scores of three outcomes, on the plane where their sum is 0, with the loss's contours.

    The loss is the mean cross-entropy of outcomes with these `frequencies` `(3,)`; each path is `(steps + 1, 3)`.
    """

    def loss(x: np.ndarray) -> np.ndarray:
        """The mean loss at scores `(..., 3)`."""
        return np.log(np.exp(x).sum(axis=-1)) - x @ frequencies

    best = np.log(frequencies) - np.log(frequencies).mean()
    basis = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])  # orthonormal: angles are kept
    middle = basis @ best
    across, up = np.linspace(-1.9, 1.9, 121) + middle[0], np.linspace(-1.6, 1.2, 101) + middle[1]
    height = loss(np.stack(np.meshgrid(across, up), axis=-1) @ basis) - loss(best)
    first, second, third = (f"x_{outcome}" for outcome in outcomes)
    _, panels = plt.subplots(1, len(paths), figsize=(7.2, 2.6), sharex=True, sharey=True)
    for axes, (name, path) in zip(panels, paths.items(), strict=True):
        axes.contour(across, up, height, levels=[0.01, 0.05, 0.15, 0.3, 0.5, 0.8], colors=[GREY], linewidths=0.6)
        points = path @ basis.T
        axes.plot(*points.T, "o-", color=INK, ms=2.5, lw=0.8)
        axes.plot(*points[0], "s", color=INK, ms=5)
        axes.plot(*middle, "*", color=GOAL, ms=10, zorder=3)
        axes.set(title=name, xlabel=rf"$({first} - {second})\,/\,\sqrt{{2}}$", xlim=across[[0, -1]], ylim=up[[0, -1]])
        axes.set_aspect("equal")
    panels[0].set_ylabel(rf"$({first} + {second} - 2{third})\,/\,\sqrt{{6}}$")
    show(
        "Gradient descent on the contours of the loss with three learning rates: small steps do not arrive, larger "
        "ones reach the minimum, and too large ones jump from side to side of it."
    )


def draw_regions(
    points: np.ndarray,
    labels: np.ndarray,
    probabilities: Callable[[np.ndarray], np.ndarray],
    losses: np.ndarray,
    floor: float,
) -> None:
    """Draw points `(N, 2)` over a classifier's probabilities, as mixtures of the classes' colours, and its losses.

    `probabilities` takes places `(..., 2)` and gives `(..., n)`; `floor` is the loss of the truth.
    """
    colours = np.array([to_rgb(colour) for colour in CHOICES])
    low, high = points.min(axis=0) - 0.3, points.max(axis=0) + 0.3
    grid = np.stack(np.meshgrid(np.linspace(low[0], high[0], 160), np.linspace(low[1], high[1], 160)), axis=-1)
    _, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), width_ratios=(1, 1.1))
    left.imshow(0.4 * probabilities(grid) @ colours + 0.6, origin="lower", extent=(low[0], high[0], low[1], high[1]))
    for label, (colour, mark) in enumerate(zip(colours, "os^", strict=True)):
        left.plot(*points[labels == label][:120].T, mark, ms=3.5, color=colour, mec="white", mew=0.4)
    left.set(title="what it learned", xlabel="first feature", ylabel="second feature", aspect="auto")
    right.plot(losses, color=INK, lw=0.7, label="of each step's batch")
    right.axhline(floor, color=GOAL, lw=1.6, label="of the truth, on all points")
    right.axhline(np.log(len(colours)), color=GREY, lw=0.8, ls=":", label="log 3: knows nothing")
    right.set(title="the loss falls", xlabel="step", ylabel="cross-entropy (nats)", ylim=(0, 1.6))
    right.legend(loc="upper right")
    show(
        "Left, points of three classes, and the plane in the colours of the probabilities that the classifier "
        "learned: each class has its region, and the colours blend between them. Right, the loss falls within a few "
        "dozen steps from log 3 to the loss of the true probabilities."
    )
