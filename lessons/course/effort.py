"""What a call costs, counted and not timed: the memory it needs at a time, and the lines of Python it runs."""

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any


def most_memory(call: Callable[[], Any]) -> int:
    """The most bytes that `call` has at a time, beyond those that were there before."""
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if started:
            tracemalloc.stop()


def lines_run(call: Callable[[], Any]) -> int:
    """How many lines of Python `call` runs, in all functions; each round of a loop counts, also on one line."""
    count, tracer = 0, sys.gettrace()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(tracer)
    return count
