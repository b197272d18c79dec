"""Watches the ops of any table: each call with its op, its arguments, its result and its time.

    calls = []
    model = Transformer(config, ops=probe(numpy_ops, calls.append))

Counting operations, timing, tracing shapes and drawing attention maps are functions of such calls.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from time import perf_counter
from typing import Any, Literal

from .ops import Ops, Pair

Way = Literal["forward", "backward", ""]


@dataclass(frozen=True)
class Call:
    """A finished call of an op. `way` is empty if the op is not a pair; `seconds` is wall-clock time.

    `result` is what the op returned: a forward its output and cache, a backward its gradients.
    """

    op: str
    way: Way
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    result: Any
    seconds: float


def probe(ops: Ops, watch: Callable[[Call], Any]) -> Ops:
    """Return a table that computes as `ops` does, and passes every finished call to `watch`.

    `watch` runs in the thread of the call. A call that it keeps holds its arrays in memory.
    """

    def watched(op: str, way: Way, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            start = perf_counter()
            result = function(*arguments, **options)
            watch(Call(op, way, arguments, options, result, perf_counter() - start))
            return result

        return call

    entries: dict[str, Any] = {field.name: getattr(ops, field.name) for field in fields(ops)}
    for name, entry in entries.items():
        if isinstance(entry, Pair):
            entries[name] = Pair(watched(name, "forward", entry.forward), watched(name, "backward", entry.backward))
        elif callable(entry) and name != "repeated":  # this one only prepares a function, which calls watched ops
            entries[name] = watched(name, "", entry)
    return Ops(**entries)
