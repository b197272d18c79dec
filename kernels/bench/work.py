"""What the bench's processes do, and what each of them sends: numbers and words, so that their parent needs no PyTorch.

look         say what there is to run on
compute      say whether it computes
compile      compile ahead what no other process has claimed
check        find the worst error of a part of an op's cases in one dtype, or what is wrong with it
plan         find a section's ceilings and list its tasks
measure      time contestants of its tasks, one after the other
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .supervisor import reason_of

if TYPE_CHECKING:
    from .machine import Machine
    from .race import Task
    from .run import Unit

BEGINS = "begins"


def look(smoke: bool) -> Iterator[dict[str, Any]]:
    """Device, name, versions, dtypes, how many processes may check at once, and what to compile for; or `refused`."""
    try:
        machine = machine_of(smoke)
    except (ModuleNotFoundError, RuntimeError) as error:
        yield {"refused": str(error)}
        return
    from .machine import name_of

    yield {
        "device": machine.device,
        "name": machine.name,
        "versions": machine.versions(),
        "dtypes": [name_of(dtype) for dtype in machine.dtypes],
        "at_once": machine.processes,
        "shapes": _shapes(machine) if machine.device == "cuda" else None,
    }


def _shapes(machine: "Machine") -> dict[str, Any]:
    from .ahead import shapes_of

    return asdict(shapes_of(machine))


def compute(smoke: bool) -> Iterator[bool]:
    """Whether the GPU computes in a process of this kind."""
    yield machine_of(smoke).works()


def compile(shapes: dict[str, Any], sections: Sequence[str], claims: Path) -> Iterator[int]:
    """Compile ahead; the message is how many kernels it was."""
    from .ahead import Shapes, compile_ahead

    yield compile_ahead(Shapes(**shapes), sections, claims)


def check(smoke: bool, op: str, dtype: str, part: int, parts: int) -> Iterator[dict[str, Any]]:
    """The worst `error` in a part of the cases and its share `of_allowed`; or why it `failed`."""
    import torch
    from threadpoolctl import threadpool_limits

    machine = machine_of(smoke)
    from . import checks

    with threadpool_limits(2):  # others check beside it
        try:
            yield checks.check(op, getattr(torch, dtype), machine, part, parts)
        except checks.Refused as refused:
            yield {"failed": str(refused)}


def plan(smoke: bool, section: str) -> Iterator[Any]:
    """The ceilings; then the tasks, as entries of the ledger."""
    machine = machine_of(smoke)
    from .race import Bench

    yield Bench.of(machine).ceilings
    yield [task.entry() for task in _tasks(machine, section)]


def measure(smoke: bool, section: str, ceilings: dict[str, float], units: "Sequence[Unit]") -> Iterator[Any]:
    """For each unit, that it begins, and then what was found or why it `failed`.

    Raises what a contestant raised after which the GPU computes no more.
    """
    machine = machine_of(smoke)
    from .race import Bench

    bench, tasks = Bench(machine, ceilings), _tasks(machine, section)
    before = None
    for number, name in units:
        yield BEGINS
        if number != before:
            machine.tidy()
            before = number
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # peers say at length why they don't take an option
                found = tasks[number].contestants[name](bench)
        except Exception as error:
            if not machine.works():
                raise
            found = {"failed": reason_of(error)}
        yield found


def _tasks(machine: "Machine", section: str) -> "list[Task]":
    return list(import_module(f".{section}", __package__).tasks(machine))


def machine_of(smoke: bool) -> "Machine":
    """What there is to run on. Triton asks whether to interpret when it is first imported: it is not, before."""
    import torch

    if smoke and not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)  # tensors are tiny
    from .machine import Machine

    return Machine.here(smoke)
