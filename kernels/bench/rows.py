"""The ops whose time is the memory's: GB/s by the bytes that must move, each input read once, each output written once.

The fused loss is counted in operations instead: its three products take most of its time.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import kernels
from minitransformer.ops import Dropout

from ..adam import adam_step_naive
from ..cross_entropy import cross_entropy_naive
from ..dropout import dropout_naive
from ..embedding import embedding_backward_naive
from ..layernorm import add_layernorm_unfused, layernorm_naive, layernorm_sweeps
from ..linear_cross_entropy import linear_cross_entropy_naive
from ..softmax import softmax_naive, softmax_online
from . import peers
from .machine import Call, Machine
from .race import BACKWARD, BOTH, FORWARD, Draw, Prepare, Task, of_autograd, of_function, of_pair, task
from .results import OURS

RATE = 0.1
DROPOUT = Dropout(RATE, key=1)
LOSS = {"label_smoothing": 0.1, "ignore_index": 0}
ADAM = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9}


def tasks(machine: Machine) -> Iterator[Task]:
    """All of them, op by op; those that targets name come first, in case that the time does not suffice."""
    named = (_adam, _dropout, _layernorm, _add_layernorm, _cross_entropy, _softmax)
    for makes in (*named, _relu, _embedding, _fused_loss):
        yield from makes(machine)


def _usual(
    machine: Machine, op: str, what: str, pytorch: Callable[..., Tensor], rungs: dict[str, Prepare], **options: Any
) -> dict[str, Prepare]:
    """Our pair, its earlier rungs, PyTorch's function, and the same compiled."""
    compiled = machine.compiled(pytorch)
    return {
        OURS: of_pair(op, what, **options),
        **rungs,
        "PyTorch": of_autograd(pytorch, what),
        "torch.compile": of_autograd(compiled, what),
    }


def _liger(name: str, what: str, **options: Any) -> dict[str, Prepare]:
    """Liger's function where it is installed, or nobody. Last in every race: some overwrite what they are given."""
    try:
        function = getattr(importlib.import_module("liger_kernel.transformers.functional"), name)
    except (ImportError, AttributeError):
        return {}
    return {"Liger": of_autograd(lambda *inputs: function(*inputs, **options), what)}


def _drawing(machine: Machine, *shapes: tuple[int, ...]) -> Draw:
    """Inputs of these shapes; the output's gradient has that of the first."""
    return lambda: (tuple(machine.randn(*shape) for shape in shapes), machine.randn(*shapes[0]))


def _passes(machine: Machine, count: int, elements: int) -> dict[str, float]:
    return {"moved": float(count * elements * machine.dtype.itemsize)}


