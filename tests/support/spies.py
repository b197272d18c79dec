"""Ops that tell what was called and with what."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from minitransformer.ops import Ops, numpy_ops
from minitransformer.probe import Call, probe


class Spies:
    """`.ops` is a table that counts its calls by name and way (`relu_forward`) and notes their floating types."""

    def __init__(self, ops: Ops = numpy_ops) -> None:
        self.calls: Counter[str] = Counter()
        self.dtypes: dict[str, set[np.dtype]] = {}
        self.math: set[str] = set()
        self.ops = probe(ops, self._note)

    def _note(self, call: Call) -> None:
        name = f"{call.op}_{call.way}" if call.way else call.op
        self.calls[name] += 1
        met = self.dtypes.setdefault(name, set())
        met.update(array.dtype for array in floats((call.arguments, call.options, call.result)))
        if call.way:
            self.math.add(call.op)


def floats(value: Any) -> Iterator[np.ndarray | np.generic]:
    """Every floating-point array in nested tuples, lists and dictionaries."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f":
        yield value
    elif isinstance(value, dict):
        yield from floats(list(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from floats(item)
