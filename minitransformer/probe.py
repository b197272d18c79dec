"""Watching the ops of any table: what is called, with what, what comes out and how long it takes.

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
    """A call of an op, once it is done. `way` is empty where the op is no pair; `seconds` is wall-clock time.

    `result` is what the op returned: of a forward the output and its cache, of a backward the gradients.
    """

    op: str
    way: Way
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    result: Any
    seconds: float


def probe(ops: Ops, watch: Callable[[Call], Any]) -> Ops:
    """A table that does what `ops` does, and hands every call to `watch` when it is done.

    `watch` runs in the thread of the call. Nothing is kept here: a watcher that keeps calls keeps their arrays too.
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
        elif callable(entry) and name != "repeated":  # what a step runs consists of calls that are watched
            entries[name] = watched(name, "", entry)
    return Ops(**entries)
