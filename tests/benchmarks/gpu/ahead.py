"""Kernels compiled before they are needed, by many processes, into the cache on disk where a launch looks for them.

The processes share out what will be launched, on tensors that have shapes and no memory, under a driver that only
compiles (`compilation`): no GPU is touched. Whoever comes first to a launch makes it, and to a kernel compiles it.
"""

import hashlib
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attention
import rows
import swap
import torch
from triton import knobs

import kernels
from kernels import KERNELS
from kernels import rows as of_rows
from kernels.eager.arrays import plumbing
from kernels.proof.checks import cases_in, launched
from kernels.proof.ledger import OURS
from kernels.proof.machine import Machine, name_of
from kernels.proof.pretending import pretending
from kernels.proof.race import Bench, Found, Start
from kernels.tuning import Tuner, capability
from minitransformer.models import Transformer
from minitransformer.ops import Ops


@dataclass(frozen=True)
class Shapes(Machine):
    """A GPU as a machine whose tensors have shapes and no memory: all that compiling for it depends on."""

    target: str
    warp_size: int
    shared_memory: int
    processors: int
    names: tuple[str, ...]

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """Those of the GPU."""
        return tuple(getattr(torch, name) for name in self.names)

    @property
    def ops(self) -> Ops:
        """PyTorch's arithmetic on shapes."""
        return replace(kernels.torch_ops("cpu", self.dtype), **plumbing(torch.device(self.device), self.dtype))


def shapes_of(machine: Machine) -> Shapes:
    """The GPU that this is."""
    index = torch.cuda.current_device()
    gpu, properties = capability(torch.device("cuda", index)), torch.cuda.get_device_properties(index)
    processors, names = properties.multi_processor_count, tuple(map(name_of, machine.dtypes))
    target = f"{gpu.kind}:{gpu.arch}"
    return Shapes("meta", machine.smoke, target, properties.warp_size, gpu.shared_memory, processors, names)


class OnlyLaunched(Bench):
    """A bench without a clock: it only makes the calls."""

    def timed(self, start: Start, **work: Any) -> Found:
        """One call."""
        for call in start():
            call()
        return {}


def compile_ahead(machine: Shapes, sections: Sequence[str], claims: Path) -> int:
    """Compile what the sections launch and nobody has claimed yet in the folder `claims`: the number of kernels."""
    with compiling(machine, claims) as compiled:
        for number, launch in enumerate(launches(machine, sections)):
            if not claim(claims, f"launch {number}"):  # to look for kernels that are compiled takes time too
                continue
            try:
                launch()
            except Exception:  # what can't be compiled is found out again where it is launched
                traceback.print_exc()
    return len(compiled)


def launches(machine: Machine, sections: Sequence[str]) -> Iterator[Callable[[], Any]]:
    """What leads to launches, the longest first."""
    if "swap" in sections:
        tables = list(swap.ladder(machine).values())
        for ops, captured in ((tables[-1], True), (tables[-1], False), (tables[1], False)):
            yield partial(_train, machine, ops, captured)
    bench = OnlyLaunched(machine, {})
    for section, module in (("attention", attention), ("rows", rows)):
        if section in sections:
            for task in module.tasks(machine):
                yield partial(task.contestants[OURS], bench)
    if "checks" in sections:
        for op in KERNELS:
            for dtype in machine.dtypes:
                for case in cases_in(op, dtype, machine):
                    yield partial(launched, op, case, dtype, machine.device)


def _train(machine: Machine, ops: Ops, captured: bool) -> None:
    """A training step."""
    setting = swap.Setting.of(machine)
    swap.step_of(Transformer(setting.config, ops), setting, captured)()


@contextmanager
def compiling(machine: Shapes, claims: Path) -> Iterator[list[str]]:
    """Launches compile what nobody has claimed, all tiles where one would be tuned; the names of what was compiled."""
    compiled = []

    def taken(*, key: str, fn: Any, **rest: Any) -> bool:
        mine = claim(claims, f"{fn.module} {fn.name} {key}")
        if mine:
            compiled.append(fn.name)
        return not mine

    def every_tile(
        tuner: Tuner, candidates: Sequence[Any], key: tuple, launch: Callable[[Any], None], results: Sequence[Any] = ()
    ) -> Any:
        for tile in candidates:
            try:
                launch(tile)
            except Exception:  # tuning leaves it out
                traceback.print_exc()
        return candidates[0]

    with (
        patch.object(of_rows, "PROCESSORS_INTERPRETED", machine.processors),
        patch.object(Tuner, "__call__", every_tile),
        knobs.runtime.scope(),
        pretending(machine.target, machine.shared_memory, machine.warp_size),
    ):
        knobs.runtime.jit_cache_hook = taken
        yield compiled


def claim(claims: Path, what: str) -> bool:
    """Whether it is ours to do: a file can be made once."""
    try:
        os.close(os.open(claims / hashlib.sha256(what.encode()).hexdigest(), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
