"""What the kernels are meant to reach on an H200, where a bf16 product runs at 788 TFLOP/s and a copy at 4.3 TB/s."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .results import Ledger, entries

GPU = "H200"
"""Whose name has to hold this for the targets to count; on others they are shown for scale."""

Values = Callable[[Ledger], Iterable[float | None]]

BOTH = "forward + backward"
LONG = (4096, 8192, 16_384)

PUBLISHED = {"FlashAttention-2": "368", "Triton's own tutorial": "460–487", "cuDNN": "609", "FlashAttention-3": "638"}
"""TFLOP/s on an H100 of attention's forward, D = 128 in full, 4k to 16k: for scale."""


@dataclass(frozen=True)
class Target:
    """A quantity, what it has to be at least (or at most), and how it is read from a ledger; in `unit`."""

    what: str
    bound: float
    unit: str
    values: Values
    at_most: bool = False

    def measured(self, ledger: Ledger) -> float | None:
        """The worst of its values; `None` unless all of them were measured."""
        values = list(self.values(ledger))
        if not values or None in values:
            return None
        return (max if self.at_most else min)(value for value in values if value is not None)

    def met(self, ledger: Ledger) -> bool | None:
        """`None` where it was not measured."""
        value = self.measured(ledger)
        return None if value is None else value <= self.bound if self.at_most else value >= self.bound


def _tflops(kind: str, D: int, lengths: Iterable[int]) -> Values:
    return lambda ledger: (_attention(ledger, "forward", kind, D, T).get("tflops") for T in lengths)


def _against(peer: str) -> Values:
    """How many times as fast as a peer, forward and backward."""
    return lambda ledger: (
        _ratio(_attention(ledger, BOTH, kind, D, T, peer).get("ms"), _attention(ledger, BOTH, kind, D, T).get("ms"))
        for kind in ("full", "causal")
        for D in (64, 128)
        for T in LONG
    )


def _cost(kind: str) -> Values:
    """How much longer each pair that attends takes than where all do, in percent."""

    def values(ledger: Ledger) -> Iterable[float | None]:
        for what in ("forward", BOTH):
            full, other = (_attention(ledger, what, k, 128, 4096).get("tflops") for k in ("full", kind))
            ratio = _ratio(full, other)
            yield None if ratio is None else 100 * (ratio - 1)

    return values


def _share(op: str, what: str, longer: int = 0, longest: float = math.inf) -> Values:
    """The percentages of a copy's GB/s at all sizes, or only where rows are `longer` than one and at most `longest`."""

    def values(ledger: Ledger) -> Iterable[float | None]:
        for entry in entries(ledger, "rows"):
            length = entry["size"].get("columns", 1)
            if (entry["op"], entry["what"]) == (op, what) and longer < length <= longest:
                share = entry["contestants"]["ours"].get("share")
                yield None if share is None else 100 * share

    return values


def _step(ledger: Ledger) -> Iterable[float | None]:
    """How many times as fast as `torch.compile` the best of our steps is."""
    times = {e["what"]: c.get("ms") for e in entries(ledger, "swap") for c in e["contestants"].values()}
    yield _ratio(times.get("PyTorch, torch.compile"), times.get("+ CUDA graph"))


def _attention(ledger: Ledger, what: str, kind: str, D: int, T: int, who: str = "ours") -> dict[str, Any]:
    for entry in entries(ledger, "attention"):
        size = entry["size"]
        if (entry["what"], size["kind"], size["D"], size["Tq"], size["Tk"]) == (what, kind, D, T, T):
            return entry["contestants"].get(who, {})
    return {}


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


TARGETS = (
    Target("attention forward, D 128, full, 4k–16k", 520, "TFLOP/s", _tflops("full", 128, LONG)),
    Target("attention forward, D 128, causal, 16k", 460, "TFLOP/s", _tflops("causal", 128, LONG[-1:])),
    Target("attention forward, D 64, full, 4k–16k", 420, "TFLOP/s", _tflops("full", 64, LONG)),
    Target("attention forward, D 64, causal, 16k", 375, "TFLOP/s", _tflops("causal", 64, LONG[-1:])),
    Target("attention, both ways, against FlashAttention-2", 1.15, "times as fast", _against("FlashAttention-2")),
    Target("attention, both ways, against cuDNN", 0.7, "times as fast", _against("cuDNN")),
    Target("padding costs", 5, "%", _cost("padding"), at_most=True),
    Target("dropout costs", 25, "%", _cost("dropout"), at_most=True),
    Target("softmax, up to 64k columns", 92, "% of a copy", _share("softmax", "forward", longest=65_536)),
    Target("softmax, beyond 64k columns", 62, "% of a copy", _share("softmax", "forward", longer=65_536)),
    Target("layernorm forward", 92, "% of a copy", _share("layernorm", "forward")),
    Target("add_layernorm forward", 92, "% of a copy", _share("add_layernorm", "forward")),
    Target("layernorm backward", 80, "% of a copy", _share("layernorm", "backward")),
    Target("add_layernorm backward", 80, "% of a copy", _share("add_layernorm", "backward")),
    Target("cross_entropy forward + backward", 85, "% of a copy", _share("cross_entropy", BOTH)),
    Target("Adam", 92, "% of a copy", _share("adam", "step")),
    Target("dropout", 92, "% of a copy", _share("dropout", "forward")),
    Target("base training step, against torch.compile with SDPA", 1.0, "times as fast", _step),
)
