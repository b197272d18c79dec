"""The picture of lesson 18."""

import matplotlib.pyplot as plt
import numpy as np

from ..style import BLUE, GREY, PALE


def draw_training(losses):
    """Draw the loss of each training step, and its mean over 20 steps."""
    figure, axes = plt.subplots()
    steps = np.arange(1, len(losses) + 1)
    axes.plot(steps, losses, color=PALE, linewidth=1)
    if len(losses) >= 20:
        axes.plot(steps[19:], np.convolve(losses, np.ones(20) / 20, "valid"), color=BLUE, linewidth=2)
    axes.axhline(np.log(2000), color=GREY, linestyle=":", linewidth=1)
    axes.text(len(losses), np.log(2000), "every token equally likely: ln 2000", color=GREY, ha="right", va="bottom")
    axes.set(title=f"{len(losses):,} steps of training, with your own gradients", xlabel="step", ylabel="loss")
    return figure
