"""Contestants on the same task: for each, inputs drawn afresh and the median time of a call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import kernels

from .ledger import BACKWARD, FORWARD, LATE, Entry
from .machine import Call, Machine

SETS = 2
"""How many sets of inputs take turns; each is meant to be larger than the cache."""

Found = dict[str, Any]
"""A time, `ms`, and what was found beside it."""

Start = Callable[[], Sequence[Call]]
"""Makes the calls of a contestant, which take turns."""

Draw = Callable[[], tuple[tuple, Tensor | None]]
"""A set of inputs, and the gradient that the output receives: `None` for a loss, whose is 1."""

Prepare = Callable[[tuple, Tensor | None], Call]
"""Makes one call from these two."""


@dataclass(frozen=True)
class Bench:
    """A machine, and what PyTorch itself gets out of it: a large product of matrices, and a large copy."""

    machine: Machine
    ceilings: dict[str, float]
    """`matmul_tflops`, and `copy_gbs`, read and written."""

    @classmethod
    def of(cls, machine: Machine) -> "Bench":
        """Measured here and now."""
        n, count = machine.size(8192, 32), machine.size(2**30, 2**10)
        if machine.device == "cuda":  # four arrays of two bytes an element, in half of what is free
            count = min(count, torch.cuda.mem_get_info()[0] // 16)
        pairs = [(machine.randn(n, n), machine.randn(n, n)) for _ in range(SETS)]
        matmul = machine.milliseconds([lambda a=a, b=b: a @ b for a, b in pairs])
        large = [machine.randn(count) for _ in range(SETS)]
        copies = [torch.empty_like(source) for source in large]
        copy = machine.milliseconds([lambda a=a, b=b: a.copy_(b) for a, b in zip(copies, large, strict=True)])
        return cls(machine, {"matmul_tflops": 2 * n**3 / matmul / 1e9, "copy_gbs": 2 * large[0].nbytes / copy / 1e6})

    def timed(self, start: Start, *, flops: float | None = None, moved: float | None = None) -> Found:
        """Time and memory; beside them TFLOP/s or GB/s, by the operations or bytes that the task takes at the least."""
        calls = start()
        for call in calls:
            call()  # compiles
        peak = self.machine.peak_bytes(calls[0])
        milliseconds = self.machine.milliseconds(calls)
        found = {"ms": milliseconds, "peak_mb": None if peak is None else peak / 1e6}
        return found | self.rates(milliseconds, flops, moved)

    def rates(self, milliseconds: float, flops: float | None, moved: float | None = None) -> Found:
        """What so many operations, or so many bytes, came to in that time, and their share of the ceiling."""
        if flops is not None:
            tflops = flops / milliseconds / 1e9
            return {"tflops": tflops, "share": tflops / self.ceilings["matmul_tflops"]}
        if moved is not None:
            gbs = moved / milliseconds / 1e6
            return {"gbs": gbs, "share": gbs / self.ceilings["copy_gbs"]}
        return {}


@dataclass(frozen=True)
class Task:
    """What is computed on what; the bytes (`moved`) or operations (`flops`) that it takes at the least; and by whom."""

    op: str
    what: str
    size: dict[str, Any]
    work: dict[str, float]
    contestants: Mapping[str, Callable[[Bench], Found]]

    def entry(self) -> Entry:
        """What the ledger holds of it before anything is measured."""
        described = {"op": self.op, "what": self.what, "size": self.size, **self.work}
        return described | {"contestants": dict.fromkeys(self.contestants, LATE)}


def task(
    machine: Machine,
    op: str,
    what: str,
    size: dict[str, Any],
    work: dict[str, float],
    draw: Draw,
    prepares: Mapping[str, Prepare],
) -> Task:
    """One whose contestants' calls have inputs of their own each."""
    sets = machine.size(SETS, 1)

    def measured(prepare: Prepare, bench: Bench) -> Found:
        return bench.timed(lambda: [prepare(*draw()) for _ in range(sets)], **work)

    return Task(op, what, size, work, {name: partial(measured, prepare) for name, prepare in prepares.items()})


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
