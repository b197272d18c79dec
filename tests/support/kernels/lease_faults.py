"""What can go wrong on a rented GPU, in the processes of `lease`: each calls one of the functions below first."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import measured
import torch

import kernels
from kernels.bench import checks, rows
from kernels.bench.ledger import FORWARD

from . import bench_faults as faults

PLACE = "attention.tiles.schedule"
"""What every launch of attention asks for."""


def when_scheduled(fault: Callable) -> measured.Variant:
    """A schedule that does this."""
    return measured.Variant("", ((PLACE, measured.to(fault)),))


def scaled(factor: float) -> measured.Variant:
    """A forward and a backward whose scale is wrong."""

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
    "hangs": when_scheduled(faults.hangs),
    "is killed": when_scheduled(faults.is_killed),
    "breaks the GPU": when_scheduled(faults.breaks_the_gpu),
    "nowhere": measured.Variant("", (("attention.tiles.no_such_name", measured.to(None)),)),
}


def in_schedules() -> None:
    """Of attention's schedules one is right; and all is small."""
    measured.SCHEDULES, measured.HOISTING = SCHEDULES, {}
    measured.TASKS |= {"ab": only_one, "attention": few_shapes}
    cases = checks.cases_in
    checks.cases_in = lambda *of: islice((case for case in cases(*of) if case.name == "padding"), 1)


def only_one(machine: Any) -> Any:
    """One comparison."""
    yield measured.beside(measured.attending(machine, "full", 4096, 128, ["ours"]), SCHEDULES)


def few_shapes(machine: Any) -> Any:
    """Two."""
    return islice(measured.attention_tasks(machine), 2)


def in_ops() -> None:
    """Of five ops one is wrong, one is killed, one breaks the GPU, one raises; so does PyTorch's Adam break it."""
    few_ops()
    kernels.relu_forward = faults.wrong
    kernels.softmax_forward = faults.is_killed
    kernels.embedding_forward = faults.breaks_the_gpu
    kernels.dropout_forward = faults.raises
    torch.optim.Adam.step = faults.breaks_the_gpu


def few_ops() -> None:
    """The smallest case of each, and a task."""
    ops = "relu", "softmax", "dropout", "embedding", "adam"
    measured.KERNELS = {op: kernels.KERNELS[op] for op in ops}
    everything, cases = rows.tasks, checks.cases_in

    def tasks(machine: Any) -> Any:
        return list(
            {
                task.op: task for task in everything(machine) if task.op in ops and task.what in (FORWARD, "step")
            }.values()
        )

    rows.tasks = tasks
    measured.TASKS["rows"] = lambda machine: (task for task in measured.rows_tasks(machine) if task.op in ops)
    checks.cases_in = lambda *of: islice(cases(*of), 1)


def everything() -> None:
    """For a rehearsal of all there is: an op and a schedule go wrong in each way."""
    measured.SCHEDULES |= SCHEDULES
    kernels.relu_forward = faults.wrong
    kernels.softmax_forward = faults.is_killed
    kernels.embedding_forward = faults.breaks_the_gpu
    kernels.dropout_forward = faults.hangs
    torch.optim.Adam.step = faults.breaks_the_gpu


def ends_its_parent() -> None:
    """A part that runs out of its time, whatever it does."""
    few_ops()
    kernels.relu_forward = faults.hangs
    os.kill(os.getppid(), signal.SIGALRM)
