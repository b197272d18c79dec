"""Counting the floating-point operations of a model by running it: for models that no formula in `costs` describes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..ops import Array, Ops


@dataclass
class Tally:
    """Floating-point operations of the matrix products so far, by op: forward and backward together."""

    by_op: dict[str, float] = field(default_factory=dict)

    def add(self, op: str, count: float) -> None:
        """Note operations of an op."""
        self.by_op[op] = self.by_op.get(op, 0.0) + count

    @property
    def total(self) -> float:
        """Of all ops."""
        return sum(self.by_op.values())


def counting(ops: Ops) -> tuple[Ops, Tally]:
    """A table that does what `ops` does and notes what its matrix products cost, and that note.

    `(m, k) @ (k, n)` takes 2·m·k·n. A backward takes two products for each of its forward. What is masked is computed
    all the same and counts, except outside a window, whose purpose it is to leave that out.
    """
    tally = Tally()
    counted = {}
    for op, cost in FORWARD_COSTS.items():
        counted[f"{op}_forward"] = _forward(op, getattr(ops, f"{op}_forward"), cost, tally)
        counted[f"{op}_backward"] = _backward(op, getattr(ops, f"{op}_backward"), tally)
    return replace(ops, **counted), tally


def _forward(op: str, forward: Callable, cost: Callable[..., float], tally: Tally) -> Callable:
    def counted(*arrays: Array, **options: Any) -> tuple[Array, tuple]:
        flops = cost(*arrays, **options)
        tally.add(op, flops)
        out, cache = forward(*arrays, **options)
        return out, (flops, cache)

    return counted


def _backward(op: str, backward: Callable, tally: Tally) -> Callable:
    def counted(dout: Array, cache: tuple, **options: Any) -> Any:
        flops, cache = cache
        tally.add(op, 2 * flops)
        return backward(dout, cache, **options)

    return counted


def _linear(x: Array, weight: Array, bias: Array | None) -> float:
    return 2 * math.prod(x.shape) * weight.shape[1]


def _attention(query: Array, key: Array, value: Array, *, window: int | None = None, **options: Any) -> float:
    """`query keyᵀ` and `weights value`, over the keys that a window reaches."""
    batch, heads, num_queries, width = query.shape
    num_keys, offset = key.shape[2], key.shape[2] - query.shape[2]
    pairs = num_queries * num_keys
    if window is not None:
        reached = ((max(0, p - window), min(num_keys, p + window + 1)) for p in range(offset, num_keys))
        pairs = sum(max(0, stop - start) for start, stop in reached)
    return 2 * batch * heads * pairs * (width + value.shape[3])


def _linear_cross_entropy(x: Array, table: Array, targets: Array, **options: Any) -> float:
    """The logits of every target, ignored ones too."""
    return 2 * math.prod(x.shape) * table.shape[0]


FORWARD_COSTS: dict[str, Callable[..., float]] = {
    "linear": _linear,
    "attention": _attention,
    "linear_cross_entropy": _linear_cross_entropy,
}
"""Operations of each op that has matrix products, by its forward's arguments."""
