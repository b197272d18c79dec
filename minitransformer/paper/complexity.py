"""Table 1: what a layer costs, how much of it must wait for itself, and how far a signal has to travel.

n is the length of the sequence, d the width, k a convolution's kernel, r a window's reach. The formulas are the
paper's; the counts come from running our layers. Source: Vaswani 2017, §4, table 1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any

import numpy as np

from ..layers import FlatParameters, GatedConvolution, Layer, Recurrent, SelfAttention
from ..ops import Ops, numpy_ops
from .counting import counting

KERNEL_WIDTH, WINDOW = 5, 8


@dataclass(frozen=True)
class LayerType:
    """A row of table 1, and a layer of ours to count it on.

    `mixing`: the op in which positions meet. For attention that is all that the paper counts; its projections, four
    products of d × d at each position, come on top.
    """

    name: str
    complexity: str
    sequential: str
    path: str
    mixing: str
    make: Callable[[Ops, int], Layer]


LAYER_TYPES = [
    LayerType(
        "Self-Attention", "O(n² · d)", "O(1)", "O(1)", "attention", lambda ops, d: SelfAttention(ops, d, 1, d, d)
    ),
    LayerType("Recurrent", "O(n · d²)", "O(n)", "O(n)", "linear", lambda ops, d: Recurrent(ops, "tanh", d, d)),
    LayerType(
        "Convolutional",
        "O(k · n · d²)",
        "O(1)",
        "O(log_k(n))",  # dilated, the paper says; O(n/k) with kernels that see neighbours, such as ours
        "conv1d",
        lambda ops, d: GatedConvolution(ops, d, KERNEL_WIDTH, causal=False),
    ),
    LayerType(
        "Self-Attention (restricted)",
        "O(r · n · d)",
        "O(1)",
        "O(n/r)",
        "attention",
        lambda ops, d: SelfAttention(ops, d, 1, d, d, window=WINDOW),
    ),
]


def operations(kind: LayerType, n: int, d: int) -> float:
    """Floating-point operations of the mixing, forward, of one sequence."""
    ops, tally = counting(numpy_ops)
    _layer(kind, ops, d).forward(_sequence(n, d))
    return tally.by_op[kind.mixing]


def num_calls(kind: LayerType, n: int, d: int = 4) -> int:
    """How many ops a forward calls, one after the other: each works on all the positions that it is given at once."""
    calls = 0

    def counted(forward: Callable) -> Callable:
        def call(*arrays: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return forward(*arrays, **options)

        return call

    names = [each.name for each in fields(numpy_ops) if each.name.endswith("_forward")]
    ops = replace(numpy_ops, **{name: counted(getattr(numpy_ops, name)) for name in names})
    _layer(kind, ops, d).forward(_sequence(n, d))
    return calls


def path_length(kind: LayerType, n: int, d: int = 4) -> int:
    """How many hops a signal takes from one end of a sequence to the other.

    A hop is a layer, whose reach is measured: the largest distance at which an input has a gradient from an output. In
    a recurrent layer it is a step from one position to the next.
    """
    if kind.name == "Recurrent":
        return n - 1
    layer = _layer(kind, numpy_ops, d)
    out, cache = layer.forward(_sequence(n, d))
    dout = np.zeros_like(out)
    dout[:, -1] = 1.0
    seen = np.flatnonzero(np.abs(layer.backward(dout, cache)[0]).max(axis=1))
    return math.ceil((n - 1) / (n - 1 - seen[0]))


def seconds(kind: LayerType, n: int, d: int, repeats: int = 5) -> float:
    """The least time of a forward and backward of one sequence."""
    layer = _layer(kind, numpy_ops, d)
    x = _sequence(n, d)

    def once() -> float:
        start = perf_counter()
        out, cache = layer.forward(x)
        gradient = (out[0], None) if isinstance(out, tuple) else (out,)  # a recurrent layer has a final state too
        layer.backward(*gradient, cache)
        return perf_counter() - start

    return min(once() for _ in range(repeats))


def exponent(sizes: list[int], values: list[float]) -> float:
    """The slope of values over sizes, both in logarithms: the e of `values ∝ sizes^e`, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _layer(kind: LayerType, ops: Ops, d: int) -> Any:
    layer = kind.make(ops, d)
    FlatParameters(dict(layer.named_parameters()), ops, "float32").initialize(seed=0)
    return layer


def _sequence(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, n, d)).astype(np.float32)
