"""Contestants on the same task, one after the other: inputs drawn afresh for each, and the median time of a call.

A contestant that fails (a peer that does not take these options, or for which there is not enough memory) is written
down with its reason and stops nobody else.
"""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import kernels

from .machine import Call, Ceilings, Machine

OURS = "ours"

SETS = 2
"""Of inputs, that take turns; each is meant to be larger than the cache."""

NO_TIME = "no time left"

FORWARD, BACKWARD, BOTH = "forward", "backward", "forward + backward"

Start = Callable[[], Sequence[Call]]
"""Makes the calls of a contestant, which take turns."""

Draw = Callable[[], tuple[tuple, Tensor | None]]
"""A set of inputs, and the gradient that the output receives: `None` for a loss, whose is 1."""

Prepare = Callable[[tuple, Tensor | None], Call]
"""Makes one call from these two."""


class Bench:
    """A machine, its ceilings, and when the section that is running has to be done."""

    def __init__(self, machine: Machine, ceilings: Ceilings, deadline: float) -> None:
        self.machine, self.ceilings, self.deadline = machine, ceilings, deadline

    def race(
        self, contestants: Mapping[str, Start], *, flops: float | None = None, moved: float | None = None
    ) -> dict[str, Any]:
        """Times; beside them TFLOP/s or GB/s, by the operations or the bytes that the task takes at the least."""
        found = {}
        for name, start in contestants.items():
            found[name] = self._measured(start)
            if "ms" in found[name]:
                found[name] |= self.ceilings.rates(found[name]["ms"], flops, moved)
        self.machine.tidy()
        return found

    def drawn(self, draw: Draw, prepares: Mapping[str, Prepare]) -> dict[str, Start]:
        """Contestants whose calls have inputs of their own each."""
        sets = self.machine.size(SETS, 1)
        return {
            name: lambda prepare=prepare: [prepare(*draw()) for _ in range(sets)] for name, prepare in prepares.items()
        }

    def _measured(self, start: Start) -> dict[str, Any]:
        if time.monotonic() > self.deadline:
            return {"failed": NO_TIME}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # peers say at length why they don't take an option
                calls = start()
                for call in calls:
                    call()  # compiles
                peak = self.machine.peak_bytes(calls[0])
                return {"ms": self.machine.milliseconds(calls), "peak_mb": None if peak is None else peak / 1e6}
        except Exception as error:
            return {"failed": reason(error)}


def reason(error: Exception) -> str:
    """An exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}".rstrip(": ")


def of_pair(op: str, what: str, **options: Any) -> Prepare:
    """The calls of one of our pairs."""
    forward, backward = getattr(kernels, f"{op}_forward"), getattr(kernels, f"{op}_backward")

    def prepare(inputs: tuple, dout: Tensor | None) -> Call:
        received = 1.0 if dout is None else dout
        if what == FORWARD:
            return lambda: forward(*inputs, **options)
        if what == BACKWARD:
            _, cache = forward(*inputs, **options)
            return lambda: backward(received, cache)
        return lambda: backward(received, forward(*inputs, **options)[1])

    return prepare


def of_autograd(function: Callable[..., Tensor], what: str) -> Prepare:
    """The calls of a function that PyTorch differentiates, with respect to all floating inputs."""

    def prepare(inputs: tuple, dout: Tensor | None) -> Call:
        if what == FORWARD:
            return torch.no_grad()(lambda: function(*inputs))
        leaves = tuple(x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs)
        floats = [x for x in leaves if x.requires_grad]
        if what == BACKWARD:
            out = function(*leaves)
            return lambda: torch.autograd.grad(out, floats, dout, retain_graph=True)
        return lambda: torch.autograd.grad(function(*leaves), floats, dout)

    return prepare


def of_function(function: Callable[..., Any]) -> Prepare:
    """The calls of what takes the inputs as they are."""
    return lambda inputs, dout: lambda: function(*inputs)
