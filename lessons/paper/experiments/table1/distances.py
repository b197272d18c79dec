"""What a long path does: how much of a gradient is left of a signal that has come far.

Layers at their initial weights, in front of them noise: of the last position's output, a random direction, and its
gradient at each position before. Through a recurrent layer it has passed every position between; attention, on top of
it or by itself, is there in one step (Bengio, Simard, Frasconi 1994; Vaswani 2017, §4).
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.layers import AdditiveAttention, EncoderLayer, FlatParameters, Layer, Recurrent
from minitransformer.models import TransformerConfig
from minitransformer.ops import Array, Ops, numpy_ops
from minitransformer.plots.page import BLUE, GREEN, INK, ORANGE, VERMILION, Page

from ...charts import finish

WIDTH, LENGTH, SEEDS = 64, 100, 5
COLOURS = {
    "RNN": VERMILION,
    "LSTM": ORANGE,
    "RNN + attention": GREEN,
    "Transformer": BLUE,
}


class _LookingBack(Layer):
    """A recurrent layer, and additive attention of each of its states to all of them, which is added to it."""

    def __init__(self, ops: Ops, cell: str, width: int) -> None:
        super().__init__(ops)
        self.recurrent, self.attention = Recurrent(ops, cell, width, width), AdditiveAttention(ops, width)

    def forward(self, x: Array) -> tuple[tuple[Array, Any], tuple]:
        (hidden, final), recurrent_cache = self.recurrent.forward(x)
        context, attention_cache = self.attention.forward(hidden, hidden)
        return (hidden + context, final), (recurrent_cache, attention_cache)

    def backward(self, dout: Array, dfinal: None, cache: tuple) -> tuple[Array, Any]:
        recurrent_cache, attention_cache = cache
        dquery, dmemory = self.attention.backward(dout, attention_cache)
        return self.recurrent.backward(dout + dquery + dmemory, dfinal, recurrent_cache)


def _transformer(ops: Ops, width: int) -> Layer:
    config = TransformerConfig(8, d_model=width, num_heads=4, d_ff=4 * width, dropout=0.0)
    return EncoderLayer(ops, config.block(), itertools.count())


KINDS: dict[str, Callable[[Ops, int], Layer]] = {
    "RNN": lambda ops, width: Recurrent(ops, "tanh", width, width),
    "LSTM": lambda ops, width: Recurrent(ops, "lstm", width, width),
    "RNN + attention": lambda ops, width: _LookingBack(ops, "tanh", width),
    "Transformer": _transformer,
}


def gradient_norms(kind: str, length: int = LENGTH, width: int = WIDTH, seeds: int = SEEDS) -> np.ndarray:
    """The norm of the gradient at each distance from the last position, `(length,)`, that at distance 0 first.

    The geometric mean over weights and inputs from several seeds.
    """
    return np.exp(gradient_logarithms(kind, length, width, seeds).mean(0))


def gradient_logarithms(kind: str, length: int = LENGTH, width: int = WIDTH, seeds: int = SEEDS) -> np.ndarray:
    """The natural logarithm of each seed's norms, `(seeds, length)`."""
    return np.array([_logarithms(kind, length, width, seed) for seed in range(seeds)])


def _logarithms(kind: str, length: int, width: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    layer: Any = KINDS[kind](numpy_ops, width)
    FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(seed)
    out, cache = layer.forward(rng.standard_normal((1, length, width)))
    recurrent = isinstance(out, tuple)  # with a final state, whose gradient is nobody's
    dout = np.zeros((1, length, width))
    dout[0, -1] = rng.standard_normal(width)
    dx = layer.backward(dout, None, cache)[0] if recurrent else layer.backward(dout, cache)
    return np.log(np.linalg.norm(dx[0, ::-1], axis=-1))


def draw_distances(norms: dict[str, np.ndarray], path: str | Path) -> None:
    """Each kind's `gradient_norms`, relative to the nearest position's. Raises `OSError` as `Page.save`."""
    page = Page(7.4, 3.2, layout="constrained")
    axes = page.figure.subplots()
    for kind, values in norms.items():
        axes.plot(range(1, len(values)), values[1:] / values[0], color=COLOURS[kind], lw=1.6, label=kind)
    axes.set_yscale("log")
    finish(axes, "distance, positions", "gradient, relative to distance 0")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    page.save(path)
