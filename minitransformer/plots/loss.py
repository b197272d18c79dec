"""A picture of a training: losses, a score and learning rate over the steps."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from .page import BLUE, GREEN, GREY, INK, PALE, VERMILION, Page, printable, text_style

UNITS = (1e9, "billion "), (1e6, "million "), (1e3, "thousand "), (1.0, "")


class Score(NamedTuple):
    """A figure of a validation: its key in the log, its name, its format, and the function that picks the best."""

    key: str
    name: str
    form: str
    best: Callable[..., Any]
    least: float
    """The least upper end of the scale."""


SCORES = (
    Score("bleu", "BLEU", "{:.1f}", max, 1.0),
    Score("bits_per_byte", "bits per byte", "{:.3f}", min, 0.1),
    Score("accuracy", "accuracy, percent", "{:.1f}", max, 1.0),
    Score("true_captions", "captions exactly true, percent", "{:.1f}", max, 1.0),
    Score("recall", "captions found, percent", "{:.1f}", max, 1.0),
    Score("validation_reward", "reward", "{:.3f}", max, 0.01),
    Score("validation_agreement", "better text wins", "{:.3f}", max, 0.1),
)


def plot_loss(records: Iterable[Mapping[str, Any]], path: str | Path, title: str = "") -> None:
    """Draw the losses over the steps and, below them, a score of the validation and the learning rate if known.

    Each record is a line of the log: `step`, and any of `loss`, `validation_loss`, a score (see `SCORES`),
    `learning_rate` and `tokens` (seen so far: a second scale at the top). The training loss is drawn as logged, with
    label smoothing, so it may lie above the validation loss. Raises `ValueError` if no record has a loss, and
    `OSError`, naming the path, if it can't be written.
    """
    records = list(records)
    loss, validation, rate, tokens = (
        _series(records, key) for key in ("loss", "validation_loss", "learning_rate", "tokens")
    )
    score = next((each for each in SCORES if len(_series(records, each.key))), SCORES[0])
    scores = _series(records, score.key)
    if not len(loss):
        raise ValueError("no record has a step and a finite loss: there is nothing to draw")
    heights = [3.4] + [1.5] * bool(len(scores)) + [1.1] * bool(len(rate))
    page = Page(8.0, 1.0 + sum(heights), layout="constrained")
    panels = page.figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    _draw_losses(panels[0], loss, validation, "loss" if score.key == "validation_reward" else "loss (nats per token)")
    if len(scores):
        _draw_points(panels[1], scores, GREEN, "validation", score.form, score.best)
        _finish(panels[1], score.name, 0.0, 1.25 * max(scores[:, 1].max(), score.least))
    if len(rate):
        panels[-1].plot(*rate.T, color=GREY, linewidth=1.4, marker=_marker(rate))
        _finish(panels[-1], "learning rate", 0.0, 1.15 * max(rate[:, 1].max(), 1e-12))
    panels[-1].set_xlabel("optimiser step", fontsize=9, color=INK)
    panels[-1].set_xlim(0, 1.01 * max(series[:, 0].max(initial=1) for series in (loss, validation, scores, rate)))
    _add_token_scale(panels[0], tokens)
    panels[0].set_title(printable(title), loc="left", **text_style([title], 11))
    page.save(path)


def smoothed(values: np.ndarray, reach: int) -> np.ndarray:
    """Return the centred moving average `y_n = Σ_i w_i x_(n+i) / Σ_i w_i`, `w_i = reach + 1 − |i|`, |i| ≤ reach.

    At the ends the sums run over the values that there are.
    """
    weights = reach + 1.0 - np.abs(np.arange(-reach, reach + 1))
    middle = slice(reach, reach + len(values))
    return np.convolve(values, weights)[middle] / np.convolve(np.ones(len(values)), weights)[middle]


def _series(records: list[Mapping[str, Any]], key: str) -> np.ndarray:
    """Return the steps and finite values of one key, `(n, 2)`, sorted by step."""
    points = [(record["step"], record[key]) for record in records if None not in (record.get("step"), record.get(key))]
    series = np.array(sorted(points), dtype=np.float64).reshape(-1, 2)
    return series[np.isfinite(series).all(axis=1)]


def _draw_losses(axes: Axes, loss: np.ndarray, validation: np.ndarray, name: str) -> None:
    """Draw the training loss as logged and smoothed, and the validation loss as points."""
    steps, values = loss.T
    axes.plot(steps, values, color=BLUE, alpha=0.25, linewidth=0.8)
    average = smoothed(values, reach=len(values) // 60)
    label = f"training, as it is minimised; moving average ({average[-1]:.3f} at the end)"
    axes.plot(steps, average, color=BLUE, linewidth=1.8, marker=_marker(loss), label=label)
    if len(validation):
        _draw_points(axes, validation, VERMILION, "validation, without label smoothing", "{:.3f}", min)
    drawn = np.concatenate([average, validation[:, 1]])
    lowest, highest = drawn.min(), drawn.max()
    _finish(axes, name, lowest - 0.06 * (highest - lowest), highest + 0.06 * (highest - lowest))


def _draw_points(
    axes: Axes, series: np.ndarray, colour: str, name: str, form: str, best: Callable[..., tuple[float, float]]
) -> None:
    """Draw a measured series, with a ring around its best point."""
    step, value = best(series.tolist(), key=lambda point: point[1])
    label = f"{name} (best {form.format(value)} at step {step:,.0f})"
    axes.plot(*series.T, color=colour, linewidth=1.4, marker="o", markersize=3.5, label=label)
    axes.plot([step], [value], color=colour, marker="o", markersize=8, fillstyle="none", linestyle="none")


def _marker(series: np.ndarray) -> str:
    """Return the marker of a series: a dot for a single point, since a line needs two; else none."""
    return "o" if len(series) == 1 else ""


def _finish(axes: Axes, label: str, lowest: float, highest: float) -> None:
    """Set label, limits and style of a panel."""
    axes.set_ylabel(label, fontsize=9, color=INK)
    if lowest < highest:
        axes.set_ylim(lowest, highest)
    axes.grid(color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, labelcolor=INK, color=GREY)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False, labelcolor=INK)


def _add_token_scale(axes: Axes, tokens: np.ndarray) -> None:
    """Add a second scale at the top: the tokens seen, in a suitable unit."""
    if len(tokens) < 2 or not (np.diff(tokens, axis=0) > 0).all():
        return
    steps, counts = np.concatenate([[[0.0, 0.0]], tokens[tokens[:, 0] > 0]]).T
    unit, name = next((unit for unit in UNITS if counts[-1] >= unit[0]), UNITS[-1])
    counts = counts / unit
    there_and_back = (lambda x: _interpolated(x, steps, counts)), (lambda x: _interpolated(x, counts, steps))
    scale = axes.secondary_xaxis("top", functions=there_and_back)
    scale.set_xlabel(f"{name}tokens seen (source and target)", fontsize=9, color=INK)
    scale.tick_params(labelsize=8, labelcolor=INK, color=GREY)


def _interpolated(x: Any, known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Interpolate between known points, and beyond the last with their mean slope: so the scale is invertible."""
    x = np.asarray(x, dtype=np.float64)
    slope = values[-1] / known[-1]
    return np.where((x < 0) | (x > known[-1]), x * slope, np.interp(x, known, values))
