"""Lesson 07: who sees whom, the residual stream, layer normalisation as geometry, and the mean of dropout."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Circle, FancyBboxPatch

from ..style import BLUE, GREEN, GREY, INK, ORANGE, PALE, SKY, VERMILION, show

PLANE = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
"""Two unit vectors (2, 3) that span the plane of the points whose three channels sum to zero."""


def influences(reached: Mapping[str, np.ndarray]) -> None:
    """Draw two maps (T, T) by name: the length of the gradient at each input, for each output position."""
    figure, both = plt.subplots(1, 2, figsize=(7.2, 3.0), sharey=True)
    for axes, (name, lengths) in zip(both, reached.items(), strict=True):
        axes.imshow(lengths / lengths.max(), vmin=0, vmax=1)
        axes.set(title=name, xlabel="input position $s$")
    both[0].set_ylabel("output position $t$")
    figure.colorbar(both[0].images[0], ax=both, label="length of the gradient\n(the largest is 1)", shrink=0.8)
    figure.suptitle("Which inputs does an output depend on?", fontsize=10)
    show(
        "Two maps of output positions against input positions. With self-attention every output depends on every "
        "input; with the feed-forward network only the diagonal is filled: each output depends on its own position."
    )


def residual_stream(shares: np.ndarray) -> None:
    """Draw the residual stream and the ways round it, and below the gradient that came by each number of them.

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
    road.text(4.1, -0.68, "along the residual stream the gradient d$y$ arrives unchanged", color=INK, ha="center")
    road.set_title("The residual stream")

    numbers = np.arange(len(shares))
    bars.bar(numbers, shares, width=0.65, color=[ORANGE, *[GREY] * (len(shares) - 1)])
    for number, share in zip(numbers, shares, strict=True):
        bars.text(number, share, f"{share:.2f}", ha="center", va="bottom", fontsize=8, color=INK)
    bars.set(xlabel="sub-layers that the gradient came through", ylabel="its length; d$y$ has 1", xticks=numbers)
    bars.set_ylim(0, 1.15 * shares.max())
    bars.set_title(f"The gradient that reaches $x$ through {len(shares) - 1} sub-layers, sorted by the way it took")
    show(
        "Above, the residual stream, with a way round through each sub-layer. Below, the gradient at its start, sorted "
        "by the number of sub-layers it came through: all of dy arrives past every one, most of the rest came through "
        "a few, and hardly anything through all."
    )


def sphere(x: np.ndarray, forward: Callable, backward: Callable, dy: np.ndarray) -> None:
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


def bessel(x: np.ndarray, widths: Sequence[int], slips: Sequence[float]) -> None:
    """Draw the normalized rows of x (N, 3), the variance divided by C and by C − 1, and the error at all `widths`."""
    centred = x - x.mean(-1, keepdims=True)
    _, (axes, right) = plt.subplots(1, 2, figsize=(7.2, 3.3), width_ratios=(1, 1.35))
    for ddof, colour, marker in ((0, BLUE, "o"), (1, VERMILION, "s")):
        landed = centred / x.std(-1, ddof=ddof, keepdims=True) @ PLANE.T
        axes.add_patch(Circle((0, 0), np.sqrt(3 - ddof), fill=False, ec=colour, lw=1))
        axes.plot(*landed.T, marker, ms=4, color=colour, label=f"ddof={ddof}: radius $\\sqrt{{{3 - ddof}}}$")
    axes.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.9), aspect="equal", xticks=[], yticks=[])
    axes.set(xlabel="along (1, −1, 0)", ylabel="along (1, 1, −2)", title="Three channels")
    axes.legend(loc="upper center", ncols=2, fontsize=8, handletextpad=0.1, columnspacing=0.8)
    right.loglog(widths, slips, "o", ms=5, color=VERMILION, label="measured")
    right.loglog(widths, 0.5 / np.asarray(widths), color=VERMILION, lw=1, alpha=0.6, label="1 / 2C")
    for name, resolution in (("bfloat16", 2.0**-8), ("float32", 2.0**-24)):
        right.axhline(resolution, color=GREY, lw=0.8, ls=":")
        right.text(widths[0], resolution * 1.3, f"half a step of {name}", color=INK, fontsize=8)
    right.set(xlabel="channels $C$", ylabel="relative error of normed", ylim=(2e-8, 1), title="Many channels")
    right.legend(loc=(0.02, 0.22))
    show(
        "Left: with the variance divided by C − 1 the circle of normed rows is smaller. Right: the error falls as 1 / "
        "2C; from a few hundred channels on it is below half a rounding step of bfloat16, and far above float32's."
    )


def four_ways(ways: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Draw, by name, the size of x after each sub-layer of a stack, and the length of the gradient before each."""
    looks = ((VERMILION, "-"), (ORANGE, "-."), (GREEN, "-"), (BLUE, "--"))  # the two with a norm lie on each other
    _, (up, down) = plt.subplots(1, 2, figsize=(7.2, 3.2), sharey=True)
    for (name, (sizes, lengths)), (colour, line) in zip(ways.items(), looks, strict=True):
        up.semilogy(sizes, line, color=colour, label=name)
        down.semilogy(lengths, line, color=colour)
    up.set(title="Forward: size of $x$ (root mean square)", xlabel="after sub-layer", ylim=(1e-9, 1e4))
    down.set(title="Backward: length of the gradient (1 at the top)", xlabel="before sub-layer")
    up.legend(loc="lower left")
    show(
        "Sizes along a stack of sub-layers, forward and backward, on logarithmic scales. Without norm and residual "
        "connection they shrink exponentially, with the residual connection alone they grow; with a norm they stay."
    )


def dropout_means(inverted: np.ndarray, plain: np.ndarray, value: float, rate: float) -> None:
    """Draw the running means of one element under many masks (N,), with inverted dropout and without the factor."""
    counts = np.arange(1, len(inverted) + 1)
    _, axes = plt.subplots(figsize=(7.2, 2.8))
    axes.semilogx(counts, np.cumsum(inverted) / counts, color=BLUE, label="inverted: kept elements divided by 1 − p")
    axes.semilogx(counts, np.cumsum(plain) / counts, "--", color=VERMILION, label="not divided")
    for mean in (value, (1 - rate) * value):
        axes.axhline(mean, color=GREY, lw=0.8, ls=":")
    axes.set(xlabel="masks averaged over", ylabel="mean of y", ylim=(0, 3.4))
    axes.set_title(f"One element, x = {value:.0f}, dropped with p = {rate}")
    axes.legend(loc="upper right")
    show(
        "The mean of one element over more and more dropout masks. The inverted form settles on the element itself; "
        "without the division the mean settles below it, at 1 − p times the element."
    )
