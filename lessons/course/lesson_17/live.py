"""Lesson 17's measurements on a GPU, where there is one: our kernels at the benchmark's sizes."""

from collections.abc import Sequence
from typing import Any

from .roofline import Gpu, Work, gpu_named


def this_gpu() -> Gpu:
    """Its data sheet; where there is none here, what PyTorch's product of matrices and a copy reach on it."""
    import torch

    from kernels.proof.machine import Machine
    from kernels.proof.race import Bench

    machine = Machine.here(smoke=False)
    if known := gpu_named(machine.name):
        return known
    ceilings = Bench.of(machine).ceilings
    kind = str(machine.dtype).removeprefix(f"{torch.__name__}.")
    return Gpu(machine.name, 0, f"{kind} as measured", ceilings["matmul_tflops"] * 1e12, ceilings["copy_gbs"] * 1e9)


def measured_here(works: Sequence[Work]) -> dict[int, float]:
    """Seconds of each task, by its number; without those that the GPU has no memory for, and without the two losses.

    Raises `ModuleNotFoundError` or `RuntimeError` where there is no GPU.
    """
    import torch

    from kernels.proof.machine import Machine
    from kernels.proof.race import of_pair

    machine = Machine.here(smoke=False)
    found = {}
    for number, work in enumerate(works):
        try:
            sets = [_inputs(machine, work) for _ in range(2)]
            calls = [of_pair(work.op, work.what)(*each) for each in sets]
            for call in calls:
                call()  # compiles
            found[number] = machine.milliseconds(calls) / 1e3
        except (KeyError, torch.OutOfMemoryError):
            continue
        finally:
            machine.tidy()
    return found


def _inputs(machine: Any, work: Work) -> tuple[tuple, Any]:
    """A set of inputs, and the gradient that the output receives. Raises `KeyError` for a task of another kind."""
    size = work.size
    if work.op == "attention":
        shape = tuple(size[name] for name in ("B", "H", "Tq", "D"))
        return tuple(machine.randn(*shape) for _ in range(3)), machine.randn(*shape)
    shape = size["rows"], size["columns"]
    count = {"relu": 1, "softmax": 1, "layernorm": 1, "add_layernorm": 2, "dropout": 1}[work.op]
    inputs = [machine.randn(*shape) for _ in range(count)]
    if work.op.endswith("layernorm"):
        inputs += [machine.randn(size["columns"]) for _ in range(2)]
    if work.op == "dropout":
        from minitransformer.ops import Dropout

        return (*inputs, Dropout(0.1, key=1)), machine.randn(*shape)
    return tuple(inputs), machine.randn(*shape)
