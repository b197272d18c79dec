"""Count the floating-point operations of a model by running it, for models without a formula in `costs`."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from minitransformer.ops import Array, Ops, Pattern, attention_mask
from minitransformer.probe import Call, probe


@dataclass
class Tally:
    """The floating-point operations so far of the matrix products in forwards, by op."""

    by_op: Counter[str] = field(default_factory=Counter)

    @property
    def forward(self) -> int:
        """The operations of all ops together, in the forward."""
        return self.by_op.total()

    @property
    def training(self) -> int:
        """Forward and backward together; the backward has two products for each of the forward, one for each factor."""
        return 3 * self.forward


def counting(ops: Ops) -> tuple[Ops, Tally]:
    """A table that computes as `ops` does and counts the operations of matrix products, and the tally of them.

    `(m, k) @ (k, n)` takes 2·m·k·n. Masked products are computed, so they count, except outside a window, whose purpose
    is to leave them out.
    """
    tally = Tally()

    def count(call: Call) -> None:
        if call.way == "forward" and call.op in COSTS:
            tally.by_op[call.op] += COSTS[call.op](*call.arguments, **call.options)

    return probe(ops, count), tally


def _linear(x: Array, weight: Array, bias: Array | None) -> int:
    return 2 * math.prod(x.shape) * weight.shape[1]


def _attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    *,
    window: Any = None,
    pattern: Pattern | None = None,
    **options: Any,
) -> int:
    """The products `query keyᵀ` and `weights value`, over the keys that a window or a sparse pattern reaches."""
    batch, heads, num_queries, width = query.shape
    num_keys = key.shape[2]
    parts = replace(pattern or Pattern(), causal=False, key_mask=None)  # masks do not reduce the operations
    mask = attention_mask(num_queries, num_keys, False, None, window, pattern=parts)
    pairs = num_queries * num_keys if mask is None else int(mask.sum())
    return 2 * batch * heads * pairs * (width + value.shape[3])


def _linear_attention(query: Array, key: Array, value: Array, **options: Any) -> int:
    """The state of all keys, `φ(k)ᵀ value` and `Σ φ(k)`, and each query's product with it."""
    batch, heads, time, width = query.shape
    return 2 * batch * (key.shape[1] + heads) * time * width * (value.shape[3] + 1)


def _linear_cross_entropy(x: Array, table: Array, targets: Array, **options: Any) -> int:
    """The logits of every target, ignored ones too."""
    return 2 * math.prod(x.shape) * table.shape[0]


def _conv1d(x: Array, weight: Array, bias: Array | None, *, padding: str = "causal") -> int:
    """One product for every output position with the K positions that it sees, including zeros at the ends."""
    batch, time, _ = x.shape
    length = time - weight.shape[0] + 1 if padding == "valid" else time
    return 2 * batch * length * math.prod(weight.shape)


def _additive_attention(query: Array, key: Array, value: Array, score_weight: Array, **options: Any) -> int:
    """The scores, and the weighted sum of the values."""
    batch, num_queries, width = query.shape
    return 2 * batch * num_queries * key.shape[1] * (width + value.shape[2])


COSTS: dict[str, Callable[..., int]] = {
    "linear": _linear,
    "attention": _attention,
    "linear_attention": _linear_attention,
    "linear_cross_entropy": _linear_cross_entropy,
    "conv1d": _conv1d,
    "additive_attention": _additive_attention,
}
"""For each op with matrix products, a function that counts its operations from the forward's arguments."""
