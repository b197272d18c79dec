"""Faults of a rented GPU, which the processes of `lease` inherit."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import attention
import measured
import pytest
import rows
import torch
from timing import Machine

import kernels
from kernels.proof import checks
from kernels.proof.ledger import FORWARD

ILLEGAL = "CUDA error: an illegal memory access was encountered"
FOREVER = 10_000.0


def wrong(x: Any) -> tuple:
    """Return something that is no forward of relu."""
    return x, x


def raises(*inputs: Any, **options: Any) -> Any:
    """Do what an op does that a GPU has no room for."""
    raise RuntimeError("no room for this")


def is_killed(*inputs: Any, **options: Any) -> Any:
    """Do what the system does where memory has run out."""
    os.kill(os.getpid(), signal.SIGKILL)


def breaks_the_gpu(*inputs: Any, **options: Any) -> Any:
    """Do what an illegal access does: nothing on the GPU works in this process any more."""

    def broken(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError(ILLEGAL)

    Machine.randn = broken
    broken()


def hangs(*inputs: Any, **options: Any) -> Any:
    """Never return."""
    time.sleep(FOREVER)


PLACE = "attention.tiles.schedule"
"""Every launch of attention calls this."""


def when_scheduled(fault: Callable) -> measured.Variant:
    """Return a schedule that does this when a kernel is launched."""
    return measured.Variant("", ((PLACE, measured.to(fault)),))


def scaled(factor: float) -> measured.Variant:
    """Return a schedule whose scale is wrong, forward and backward."""

    def change(original: Callable) -> Callable:
        def problem(*arguments: Any) -> Any:
            right = original(*arguments)
            return replace(right, scale=factor * right.scale)

        return problem

    return measured.Variant("", (("attention.host._problem", change),))


SCHEDULES = {
    "right": measured.Variant("as fast", ((PLACE, lambda original: original),)),
    "off": scaled(1.001),
    "far off": scaled(9.0),
    "is killed": when_scheduled(is_killed),
    "breaks the GPU": when_scheduled(breaks_the_gpu),
    "nowhere": measured.Variant("", (("attention.tiles.no_such_name", measured.to(None)),)),
}


def in_schedules(patch: pytest.MonkeyPatch, schedules: dict[str, measured.Variant] = SCHEDULES) -> None:
    """Give attention schedules of which one is right, on one case, and compare them on one task."""
    patch.setattr(measured, "SCHEDULES", schedules)
    patch.setattr(measured, "HOISTING", {})
    patch.setitem(measured.TASKS, "ab", only_one)
    cases = checks.cases
    patch.setattr(checks, "cases", lambda *of: islice((case for case in cases(*of) if case.name == "padding"), 1))


def in_a_schedule_that_hangs(patch: pytest.MonkeyPatch) -> None:
    """Give attention a schedule that is right, and one that hangs."""
    in_schedules(patch, {"right": SCHEDULES["right"], "hangs": when_scheduled(hangs)})


def only_one(machine: Any) -> Any:
    """Yield one task of the section "ab"."""
    yield measured.beside(attention.attending(machine, "full", 4096, 128, ["ours"]), measured.SCHEDULES)


def in_ops(patch: pytest.MonkeyPatch) -> None:
    """Break four of five ops, each in its way; and PyTorch's Adam breaks the GPU."""
    few_ops(patch)
    patch.setattr(kernels, "relu_forward", wrong)
    patch.setattr(kernels, "softmax_forward", is_killed)
    patch.setattr(kernels, "embedding_forward", breaks_the_gpu)
    patch.setattr(kernels, "dropout_forward", raises)
    patch.setattr(torch.optim.Adam, "step", breaks_the_gpu)


def few_ops(patch: pytest.MonkeyPatch, *ops: str) -> None:
    """Leave these ops, or five, with their smallest case and one task each."""
    ops = ops or ("relu", "softmax", "dropout", "embedding", "adam")
    patch.setattr(measured, "KERNELS", {op: kernels.KERNELS[op] for op in ops})
    everything, cases = rows.tasks, checks.cases

    def tasks(machine: Any) -> Any:
        few = {task.op: task for task in everything(machine) if task.op in ops and task.what in (FORWARD, "step")}
        return [few[op] for op in ops if op in few]

    patch.setitem(measured.TASKS, "rows", tasks)
    patch.setattr(checks, "cases", lambda *of: islice(cases(*of), 1))


def a_peer_hangs(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let each process leave a file; and PyTorch's Adam, the last but one, never returns."""
    os.register_at_fork(after_in_child=lambda: (folder / str(os.getpid())).touch())
    few_ops(patch)
    patch.setattr(torch.optim.Adam, "step", hangs)


def at_the_start(patch: pytest.MonkeyPatch) -> None:
    """Leave one op to check; the tasks over rows can't even be listed."""
    few_ops(patch, "relu")
    patch.setitem(measured.TASKS, "rows", raises)
