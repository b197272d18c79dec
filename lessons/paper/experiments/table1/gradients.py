"""The effect of a long path: how much of a gradient is left over a distance.

The layers have their initial weights, and their input is noise. A random direction of the last position's output has a
gradient at each position before it. In a recurrent layer this gradient has passed every position between; with
attention, on top of the layer or alone, it takes one step (Bengio, Simard, Frasconi 1994; Vaswani 2017, §4).
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.layers import AdditiveAttention, Block, FlatParameters, Layer, Recurrent
from minitransformer.models import TransformerConfig
from minitransformer.ops import Array, Ops, numpy_ops
from minitransformer.plots.page import BLUE, GREEN, INK, ORANGE, VERMILION, Page
from study.charts import finish
from study.markdown import bullets, paragraph, picture, scientific, table
from study.trials.bootstrap import MEAN, Interval, difference, interval

WIDTH = 64
COLOURS = {"RNN": VERMILION, "LSTM": ORANGE, "RNN + attention": GREEN, "Transformer": BLUE}


class _LookingBack(Layer):
    """A recurrent layer plus additive attention of each of its states to all of them."""

    def __init__(self, ops: Ops, cell: str, width: int) -> None:
        super().__init__(ops)
        self.recurrent, self.attention = Recurrent(ops, cell, width, width), AdditiveAttention(ops, width)

    def forward(self, x: Array) -> tuple[tuple[Array, Any], tuple]:
        (hidden, final), recurrent_cache = self.recurrent.forward(x)
        mixed, attention_cache = self.attention.forward(hidden, hidden)
        return (hidden + mixed, final), (recurrent_cache, attention_cache)

    def backward(self, dout: Array, dfinal: None, cache: tuple) -> tuple[Array, Any]:
        recurrent_cache, attention_cache = cache
        dquery, dmemory = self.attention.backward(dout, attention_cache)
        return self.recurrent.backward(dout + dquery + dmemory, dfinal, recurrent_cache)


def _transformer(ops: Ops, width: int) -> Layer:
    config = TransformerConfig(8, d_model=width, num_heads=4, d_ff=4 * width, dropout=0.0)
    return Block(ops, config.encoder.block)


KINDS: dict[str, Callable[[Ops, int], Layer]] = {
    "RNN": lambda ops, width: Recurrent(ops, "tanh", width, width),
    "LSTM": lambda ops, width: Recurrent(ops, "lstm", width, width),
    "RNN + attention": lambda ops, width: _LookingBack(ops, "tanh", width),
    "Transformer": _transformer,
}


def gradient_logarithms(kind: str, length: int, seeds: int, width: int = WIDTH) -> np.ndarray:
    """The logarithm of the gradient's norm at each distance, for each seed's weights and noise, `(seeds, length)`.

    The distance is counted from the last position, which comes first with 0.
    """
    return np.array([_logarithms(kind, length, width, seed) for seed in range(seeds)])


def _logarithms(kind: str, length: int, width: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    layer: Any = KINDS[kind](numpy_ops, width)
    FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(seed)
    out, cache = layer.forward(rng.standard_normal((1, length, width)))
    recurrent = isinstance(out, tuple)  # it has a final state too, which gets no gradient
    dout = np.zeros((1, length, width))
    dout[0, -1] = rng.standard_normal(width)
    dx, _ = layer.backward(dout, None, cache) if recurrent else layer.backward(dout, cache)
    return np.log(np.linalg.norm(dx[0, ::-1], axis=-1))


def draw_distances(norms: dict[str, np.ndarray], path: str | Path) -> None:
    """Draw each kind's gradient norms, relative to the last position's. Raises `OSError` as `Page.save` does."""
    page = Page(7.4, 3.2, layout="constrained")
    axes = page.figure.subplots()
    for kind, values in norms.items():
        axes.plot(range(1, len(values)), values[1:] / values[0], color=COLOURS[kind], lw=1.6, label=kind)
    axes.set_yscale("log")
    finish(axes, "distance, positions", "gradient, relative to distance 0")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    page.save(path)


def gradients_left(positions: int, seeds: int) -> dict[str, Any]:
    """The gradient that is left, relative to distance 0: means of its logarithm over seeds, with their intervals."""
    far = positions - 1
    distances = [*(d for d in (1, 10, 50) if d < far), far]
    near = distances[1]
    kinds, lost = {}, {}
    for kind in KINDS:
        logarithms = gradient_logarithms(kind, positions, seeds)
        lost[kind] = logarithms - logarithms[:, :1]  # (seeds, positions)
        slopes = np.polyfit(np.arange(1, positions), lost[kind][:, 1:].T, 1)[0]  # (seeds,)
        kinds[kind] = {
            "norms": np.exp(lost[kind].mean(0)).tolist(),
            "left": {str(d): asdict(interval(MEAN, _each(lost[kind][:, d]))) for d in distances},
            "slope": asdict(interval(MEAN, _each(slopes))),
            "late": asdict(interval(MEAN, _each(lost[kind][:, far] - lost[kind][:, near]))),
        }
    last = {kind: _each(each[:, far]) for kind, each in lost.items()}
    pairs = [
        {"more": more, "less": less, "by": asdict(difference(MEAN, last[more], last[less]))}
        for less, more in itertools.pairwise(KINDS)
    ]
    return {"width": WIDTH, "distances": distances, "near": near, "far": far, "kinds": kinds, "pairs": pairs}


def _each(values: np.ndarray) -> np.ndarray:
    """The values of all seeds as statistics for `MEAN`, `(seeds, 2)`."""
    return np.stack([values, np.ones(len(values))], axis=1)


def gradient_blocks(found: dict[str, Any], sizes: dict[str, Any], name: str) -> list[str]:
    """The part of the report with the picture of this name."""
    distances, near, far, seeds = found["distances"], found["near"], found["far"], sizes["seeds"]
    rows = (
        [
            kind,
            *(_share(each["left"][str(d)]["value"]) for d in distances),
            f"{_share(each['left'][str(far)]['low'])} to {_share(each['left'][str(far)]['high'])}",
            *(_decay(Interval(**each["slope"])) if kind in ("RNN", "LSTM") else ("", "")),
        ]
        for kind, each in found["kinds"].items()
    )
    head = ["", *(f"distance {d}" for d in distances)]
    head += [f"interval at {far}", "a position leaves", "half-life, positions"]
    orders = [_order(pair["more"], pair["less"], Interval(**pair["by"]), far, seeds) for pair in found["pairs"]]
    late = [
        f"{kind}, from distance {near} to {far}: {_late(Interval(**found['kinds'][kind]['late']), seeds)}"
        for kind in ("RNN + attention", "Transformer")
    ]
    return [
        "### A gradient over a long path",
        paragraph(f"""
            The gradient of the last position's output, in a random direction, with respect to each position before,
            relative to the gradient at the last position itself: layers of width {found["width"]} at their initial
            weights, noise of {sizes["positions"]} positions, the geometric mean of {seeds} seeds and its 95 % interval
            over them. Rate and half-life are fitted to the logarithm over the distances from 1 to {far}.
        """),
        picture(name, "The share of a gradient that is left at each distance"),
        table(head, rows),
        bullets([*orders, *late]),
        paragraph(f"""
            Between two positions a recurrent layer's gradient is multiplied once for each position. Attention reaches
            all n positions in one hop, each with a share, 1/n = {1 / sizes["positions"]:.2g} where it looks at all
            alike. At distance 0, a part of a Transformer's gradient also goes past attention, through the residual
            connection.
        """),
    ]


def _order(more: str, less: str, by: Interval, far: int, seeds: int) -> str:
    """A sentence that compares two kinds at the largest distance; `by` is in natural logarithms."""
    tens = Interval(*(x / math.log(10) for x in (by.value, by.low, by.high)))
    text = f"At distance {far}, {more} against {less}, in powers of ten: {tens.text(sign=True)}"
    if not tens.excludes_zero:
        return f"{text}, no difference that {seeds} seeds can show."
    return f"{text}. {more if tens.value > 0 else less} keeps more."


def _late(lost: Interval, seeds: int) -> str:
    factor = Interval(*(math.exp(x) for x in (lost.value, lost.low, lost.high))).text(2)
    if not lost.excludes_zero:
        return f"times {factor}, no change that {seeds} seeds can show."
    return f"times {factor}, a {'loss' if lost.value < 0 else 'gain'}."


def _decay(slope: Interval) -> tuple[str, str]:
    """A sentence on the factor by which a gradient changes at each position, and on the distance where half is left."""
    left = f"{math.exp(slope.value):.3f}"
    if slope.high >= 0:
        return left, "no decay shown"
    return left, Interval(*(-math.log(2) / x for x in (slope.value, slope.low, slope.high))).text(2)


def _share(logarithm: float) -> str:
    share = math.exp(logarithm)
    return f"{share:.2f}" if share >= 0.1 else scientific(share)
