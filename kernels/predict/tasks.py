"""The tasks of the bench, predicted: ours alone, each op and size, and a training step."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton

from minitransformer.models import Transformer

from .. import KERNELS
from .. import rows as of_rows
from ..bench import attention, predictions, rows, swap
from ..bench.ahead import Shapes
from ..bench.ledger import OURS, current, number, task_of
from ..bench.race import Bench, Found, Start, Task
from .gpus import GPU, GPUS
from .launches import Launch, watched

TARGET = "cuda:90"

HOPPER = Shapes("meta", False, TARGET, 32, 227 * 1024, GPUS[0].processors, ("float32", "float16", "bfloat16"))
"""As the bench meets it: an H100 and an H200 compile alike."""


@dataclass(frozen=True)
class Watching(Bench):
    """A bench that collects what a contestant's call launches, and takes no time."""

    launches: list[Launch]

    def timed(self, start: Start, **work: Any) -> Found:
        """One call, of which alone the launches stay."""
        call, *_ = start()
        self.launches.clear()
        call()
        return {}


def predict(folder: Path) -> Iterator[Path]:
    """Write a table for each GPU, and say on standard output what is in the first."""
    found: dict[str, list[dict[str, Any]]] = {gpu.name: [] for gpu in GPUS}
    for task, launches in launched():
        for gpu in GPUS:
            found[gpu.name].append(entry_of(task, launches, gpu))
        entry = found[GPUS[0].name][-1]
        said = f"{number(entry['ms'])} ms, {entry['bound']}" if "ms" in entry else entry["unknown"]
        print(f"{task_of(entry)}: {said}", flush=True)
    about = {"triton": triton.__version__, "hashes": {op: current(op) for op in KERNELS}}
    for gpu in GPUS:
        yield predictions.save(folder, gpu.name, about | {"assumed": vars(gpu), "entries": found[gpu.name]})


def launched() -> Iterator[tuple[Task, list[Launch]]]:
    """Every task of ours that the bench times, and what one call of it launches; of the steps the last rung."""
    with patch.object(of_rows, "PROCESSORS_INTERPRETED", HOPPER.processors), watched(TARGET) as launches:
        for section in (attention, rows):
            for task in section.tasks(HOPPER):
                task.contestants[OURS](Watching(HOPPER, {}, launches))
                yield task, list(launches)
        setting = swap.Setting.of(HOPPER)
        model = Transformer(setting.config, list(swap.ladder(HOPPER).values())[-1])
        step = swap.step_of(model, setting, captured=False)
        launches.clear()
        step()
        size = {"sentences": setting.sentences, "length": setting.length}
        yield Task("training step", swap.GRAPH, size, {"flops": setting.flops}, {}), list(launches)


def entry_of(task: Task, launches: list[Launch], gpu: GPU) -> dict[str, Any]:
    """What the table says of a task: its time, what its longest kernel is bound by, and the kernels."""
    entry: dict[str, Any] = {"op": task.op, "what": task.what, "size": task.size}
    kernels: dict[str, dict[str, Any]] = {}
    for name, time_on, unknown in launches:
        if time_on is None:
            return entry | {"unknown": f"{name}: {unknown}"}
        time = time_on(gpu)
        each = kernels.setdefault(name, {"launches": 0, "ms": 0.0, "bound": time.bound, "unknown": unknown})
        each["launches"] += 1
        each["ms"] += time.ms
    kernels = dict(sorted(kernels.items(), key=lambda each: -each[1]["ms"]))
    ms = sum(each["ms"] for each in kernels.values())
    ceilings = {"matmul_tflops": gpu.matmul_tflops, "copy_gbs": gpu.copy_gbs}
    rates = Bench(HOPPER, ceilings).rates(ms, task.work.get("flops"), task.work.get("moved"))
    return _rounded(entry | {"ms": ms, "bound": next(iter(kernels.values()))["bound"], **rates, "kernels": kernels})


def _rounded(value: Any) -> Any:
    """Every number with four digits: no prediction has more."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
