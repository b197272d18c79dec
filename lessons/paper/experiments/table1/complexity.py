"""Table 1: the cost of a layer, its sequential operations, and the path length of a signal through it.

n is the length of the sequence, d the width, k the kernel width of a convolution, r the reach of a window. The formulas
are the paper's; the counts come from running our layers. Source: Vaswani 2017, §4, table 1.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from minitransformer.layers import AttentionConfig, FlatParameters, GatedConvolution, Layer, Recurrent, SelfAttention
from minitransformer.ops import Array, Ops, numpy_ops, without_spurious_warnings
from minitransformer.probe import Call, probe
from study.trials.counting import counting

KERNEL_WIDTH, WINDOW = 5, 8
NARROW = 4  # the width for numbers that do not depend on it
ATTENTION, RECURRENT, CONVOLUTION = "Self-Attention", "Recurrent", "Convolutional"
RESTRICTED = "Self-Attention (restricted)"


@dataclass(frozen=True)
class LayerType:
    """A row of table 1, and a layer of ours to count it on.

    `mixing`: the op in which positions meet. The paper counts only this op for attention; its projections, four
    products of d × d at each position, are not in the formula, and `alone` is a layer without them.
    `derived`: the operations of the mixing, derived by hand from n and d, for n > r.
    """

    name: str
    complexity: str
    sequential: str
    path: str
    mixing: str
    make: Callable[[Ops, int], Layer]
    derived: Callable[[int, int], int]
    alone: Callable[[Ops, int], Layer] | None = None


class _Attention(Layer):
    """Attention without its projections: each position itself is query, key and value."""

    def __init__(self, ops: Ops, window: int | None = None) -> None:
        super().__init__(ops)
        self.window = window

    def forward(self, x: Array) -> tuple[Array, tuple]:
        head = x[:, None]  # (B, 1, T, C)
        out, cache = self.ops.attention.forward(head, head, head, window=self.window)
        return out[:, 0], cache

    def backward(self, dout: Array, cache: tuple) -> Array:
        dquery, dkey, dvalue = self.ops.attention.backward(dout[:, None], cache)
        return (dquery + dkey + dvalue)[:, 0]


LAYER_TYPES = [
    LayerType(
        ATTENTION,
        "O(n² · d)",
        "O(1)",
        "O(1)",
        "attention",
        lambda ops, d: SelfAttention(ops, d, AttentionConfig(1, d, d)),
        lambda n, d: 4 * n * n * d,
        lambda ops, d: _Attention(ops),
    ),
    LayerType(
        RECURRENT,
        "O(n · d²)",
        "O(n)",
        "O(n)",
        "linear",
        lambda ops, d: Recurrent(ops, "tanh", d, d),
        lambda n, d: 4 * n * d * d,
    ),
    LayerType(
        CONVOLUTION,
        "O(k · n · d²)",
        "O(1)",
        "O(log_k(n))",  # dilated, the paper says (`dilated_layers`); O(n/k) with kernels that see neighbours, like ours
        "conv1d",
        lambda ops, d: GatedConvolution(ops, d, KERNEL_WIDTH, causal=False),
        lambda n, d: 4 * KERNEL_WIDTH * n * d * d,
    ),
    LayerType(
        RESTRICTED,
        "O(r · n · d)",
        "O(1)",
        "O(n/r)",
        "attention",
        lambda ops, d: SelfAttention(ops, d, AttentionConfig(1, d, d, window=WINDOW)),
        lambda n, d: 4 * (n * (2 * WINDOW + 1) - WINDOW * (WINDOW + 1)) * d,
        lambda ops, d: _Attention(ops, WINDOW),
    ),
]


def operations(kind: LayerType, n: int, d: int, *, whole: bool = False) -> float:
    """Floating-point operations of the mixing, or of the whole layer, in a forward of one sequence."""
    ops, tally = counting(numpy_ops)
    _layer(kind.make, ops, d).forward(_sequence(n, d))
    return tally.forward if whole else tally.by_op[kind.mixing]


def num_calls(kind: LayerType, n: int) -> int:
    """The number of ops that a forward calls, one after the other; each computes all of its positions at once."""
    return _calls(kind, n).total()


def _calls(kind: LayerType, n: int) -> Counter[str]:
    """The number of calls of each op in a forward of one sequence."""
    calls: Counter[str] = Counter()

    def count(call: Call) -> None:
        calls[call.op] += call.way == "forward"

    _layer(kind.make, probe(numpy_ops, count), NARROW).forward(_sequence(n, NARROW))
    return calls


def path_length(kind: LayerType, n: int) -> int:
    """The number of hops that a signal takes from one end of a sequence to the other.

    A hop is a layer. Its reach is measured: the largest distance at which an input has a gradient from an output. In a
    recurrent layer a hop is a step from one state to the next; each state calls tanh once, and the first needs no hop.
    """
    if kind.name == RECURRENT:
        return _calls(kind, n)["tanh"] - 1
    layer = _layer(kind.make, numpy_ops, NARROW)
    out, cache = layer.forward(_sequence(n, NARROW))
    dout = np.zeros_like(out)
    dout[:, -1] = 1.0
    gradients = layer.backward(dout, cache)
    dx = gradients[0] if isinstance(gradients, tuple) else gradients  # attention also returns one for the memory
    seen = np.flatnonzero(np.abs(dx[0]).max(axis=1))
    return math.ceil((n - 1) / (n - 1 - seen[0]))


def dilated_layers(n: int, k: int) -> int:
    """The number of dilated convolutions after which a sequence's last position depends on its first.

    A position of layer l sees itself and k − 1 positions before it, at distances that are multiples of k^l. The
    function follows, layer by layer, which positions depend on the first; the result is ⌈log_k n⌉.
    Raises `ValueError` without positions, or for a kernel that sees only one. Source: Vaswani 2017, §4.
    """
    if n < 1 or k < 2:
        raise ValueError(f"there are {n} positions and a kernel of {k}, expected at least 1 and 2")
    depends, layers = np.arange(n) == 0, 0  # True for positions that depend on the first
    while not depends[-1]:
        shifts = range(0, min(k**layers * k, n), k**layers)
        depends = np.logical_or.reduce([np.pad(depends[: n - shift], (shift, 0)) for shift in shifts])
        layers += 1
    return layers


def seconds(kind: LayerType, n: int, d: int, repeats: int = 5, *, least: float = 0.0, alone: bool = False) -> float:
    """The least time of a forward and backward of one sequence, with ops that check no arguments, as inside a model.

    repeats  the fewest repetitions; there are more until `least` seconds have passed
    alone    attention without its projections. Raises `ValueError` for a layer that has none.
    """
    make = kind.alone if alone else kind.make
    if make is None:
        raise ValueError(f"a layer of type {kind.name!r} is its mixing: it has no projections to leave out")
    layer = _layer(make, numpy_ops.unchecked(), d)
    x = _sequence(n, d)

    @without_spurious_warnings
    def once() -> float:
        start = perf_counter()
        out, cache = layer.forward(x)
        gradient = (out[0], None) if isinstance(out, tuple) else (out,)  # a recurrent layer has a final state too
        layer.backward(*gradient, cache)
        return perf_counter() - start

    times = [once() for _ in range(repeats)]
    best, total = min(times), sum(times)
    while total < least:
        latest = once()
        best, total = min(best, latest), total + latest
    return best


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The exponent e in `values ∝ sizes^e`: the slope of their logarithms, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def two_terms(sizes: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """The a, b ≥ 0 in `values ≈ a · size + b · size²`, by least squares of the relative deviations.

    With absolute deviations the largest sizes alone would decide. Raises `ValueError` for fewer than two sizes.
    """
    if len(sizes) < 2:
        raise ValueError(f"there are {len(sizes)} sizes, expected at least 2 for two terms")
    size, value = np.array(sizes, dtype=float), np.array(values, dtype=float)
    terms = np.stack([size / value, size**2 / value], axis=1)  # (N, 2)
    ones = np.ones(len(size))
    a, b = np.linalg.lstsq(terms, ones)[0]
    if a < 0 or b < 0:
        # If the best pair has a negative number, the best pair of non-negative numbers has a zero.
        alone = [column @ ones / (column @ column) for column in terms.T]
        misses = [np.linalg.norm(column * factor - 1) for column, factor in zip(terms.T, alone, strict=True)]
        a, b = (alone[0], 0.0) if misses[0] <= misses[1] else (0.0, alone[1])
    return float(a), float(b)


def _layer(make: Callable[[Ops, int], Layer], ops: Ops, d: int) -> Any:
    layer = make(ops, d)
    FlatParameters(dict(layer.named_parameters()), ops, "float32").initialize(seed=0)
    return layer


def _sequence(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, n, d)).astype(np.float32)
