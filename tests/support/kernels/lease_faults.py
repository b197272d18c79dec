"""Rehearsals of `lease` with a fault, each in a process of its own that has computed nothing before.

What copies itself must be fresh: the threads of a process that computed are not there in its copies, which wait for
them.
"""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import attention
import lease
import measured
import pytest
import rows
import torch
from support.kernels.interpreter import without_waste
from timing import Machine

import kernels
from kernels.proof import checks, ledger
from kernels.proof.ledger import FORWARD


class Rehearsed(NamedTuple):
    """The status of a rehearsal, the ledger that it wrote, and its output."""

    status: int
    written: ledger.Ledger
    out: str
    err: str


def begun(folder: Path, fault: Callable, part: str, *only: str) -> subprocess.Popen[str]:
    """Begin to rehearse a part's sections, into a folder, with a fault of this module."""
    command = [sys.executable, "-m", __name__, fault.__name__, part, "--smoke", "--only", *only, "--out", str(folder)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def rehearsal(folder: Path, fault: Callable, part: str, *only: str) -> Rehearsed:
    """Rehearse a part's sections, into a folder, with a fault of this module."""
    running = begun(folder, fault, part, *only)
    out, err = running.communicate()
    return Rehearsed(running.returncode, ledger.read(folder / "smoke-lease.json"), out, err)


def patient(patch: pytest.MonkeyPatch) -> None:
    """Have the patience that a busy machine needs, and two processes side by side."""
    for sections in lease.PARTS.values():
        for name, section in sections.items():
            patch.setitem(sections, name, section._replace(patience=60, lanes=min(section.lanes, 2)))


# --- The faults ------------------------------------------------------------------------------------------------

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
    """Give attention a schedule that is right, and one that hangs; and have little patience."""
    for name in ("schedules", "ab"):
        patch.setitem(lease.PARTS["first"], name, lease.PARTS["first"][name]._replace(patience=6))
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


FIVE = "relu", "softmax", "dropout", "embedding", "adam"


def few_ops(patch: pytest.MonkeyPatch, ops: tuple[str, ...] = FIVE) -> None:
    """Leave these ops, with their smallest case and one task each."""
    patch.setattr(measured, "KERNELS", {op: kernels.KERNELS[op] for op in ops})
    everything, cases = rows.tasks, checks.cases

    def tasks(machine: Any) -> Any:
        few = {task.op: task for task in everything(machine) if task.op in ops and task.what in (FORWARD, "step")}
        return [few[op] for op in ops if op in few]

    patch.setitem(measured.TASKS, "rows", tasks)
    patch.setattr(checks, "cases", lambda *of: islice(cases(*of), 1))


def a_peer_hangs(patch: pytest.MonkeyPatch) -> None:
    """Let each process leave a file in "pids"; and PyTorch's Adam, the last but one, never returns."""
    pids = Path("pids").absolute()
    pids.mkdir()
    os.register_at_fork(after_in_child=lambda: (pids / str(os.getpid())).touch())
    few_ops(patch)
    patch.setattr(torch.optim.Adam, "step", hangs)


def at_the_start(patch: pytest.MonkeyPatch) -> None:
    """Leave one op to check; the tasks over rows can't even be listed."""
    few_ops(patch, ("relu",))
    patch.setitem(measured.TASKS, "rows", raises)


def no_time(patch: pytest.MonkeyPatch) -> None:
    """Leave no second for the tasks over rows."""
    few_ops(patch)
    patch.setitem(lease.PARTS["second"], "rows", lease.Section(0, 1))
    patch.setitem(lease.LIMITS, "second", lease.TO_END)


def the_disk_fills_up(patch: pytest.MonkeyPatch) -> None:
    """Leave one op to check, and room to write once."""
    few_ops(patch, ("relu",))
    write, written_to = ledger.write, []

    def fill(path: Path, written: ledger.Ledger) -> None:
        if written_to:
            raise OSError(errno.ENOSPC, f"cannot write {path}: No space left on device")
        written_to.append(path)
        write(path, written)

    patch.setattr(ledger, "write", fill)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch, without_waste():
        patient(patch)
        globals()[sys.argv[1]](patch)
        sys.exit(lease.main(sys.argv[2:]))
