"""Kernels compiled before they are needed, by many processes, into the cache on disk where a launch looks for them.

The processes share out what will be launched, on tensors that have shapes and no memory, under a driver that only
compiles (`kernels.proof.pretending`): no GPU is touched. Whoever comes first to a kernel compiles it.
"""

import hashlib
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import measured
import swap
import torch
import triton
from timing import Machine
from triton import knobs
from triton.runtime.cache import triton_key

from kernels import rows
from kernels.proof.ledger import OURS
from kernels.proof.pretending import pretending
from kernels.tuning import KIBIBYTE, Capability, Tuner
from minitransformer.data.token_dataset import file_sha256
from minitransformer.models import Transformer
from minitransformer.ops import Ops

HOPPER = Machine(
    "meta",
    smoke=False,
    dtypes=(torch.float32, torch.float16, torch.bfloat16),
    gpu=Capability("cuda", 90, 227 * KIBIBYTE),
    processors=132,
)
"""An H100 or H200."""


def compile_ahead(
    machine: Machine, names: Sequence[str], claims: Path, lane: int, lanes: int, wheel: Path | None = None
) -> Iterator[int]:
    """Compile a lane's part of what these sections launch; yield the number of kernels.

    Kernels that another lane has claimed in the folder `claims` are left to it. They are kept for the Triton that is
    installed here, or that lies in `wheel`.
    """
    key = triton_key() if wheel is None else key_of(wheel)
    with compiling(machine, claims) as compiled, patch("triton.runtime.cache.triton_key", lambda: key):
        for launch in islice(launches(replace(machine, device="meta"), names), lane, None, lanes):
            try:
                launch()
            except Exception:  # what can't be compiled is found out again where it is launched
                traceback.print_exc()
    yield len(compiled)


def key_of(wheel: Path) -> str:
    """Return `triton_key()` of an unpacked wheel: hashes of its files, of which only the library depends on Python."""
    if not (wheel / f"triton-{triton.__version__}.dist-info").is_dir():
        raise ValueError(f"{wheel} is not Triton {triton.__version__}, which is here")
    folders = Path(triton.__file__).parent, wheel / "triton"
    here, there = (file_sha256(folder / "_C" / "libtriton.so") for folder in folders)
    return triton_key().replace(here, there)


def launches(machine: Machine, names: Sequence[str]) -> Iterator[Callable[[], Any]]:
    """Yield calls that launch our kernels, in the order in which they are needed; without the few of the lessons."""
    for name in names:
        if name == "swap":
            tables = list(swap.ladder(machine.ops).values())
            for ops, captured in ((tables[-1], True), (tables[-1], False), (tables[1], False)):
                yield partial(_train, machine, ops, captured)
        elif name != "lessons":
            for task in measured.TASKS[name](machine):
                for who, measure in task.contestants.items():
                    if (who == OURS or name not in ("attention", "rows")) and not measured.process_of(who):
                        yield partial(measure, machine)


def _train(machine: Machine, ops: Ops, captured: bool) -> None:
    setting = swap.Setting.of(machine)
    swap.step_of(Transformer(setting.config, ops), setting.batches(), captured)()


@contextmanager
def compiling(machine: Machine, claims: Path) -> Iterator[list[str]]:
    """Launches compile what nobody has claimed, all tiles where one would be tuned; the names of what was compiled."""
    compiled, gpu = [], machine.gpu
    assert gpu is not None

    def taken(*, key: str, fn: Any, **rest: Any) -> bool:
        claim = claims / hashlib.sha256(f"{fn.module} {fn.name} {key}".encode()).hexdigest()
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL))  # a file can be made once
        except FileExistsError:
            return True
        compiled.append(fn.name)
        return False

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
        pretending(f"{gpu.kind}:{gpu.arch}", gpu.shared_memory, machine.warp_size),
    ):
        knobs.runtime.jit_cache_hook = taken
        yield compiled
