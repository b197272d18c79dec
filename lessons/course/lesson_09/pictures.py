"""Lesson 09: batches as rectangles, the schedule, training runs side by side."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from ..style import BLUE, GREEN, GREY, INK, PALE, PURPLE, SKY, VERMILION, show

GAP = 3
"""Columns between two batches."""


def draw_batches(companies: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Draw batches side by side, a row of them for each way to group sentences.

    Each batch is the sorted or unsorted lengths (B,) of its sentences; it is as wide as the longest.
    """
    canvases = {name: _canvas(batches) for name, batches in companies.items()}
    width = max(canvas.shape[1] for canvas in canvases.values())
    _, rows = plt.subplots(len(canvases), 1, figsize=(7.2, 3.8), sharex=True, sharey=True)
    colours = ListedColormap(["white", PALE, BLUE])
    for axes, (name, canvas) in zip(rows, canvases.items(), strict=True):
        axes.imshow(canvas, cmap=colours, vmin=0, vmax=2, aspect="auto", interpolation="nearest")
        tokens, padding = (canvas == 2).sum(), (canvas == 1).sum()
        axes.set_title(f"{name}: {padding / (tokens + padding):.0%} padding", loc="left")
        axes.set(ylabel="sentence", xlim=(-0.5, width - 0.5))
    rows[-1].set_xlabel("target token, batch after batch")
    rows[0].legend(handles=[Patch(color=BLUE, label="token"), Patch(color=PALE, label="padding")], ncols=2,
                   loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)  # fmt: skip
    show(
        "Batches of sentences as rectangles of tokens and padding. In random order a good part of each rectangle is "
        "padding; sorted by length almost none is, and all batches together are shorter."
    )


def draw_schedules(schedules: Mapping[str, np.ndarray]) -> None:
    """Draw learning rates (steps,) against the step, on plain and on logarithmic axes."""
    _, (plain, logarithmic) = plt.subplots(1, 2, figsize=(7.2, 3.0))
    looks = ((BLUE, "-"), (PURPLE, "--"), (SKY, "-."))
    for (name, rates), (colour, line) in zip(schedules.items(), looks, strict=False):
        steps = np.arange(1, len(rates) + 1)
        plain.plot(steps, rates, line, color=colour, label=name)
        logarithmic.loglog(steps, rates, line, color=colour)
    plain.set(xlabel="step", ylabel="learning rate", title="Equation 3")
    logarithmic.set(xlabel="step", title="the same, both axes logarithmic")
    plain.legend()
    show(
        "The paper's learning rate: it rises in a straight line through the warm-up and then falls as one over the "
        "square root of the step. A wider model has a lower curve, a shorter warm-up a higher peak."
    )


def draw_runs(
    rates: Mapping[str, np.ndarray],
    losses: Mapping[str, np.ndarray],
    lowest: Mapping[str, np.ndarray],
    floor: float,
) -> None:
    """Draw rate, loss (a line: mean of ten steps) and lowest layer's gradient by step; `floor` is a guess's loss."""
    styles = dict(zip(losses, ((VERMILION, "-"), (BLUE, "-"), (GREEN, "--")), strict=True))
    _, (above, middle, below) = plt.subplots(3, 1, figsize=(7.2, 6.2), sharex=True, height_ratios=(1, 2.2, 1.8))
    steps = np.arange(1, len(next(iter(rates.values()))) + 1)
    for name, (colour, line) in styles.items():
        above.plot(steps, rates[name], line, color=colour)
        for axes, values in ((middle, losses[name]), (below, np.log(lowest[name]))):
            shown = np.exp if axes is below else np.asarray
            axes.plot(steps, shown(values), color=colour, lw=0.5, alpha=0.35)
            axes.plot(steps[9:], shown(np.convolve(values, np.ones(10) / 10, "valid")), line, color=colour, label=name)
    above.set(ylabel="learning rate", title="The same peak, with and without a way up to it")
    middle.axhline(floor, color=GREY, lw=0.8, ls=":")
    middle.text(len(steps), floor + 0.14, "guessing by word frequency alone", ha="right", color=INK, fontsize=8)
    middle.set(ylabel="training loss\n(nats a token)")
    middle.legend(loc="upper right")
    below.set(yscale="log", xlabel="step", ylabel="norm of the gradient in\nthe decoder's lowest layer")
    show(
        "Learning rate, loss and gradient of three training runs with one peak rate. Post-norm without warm-up stops "
        "at the loss of guessing, and its gradient in the lowest layer vanishes; post-norm with warm-up and pre-norm "
        "without it learn."
    )


def _canvas(batches: Sequence[np.ndarray]) -> np.ndarray:
    """Return an image: 0 for nothing, 1 for padding, 2 for a token."""
    height = max(len(lengths) for lengths in batches)
    canvas = np.zeros((height, sum(lengths.max() + GAP for lengths in batches)))
    left = 0
    for lengths in batches:
        columns = np.arange(lengths.max())
        canvas[: len(lengths), left : left + len(columns)] = np.where(columns < lengths[:, None], 2, 1)
        left += len(columns) + GAP
    return canvas
