"""The ops whose time is the memory's: GB/s by the bytes that must move, each input read once, each output written once.

The fused loss is counted in operations instead: its three products take most of its time.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timing import Call, Machine, Prepare, Task, of_autograd, of_function, of_pair, task
from torch import Tensor

import kernels
from kernels.adam import adam_step_naive
from kernels.proof import peers
from kernels.proof.cases import SMOOTHED, declaration_of, shapes
from kernels.proof.ledger import BACKWARD, BOTH, FORWARD, OURS
from minitransformer.ops import Dropout

RATE = 0.1
DROPPING = {"dropout": Dropout(RATE, key=1)}
ADAM = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9}

Size = dict[str, int]
Directions = Mapping[str, Callable[[Size], float]]
"""For each of a pair's directions, how many elements a size moves; of the fused loss, how many operations."""


def tasks(machine: Machine) -> Iterator[Task]:
    """All of them, op by op; the fused loss comes first, in case that the time does not suffice."""

    def rows_of(*columns: int) -> list[Size]:
        return [{"rows": machine.size(2**27, 2**9) // width, "columns": width} for width in columns]

    pair, both_ways = partial(_pair, machine), {FORWARD: _passes(2), BACKWARD: _passes(3)}
    shapes = machine.size([(25_088, 512, 37_000), (8192, 2048, 128_000)], [(16, 8, 50)])
    sizes = [{"rows": N, "C": C, "V": V} for N, C, V in shapes]
    products = {BOTH: lambda size: 6.0 * size["rows"] * size["C"] * size["V"]}
    liger, loss = "liger_fused_linear_cross_entropy", partial(peers.linear_cross_entropy, **SMOOTHED)
    yield from pair("linear_cross_entropy", sizes, products, loss, SMOOTHED, liger, SMOOTHED)

    yield from _linear_attention(machine)
    yield from _rope(machine)
    yield from _adam(machine)

    widths = rows_of(*machine.size((512, 4096), (32,)))
    usual = rows_of(machine.size(512, 32))  # forward alone: the backward is the same map
    yield from pair("dropout", usual, {FORWARD: _passes(2)}, lambda x: F.dropout(x, RATE), DROPPING)
    yield from pair("layernorm", widths, both_ways, peers.layernorm, {}, "liger_layer_norm", {"eps": 1e-5})
    yield from pair("rmsnorm", widths, both_ways, peers.rmsnorm, {}, "liger_rms_norm", {"eps": 1e-6})

    def dropped(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, sublayer_out, *rest: norm(x + F.dropout(sublayer_out, RATE), *rest)

    passes = {FORWARD: _passes(3), BACKWARD: _passes(5)}
    yield from pair("add_layernorm", widths, passes, dropped(peers.layernorm), DROPPING)
    yield from pair("add_rmsnorm", widths[:1], passes, dropped(peers.rmsnorm), DROPPING)

    sizes = machine.size([{"rows": 8192, "V": 37_000}, {"rows": 2048, "V": 128_000}], [{"rows": 8, "V": 50}])
    passes, loss = {FORWARD: _passes(1), BOTH: _passes(3)}, partial(peers.cross_entropy, **SMOOTHED)
    yield from pair("cross_entropy", sizes, passes, loss, SMOOTHED, "liger_cross_entropy", SMOOTHED)

    sizes = rows_of(*machine.size((128, 512, 2048, 8192, 32_768, 131_072), (16, 64)))
    yield from pair("softmax", sizes, both_ways, peers.softmax, {}, "liger_softmax")

    usual = rows_of(machine.size(2048, 32))
    for op in ("relu", "gelu", "silu"):
        yield from pair(op, usual, both_ways, getattr(peers, op))
    passes = {FORWARD: _passes(3), BACKWARD: _passes(5)}
    yield from pair("gated", usual, passes, peers.gated, {}, "liger_swiglu")

    N, V, C = machine.size((2**18, 37_000, 512), (32, 50, 32))
    moved = {FORWARD: lambda size: 2 * N * C, BACKWARD: lambda size: (N + V) * C}
    yield from pair("embedding", [{"rows": N, "V": V, "columns": C}], moved, peers.embedding)


def _pair(
    machine: Machine,
    op: str,
    sizes: Sequence[Size],
    directions: Directions,
    pytorch: Callable[..., Tensor],
    options: Mapping[str, Any] = {},
    liger: str = "",
    liger_options: Mapping[str, Any] = {},
) -> Iterator[Task]:
    """The races of a pair: ours, PyTorch's function, the same compiled, and Liger's."""
    for size in sizes:
        for what, amount in directions.items():
            fused = op == "linear_cross_entropy"
            work = {"flops": amount(size)} if fused else {"moved": float(amount(size) * machine.dtype.itemsize)}
            contestants = {
                OURS: of_pair(op, what, **options),
                "PyTorch": of_autograd(pytorch, what),
                "torch.compile": of_autograd(machine.compiled(pytorch), what),
                **_liger(liger, what, liger_options),
            }
            yield task(machine, op, what, size, work, partial(_drawn, machine, op, size), contestants)


def _passes(count: int) -> Callable[[Size], float]:
    """So many passes over the rows."""
    return lambda size: count * size["rows"] * size.get("columns", size.get("V", 1))


def _drawn(machine: Machine, op: str, size: Size) -> tuple[tuple, Tensor | None]:
    """Inputs of a pair, and the gradient that its output receives: none for a loss, whose is 1. No id is ignored."""
    rows, width = size["rows"], size.get("columns", size.get("C", 1))
    elementwise = all(argument.axes == ("...",) for argument in declaration_of(op).arrays)
    leading = (rows, width) if elementwise else (rows,)
    inputs = {}
    for argument, shape in shapes(op, leading, N=rows, C=width, F=width, n=width, V=size.get("V", 1)).items():
        drawn = machine.randint(1, size["V"], *shape) if argument.kind == "ids" else machine.randn(*shape)
        inputs[argument.name] = drawn / width**0.5 if argument.name == "table" else drawn
    return tuple(inputs.values()), None if "targets" in inputs else machine.randn(rows, width)


def _liger(name: str, what: str, options: Mapping[str, Any]) -> dict[str, Prepare]:
    """Liger's function where it is installed, or nobody. Last in every race: some overwrite what they are given."""
    try:
        function = getattr(importlib.import_module("liger_kernel.transformers.functional"), name)
    except (ImportError, AttributeError):
        return {}
    return {"Liger": of_autograd(lambda *inputs: function(*inputs, **options), what)}


def _linear_attention(machine: Machine) -> Iterator[Task]:
    """Causal, against the formula with all weights."""
    B, H, D = machine.size((4, 16, 64), (1, 2, 8))
    causal = partial(peers.linear_attention, causal=True)
    for T in machine.size((1024, 4096), (70,)):
        size = {"B": B, "H": H, "Tq": T, "Tk": T, "D": D}

        def drawn(T: int = T) -> tuple[tuple, Tensor]:
            query, key, value, dout = (machine.randn(B, H, T, D) for _ in range(4))
            return (query, key, value), dout

        for what, count in {FORWARD: 4, BACKWARD: 8}.items():
            contestants: dict[str, Prepare] = {
                OURS: of_pair("linear_attention", what, causal=True),
                "PyTorch": of_autograd(causal, what),
                "torch.compile": of_autograd(machine.compiled(causal), what),
            }
            work = {"moved": float(count * B * H * T * D * machine.dtype.itemsize)}
            yield task(machine, "linear_attention", what, size, work, drawn, contestants)


def _rope(machine: Machine) -> Iterator[Task]:
    """Halves, of the queries and the keys of a projection, as attention's layer hands them over.

    Liger's turns queries and keys in one call, and in place: no other contestant does that.
    """
    B, H, Hk, T, D = machine.size((4, 32, 8, 4096, 128), (1, 2, 1, 20, 8))
    angles = dict(zip(("cos", "sin"), machine.randn(2, T, D // 2), strict=True))
    formula = partial(peers.rope, **angles)

    def drawn() -> tuple[tuple, Tensor]:
        heads = machine.randn(B, T, H + 2 * Hk, D)[:, :, : H + Hk].transpose(1, 2)
        return (heads,), machine.randn(B, T, H + Hk, D).transpose(1, 2)

    size = {"B": B, "H": H + Hk, "T": T, "D": D}
    work = {"moved": 2.0 * B * (H + Hk) * T * D * machine.dtype.itemsize}
    for what in (FORWARD, BACKWARD):
        contestants: dict[str, Prepare] = {
            OURS: of_pair("rope", what, **angles),
            "PyTorch": of_autograd(formula, what),
            "torch.compile": of_autograd(machine.compiled(formula), what),
        }
        yield task(machine, "rope", what, size, work, drawn, contestants)


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

    contestants: dict[str, Prepare] = {
        OURS: of_function(lambda *inputs: kernels.adam_step(*inputs, step=100, **ADAM)),
        "PyTorch": optimizer(),
        "PyTorch, fused": optimizer(fused=True),
        "torch.compile": of_function(machine.compiled(naive)),
    }
    work = {"moved": 28.0 * P}
    yield task(
        machine, "adam", "step", {"P": P}, work, lambda: ((flat(), flat(), flat(), flat().abs()), None), contestants
    )
    contestants = {
        OURS: of_function(kernels.global_norm),
        "PyTorch": of_function(torch.linalg.vector_norm),
        "torch.compile": of_function(machine.compiled(lambda x: torch.linalg.vector_norm(x))),
    }
    yield task(machine, "adam", "global norm", {"P": P}, {"moved": 4.0 * P}, lambda: ((flat(),), None), contestants)
