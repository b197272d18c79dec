"""Table 1: what a layer costs, how much of it must wait for itself, and how far a signal has to travel.

n is the length of the sequence, d the width, k a convolution's kernel, r a window's reach. The formulas are the
paper's; the counts come from running our layers. Source: Vaswani 2017, §4, table 1.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from minitransformer.layers import Attention, AttentionConfig, FlatParameters, GatedConvolution, Layer, Recurrent
from minitransformer.ops import Array, Ops, numpy_ops
from minitransformer.probe import Call, probe

from ...trials.counting import counting

KERNEL_WIDTH, WINDOW = 5, 8
ATTENTION, RECURRENT, CONVOLUTION = "Self-Attention", "Recurrent", "Convolutional"
RESTRICTED = "Self-Attention (restricted)"


@dataclass(frozen=True)
class LayerType:
    """A row of table 1, and a layer of ours to count it on.

    `mixing`: the op in which positions meet. For attention that is all that the paper counts; its projections, four
    products of d × d at each position, come on top; `alone` is a layer without them.
    `derived`: what `operations` counts of the mixing, by hand, of n and d; n > r.
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
    """Attention without its projections: a position is query, key and value as it stands."""

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
        lambda ops, d: Attention(ops, d, AttentionConfig(1, d, d)),
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
        lambda ops, d: Attention(ops, d, AttentionConfig(1, d, d, window=WINDOW)),
        lambda n, d: 4 * (n * (2 * WINDOW + 1) - WINDOW * (WINDOW + 1)) * d,
        lambda ops, d: _Attention(ops, WINDOW),
    ),
]


def operations(kind: LayerType, n: int, d: int, *, whole: bool = False) -> float:
    """Floating-point operations of the mixing, or of the whole layer, forward, of one sequence."""
    ops, tally = counting(numpy_ops)
    _layer(kind.make, ops, d).forward(_sequence(n, d))
    return tally.forward if whole else tally.by_op[kind.mixing]


def num_calls(kind: LayerType, n: int, d: int = 4) -> int:
    """How many ops a forward calls, one after the other: each works on all the positions that it is given at once."""
    return _calls(kind, n, d).total()


def _calls(kind: LayerType, n: int, d: int) -> Counter[str]:
    """How often a forward of one sequence calls each op."""
    calls: Counter[str] = Counter()

    def count(call: Call) -> None:
        calls[call.op] += call.way == "forward"

    _layer(kind.make, probe(numpy_ops, count), d).forward(_sequence(n, d))
    return calls


def path_length(kind: LayerType, n: int, d: int = 4) -> int:
    """How many hops a signal takes from one end of a sequence to the other.

    A hop is a layer, whose reach is measured: the largest distance at which an input has a gradient from an output. In
    a recurrent layer it is a step from one state to the next: of the states, each of which takes a tanh, all but the
    first.
    """
    if kind.name == RECURRENT:
        return _calls(kind, n, d)["tanh"] - 1
    layer = _layer(kind.make, numpy_ops, d)
    out, cache = layer.forward(_sequence(n, d))
    dout = np.zeros_like(out)
    dout[:, -1] = 1.0
    gradients = layer.backward(dout, cache)
    dx = gradients[0] if isinstance(gradients, tuple) else gradients  # attention's has another for the memory
    seen = np.flatnonzero(np.abs(dx[0]).max(axis=1))
    return math.ceil((n - 1) / (n - 1 - seen[0]))


def dilated_layers(n: int, k: int) -> int:
    """How many dilated convolutions it takes until a sequence's last position has heard of its first.

    A position of the l-th layer sees itself and the k − 1 before it at multiples of k^l. What has heard of the first
    position is kept track of, layer by layer; that it comes to ⌈log_k n⌉ is a result.
    Raises `ValueError` for no position, or a kernel that sees but one. Source: Vaswani 2017, §4.
    """
    if n < 1 or k < 2:
        raise ValueError(f"there are {n} positions and a kernel of {k}, expected at least 1 and 2")
    heard, layers = np.arange(n) == 0, 0
    while not heard[-1]:
        shifts = range(0, min(k**layers * k, n), k**layers)
        heard = np.logical_or.reduce([np.pad(heard[: n - shift], (shift, 0)) for shift in shifts])
        layers += 1
    return layers


def seconds(kind: LayerType, n: int, d: int, repeats: int = 5, *, least: float = 0.0, alone: bool = False) -> float:
    """The least time of a forward and backward of one sequence.

    repeats  at least so many, and as many as `least` seconds hold
    alone    attention without its projections. Raises `ValueError` for what has none.
    """
    make = kind.alone if alone else kind.make
    if make is None:
        raise ValueError(f"a layer of type {kind.name!r} is its mixing: it has no projections to leave out")
    layer = _layer(make, numpy_ops, d)
    x = _sequence(n, d)

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
    """The slope of values over sizes, both in logarithms: the e of `values ∝ sizes^e`, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def two_terms(sizes: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """The a, b ≥ 0 of `values ≈ a · size + b · size²`, by least squares of the deviations relative to the values.

    Relative, since the largest sizes would otherwise decide alone. Raises `ValueError` for fewer than two sizes.
    """
    if len(sizes) < 2:
        raise ValueError(f"there are {len(sizes)} sizes, expected at least 2 for two terms")
    size, value = np.array(sizes, dtype=float), np.array(values, dtype=float)
    terms = np.stack([size / value, size**2 / value], axis=1)  # (N, 2)
    ones = np.ones(len(size))
    a, b = np.linalg.lstsq(terms, ones)[0]
    if a < 0 or b < 0:
        # Where the best pair has a negative number, the best pair without one has a zero.
        alone = [column @ ones / (column @ column) for column in terms.T]
        misses = [np.linalg.norm(column * factor - 1) for column, factor in zip(terms.T, alone, strict=True)]
        a, b = (alone[0], 0.0) if misses[0] <= misses[1] else (0.0, alone[1])
    return float(a), float(b)


def crossing(sizes: Sequence[int], values: Sequence[float], others: Sequence[float]) -> float | None:
    """The size from which `values` stay at or above `others`: between two sizes, straight lines in logarithms.

    The first size where they are above throughout; `None` where they are below at the last.
    """
    gaps = np.log(values) - np.log(others)
    below = np.flatnonzero(gaps < 0)
    if len(below) == 0:
        return float(sizes[0])
    i = below[-1]
    if i == len(sizes) - 1:
        return None
    part = gaps[i] / (gaps[i] - gaps[i + 1])
    return float(sizes[i] * (sizes[i + 1] / sizes[i]) ** part)


def _layer(make: Callable[[Ops, int], Layer], ops: Ops, d: int) -> Any:
    layer = make(ops, d)
    FlatParameters(dict(layer.named_parameters()), ops, "float32").initialize(seed=0)
    return layer


def _sequence(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, n, d)).astype(np.float32)
