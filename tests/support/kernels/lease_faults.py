"""What can go wrong on a rented GPU, in the processes of `lease`: each calls one of the functions below first."""

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
    "is killed": when_scheduled(faults.is_killed),
    "breaks the GPU": when_scheduled(faults.breaks_the_gpu),
    "nowhere": measured.Variant("", (("attention.tiles.no_such_name", measured.to(None)),)),
}


def in_schedules(schedules: dict[str, measured.Variant] = SCHEDULES) -> None:
    """Give attention schedules of which one is right, on one case, and compare them on one task."""
    measured.SCHEDULES, measured.HOISTING = schedules, {}
    measured.TASKS["ab"] = only_one
    cases = checks.cases_in
    checks.cases_in = lambda *of: islice((case for case in cases(*of) if case.name == "padding"), 1)


def in_a_schedule_that_hangs() -> None:
    """Give attention a schedule that is right, and one that hangs."""
    in_schedules({"right": SCHEDULES["right"], "hangs": when_scheduled(faults.hangs)})


def only_one(machine: Any) -> Any:
    """Yield one task of the section "ab"."""
    yield measured.beside(measured.attending(machine, "full", 4096, 128, ["ours"]), measured.SCHEDULES)


def in_ops() -> None:
    """Break four of five ops, each in its way; and PyTorch's Adam breaks the GPU."""
    few_ops()
    kernels.relu_forward = faults.wrong
    kernels.softmax_forward = faults.is_killed
    kernels.embedding_forward = faults.breaks_the_gpu
    kernels.dropout_forward = faults.raises
    torch.optim.Adam.step = faults.breaks_the_gpu


def few_ops() -> None:
    """Leave five ops, with their smallest case and one task each."""
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