def _softmax(machine: Machine) -> Iterator[Task]:
    elements = machine.size(2**27, 2**9)
    for columns in machine.size((128, 512, 2048, 8192, 32_768, 131_072), (16, 64)):
        size = {"rows": elements // columns, "columns": columns}
        for what, count in ((FORWARD, 2), (BACKWARD, 3)):
            rungs = {"naive": of_function(softmax_naive), "online": of_function(softmax_online)}
            contestants = _usual(machine, "softmax", what, peers.softmax, rungs if what == FORWARD else {})
            contestants |= _liger("liger_softmax", what)
            draw = _drawing(machine, tuple(size.values()))
            yield task(machine, "softmax", what, size, _passes(machine, count, elements), draw, contestants)


def _layernorm(machine: Machine) -> Iterator[Task]:
    elements = machine.size(2**27, 2**9)
    for width in machine.size((512, 4096), (32,)):
        size = {"rows": elements // width, "columns": width}
        for what, count in ((FORWARD, 2), (BACKWARD, 3)):
            rungs = {"naive": layernorm_naive, "sweeps": layernorm_sweeps} if what == FORWARD else {}
            rungs = {name: of_function(rung) for name, rung in rungs.items()}
            contestants = _usual(machine, "layernorm", what, peers.layernorm, rungs)
            contestants |= _liger("liger_layer_norm", what, eps=1e-5)
            draw = _drawing(machine, tuple(size.values()), (width,), (width,))
            yield task(machine, "layernorm", what, size, _passes(machine, count, elements), draw, contestants)


def _add_layernorm(machine: Machine) -> Iterator[Task]:
    def pytorch(x: Tensor, sublayer_out: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return peers.layernorm(x + F.dropout(sublayer_out, RATE), gamma, beta)

    def unfused(*inputs: Tensor) -> tuple[Tensor, tuple]:
        return add_layernorm_unfused(*inputs, dropout=DROPOUT)

    elements = machine.size(2**27, 2**9)
    for width in machine.size((512, 4096), (32,)):
        size = {"rows": elements // width, "columns": width}
        for what, count in ((FORWARD, 3), (BACKWARD, 5)):
            rungs = {"unfused": of_function(unfused)} if what == FORWARD else {}
            contestants = _usual(machine, "add_layernorm", what, pytorch, rungs, dropout=DROPOUT)
            draw = _drawing(machine, *[tuple(size.values())] * 2, (width,), (width,))
            yield task(machine, "add_layernorm", what, size, _passes(machine, count, elements), draw, contestants)


def _cross_entropy(machine: Machine) -> Iterator[Task]:
    def pytorch(logits: Tensor, targets: Tensor) -> Tensor:
        return peers.cross_entropy(logits, targets, **LOSS)

    def naive(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return cross_entropy_naive(logits, targets, **LOSS)

    for N, V in machine.size(((8192, 37_000), (2048, 128_000)), ((8, 50),)):

        def draw(N: int = N, V: int = V) -> tuple[tuple, None]:
            return (machine.randn(N, V), machine.randint(1, V, N)), None

        for what, count in ((FORWARD, 1), (BOTH, 3)):
            rungs = {"naive": of_function(naive)} if what == BOTH else {}
            contestants = _usual(machine, "cross_entropy", what, pytorch, rungs, **LOSS)
            contestants |= _liger("liger_cross_entropy", what, **LOSS)
            size, work = {"rows": N, "V": V}, _passes(machine, count, N * V)
            yield task(machine, "cross_entropy", what, size, work, draw, contestants)


def _fused_loss(machine: Machine) -> Iterator[Task]:
    def pytorch(x: Tensor, table: Tensor, targets: Tensor) -> Tensor:
        return peers.linear_cross_entropy(x, table, targets, **LOSS)

    def naive(x: Tensor, table: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return linear_cross_entropy_naive(x, table, targets, **LOSS)

    for N, C, V in machine.size(((25_088, 512, 37_000), (8192, 2048, 128_000)), ((16, 8, 50),)):

        def draw(N: int = N, C: int = C, V: int = V) -> tuple[tuple, None]:
            return (machine.randn(N, C), machine.randn(V, C) / C**0.5, machine.randint(1, V, N)), None

        contestants = _usual(machine, "linear_cross_entropy", BOTH, pytorch, {"naive": of_function(naive)}, **LOSS)
        contestants |= _liger("liger_fused_linear_cross_entropy", BOTH, **LOSS)
        size = {"rows": N, "C": C, "V": V}
        yield task(machine, "linear_cross_entropy", BOTH, size, {"flops": 6.0 * N * C * V}, draw, contestants)


def _adam(machine: Machine) -> Iterator[Task]:
    """On float32, as a model's parameters are."""
    P = machine.size(2**27, 2**9)

    def flat() -> Tensor:
        return machine.randn(P, dtype=torch.float32)

    def optimizer(**how: bool) -> Prepare:
        def prepare(inputs: tuple, dout: Tensor | None) -> Call:
            parameter = torch.nn.Parameter(inputs[0])
            parameter.grad = inputs[1]
            return torch.optim.Adam([parameter], lr=ADAM["lr"], betas=(0.9, 0.98), eps=ADAM["eps"], **how).step

        return prepare

    def naive(*inputs: Tensor) -> None:
        adam_step_naive(*inputs, step=100, **ADAM)

    def draw() -> tuple[tuple, None]:
        return (flat(), flat(), flat(), flat().abs()), None

    contestants: dict[str, Prepare] = {
        OURS: of_function(lambda *inputs: kernels.adam_step(*inputs, step=100, **ADAM)),
        "naive": of_function(naive),
        "PyTorch": optimizer(),
        "PyTorch, fused": optimizer(fused=True),
        "torch.compile": of_function(machine.compiled(naive)),
    }
    yield task(machine, "adam", "step", {"P": P}, {"moved": 28.0 * P}, draw, contestants)
    contestants = {
        OURS: of_function(kernels.global_norm),
        "PyTorch": of_function(torch.linalg.vector_norm),
        "torch.compile": of_function(machine.compiled(lambda x: torch.linalg.vector_norm(x))),
    }
    yield task(machine, "adam", "global norm", {"P": P}, {"moved": 4.0 * P}, lambda: ((flat(),), None), contestants)


def _dropout(machine: Machine) -> Iterator[Task]:
    """Forward alone: the backward is the same map."""
    elements, width = machine.size((2**27, 512), (2**9, 32))
    size = {"rows": elements // width, "columns": width}
    rungs = {"naive": of_function(lambda x: dropout_naive(x, RATE))}
    contestants = _usual(machine, "dropout", FORWARD, lambda x: F.dropout(x, RATE), rungs, dropout=DROPOUT)
    draw = _drawing(machine, tuple(size.values()))
    yield task(machine, "dropout", FORWARD, size, _passes(machine, 2, elements), draw, contestants)


def _relu(machine: Machine) -> Iterator[Task]:
    elements, width = machine.size((2**27, 2048), (2**9, 32))
    size = {"rows": elements // width, "columns": width}
    for what, count in ((FORWARD, 2), (BACKWARD, 3)):
        contestants = _usual(machine, "relu", what, peers.relu, {})
        draw = _drawing(machine, tuple(size.values()))
        yield task(machine, "relu", what, size, _passes(machine, count, elements), draw, contestants)


def _embedding(machine: Machine) -> Iterator[Task]:
    def naive(inputs: tuple, dout: Tensor | None) -> Call:
        _, cache = kernels.embedding_forward(*inputs)
        assert dout is not None
        return lambda: embedding_backward_naive(dout, cache)

    N, V, C = machine.size((2**18, 37_000, 512), (32, 50, 32))

    def draw() -> tuple[tuple, Tensor]:
        return (machine.randint(0, V, N), machine.randn(V, C)), machine.randn(N, C)

    for what, passed in ((FORWARD, 2 * N), (BACKWARD, N + V)):
        rungs = {"naive": naive} if what == BACKWARD else {}
        contestants = _usual(machine, "embedding", what, peers.embedding, rungs)
        size = {"rows": N, "V": V, "columns": C}
        yield task(machine, "embedding", what, size, _passes(machine, passed, C), draw, contestants)
