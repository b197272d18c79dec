"""Kernels compiled before they are needed, by many processes, into the cache on disk where a launch looks for them.

The processes share out what will be launched, on tensors that have shapes and no memory, under a driver that only
compiles (`kernels.proof.pretending`): no GPU is touched. Whoever comes first to a launch makes it, and to a kernel
compiles it.
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

import measured
import swap
import torch
import triton
from timing import Bench, Found, Machine, Start
from triton import knobs
from triton.runtime.cache import triton_key

import kernels
from kernels import rows
from kernels.eager.arrays import plumbing
from kernels.proof.cases import name_of
from kernels.proof.ledger import OURS
from kernels.proof.pretending import pretending
from kernels.tuning import Tuner, capability
from minitransformer.data.token_dataset import file_sha256
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
    """Return the GPU that this is."""
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


def compile_ahead(machine: Shapes, names: Sequence[str], claims: Path, wheel: Path | None = None) -> int:
    """Compile what the sections launch and nobody has claimed yet in the folder `claims`; return the number of kernels.

    They are kept for the Triton that is installed here, or that lies in `wheel`.
    """
    key = triton_key() if wheel is None else key_of(wheel)
    with compiling(machine, claims) as compiled, patch("triton.runtime.cache.triton_key", lambda: key):
        for number, launch in enumerate(launches(machine, names)):
            if claim(claims, f"launch {number}"):  # to look for kernels that are compiled takes time too
                try:
                    launch()
                except measured.NotThere:
                    pass
                except Exception:  # what can't be compiled is found out again where it is launched
                    traceback.print_exc()
    return len(compiled)


def key_of(wheel: Path) -> str:
    """Return `triton_key()` of an unpacked wheel: hashes of its files, of which only the library depends on Python."""
    if not (wheel / f"triton-{triton.__version__}.dist-info").is_dir():
        raise ValueError(f"{wheel} is not Triton {triton.__version__}, which is here")
    folders = Path(triton.__file__).parent, wheel / "triton"
    here, there = (file_sha256(folder / "_C" / "libtriton.so") for folder in folders)
    return triton_key().replace(here, there)


def launches(machine: Machine, names: Sequence[str]) -> Iterator[Callable[[], Any]]:
    """Yield calls that launch our kernels, in the order in which they are needed; without the few of the lessons."""
    bench = OnlyLaunched(machine, {})
    for name in names:
        if name == "swap":
            tables = list(swap.ladder(machine.ops).values())
            for ops, captured in ((tables[-1], True), (tables[-1], False), (tables[1], False)):
                yield partial(_train, machine, ops, captured)
        elif name != "lessons":
            for task in measured.TASKS[name](machine):
                for who, measure in task.contestants.items():
                    if (who == OURS or name not in ("attention", "rows")) and not measured.process_of(who):
                        yield partial(measure, bench)


def _train(machine: Machine, ops: Ops, captured: bool) -> None:
    """Make a training step."""
    setting = swap.Setting.of(machine)
    swap.step_of(Transformer(setting.config, ops), setting.batches(), captured)()


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
        patch.object(rows, "PROCESSORS_INTERPRETED", machine.processors),
        patch.object(Tuner, "__call__", every_tile),
        knobs.runtime.scope(),
        pretending(machine.target, machine.shared_memory, machine.warp_size),
    ):
        knobs.runtime.jit_cache_hook = taken
        yield compiled


def claim(claims: Path, what: str) -> bool:
    """Return whether it is ours to do: a file can be made once."""
    try:
        os.close(os.open(claims / hashlib.sha256(what.encode()).hexdigest(), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
