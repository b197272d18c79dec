"""Ops that tell what was called and with what."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from minitransformer.ops import Ops, numpy_ops


class Spies:
    """`.ops` is a table whose every op does what it did, counts its calls, and notes the floating types it met."""

    def __init__(self, ops: Ops = numpy_ops) -> None:
        self.calls: Counter[str] = Counter()
        self.dtypes: dict[str, set[np.dtype]] = {}
        names = [field.name for field in dataclasses.fields(ops)]
        self.ops = Ops(**{name: self._spied(name, getattr(ops, name)) for name in names})

    def _spied(self, name: str, op: Any) -> Any:
        def spy(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            result = op(*arguments, **options)
            met = self.dtypes.setdefault(name, set())
            met.update(array.dtype for array in floats((arguments, options, result)))
            return result

        return spy

    @property
    def math(self) -> set[str]:
        """The pairs that were reached, by their common name: `relu` for `relu_forward` or `relu_backward`."""
        return {name.rsplit("_", 1)[0] for name in self.calls if name.endswith(("_forward", "_backward"))}


def floats(value: Any) -> Iterator[np.ndarray | np.generic]:
    """Every floating-point array in nested tuples, lists and dictionaries."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f":
        yield value
    elif isinstance(value, dict):
        yield from floats(list(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from floats(item)
