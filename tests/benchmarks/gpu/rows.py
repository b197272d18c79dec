"""The ops whose time is the memory's: GB/s by the bytes that must move, each input read once, each output written once.

The fused loss is counted in operations instead: its three products take most of its time.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from timing import Call, Machine, Prepare, Task, of_autograd, of_function, of_pair
from torch import Tensor

import kernels
from kernels.adam import adam_step_naive
from kernels.eager.quantized import columns
from kernels.proof.cases import SMOOTHED, declaration_of, shapes
from kernels.proof.ledger import BACKWARD, BOTH, FORWARD, OURS
from kernels.proof.peers import PEERS
from minitransformer.ops import Dropout, Quantized

RATE = 0.1
DROPPING = {"dropout": Dropout(RATE, key=1)}
ADAM = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9}

Size = dict[str, int]


def tasks(machine: Machine) -> Iterator[Task]:
    """Yield all of them, op by op; the fused loss comes first, in case that the time does not suffice."""

    def rows_of(*columns: int) -> list[Size]:
        return [{"rows": machine.size(2**27, 2**9) // width, "columns": width} for width in columns]

    def dropped(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, sublayer_out, *rest: norm(x + F.dropout(sublayer_out, RATE), *rest)

    pair, map_of = partial(_pair, machine), {FORWARD: 2, BACKWARD: 3}
    large = machine.size([(25_088, 512, 37_000), (8192, 2048, 128_000)], [(16, 8, 50)])
    sizes = [{"rows": N, "C": C, "V": V} for N, C, V in large]
    loss = partial(PEERS["linear_cross_entropy"], **SMOOTHED)
    yield from pair("linear_cross_entropy", sizes, {BOTH: 3}, SMOOTHED, loss, "liger_fused_linear_cross_entropy")

    B, H, D = machine.size((4, 16, 64), (1, 2, 8))  # causal, against the formula with all weights
    sizes = [{"B": B, "H": H, "Tq": T, "Tk": T, "D": D} for T in machine.size((1024, 4096), (70,))]
    formula = partial(PEERS["linear_attention"], causal=True)
    yield from pair("linear_attention", sizes, {FORWARD: 4, BACKWARD: 8}, {"causal": True}, formula)

    yield from _quantized(machine)
    yield from _rope(machine)
    yield from _adam(machine)

    widths, usual = rows_of(*machine.size((512, 4096), (32,))), rows_of(machine.size(512, 32))
    yield from pair("dropout", usual, {FORWARD: 2}, DROPPING, lambda x: F.dropout(x, RATE))  # the same map backward
    yield from pair("layernorm", widths, map_of, liger="liger_layer_norm", eps=1e-5)
    yield from pair("rmsnorm", widths, map_of, liger="liger_rms_norm", eps=1e-6)
    added = {FORWARD: 3, BACKWARD: 5}
    yield from pair("add_layernorm", widths, added, DROPPING, dropped(PEERS["layernorm"]))
    yield from pair("add_rmsnorm", widths[:1], added, DROPPING, dropped(PEERS["rmsnorm"]))

    sizes = machine.size([{"rows": 8192, "V": 37_000}, {"rows": 2048, "V": 128_000}], [{"rows": 8, "V": 50}])
    loss = partial(PEERS["cross_entropy"], **SMOOTHED)
    yield from pair("cross_entropy", sizes, {FORWARD: 1, BOTH: 3}, SMOOTHED, loss, "liger_cross_entropy")

    sizes = rows_of(*machine.size((128, 512, 2048, 8192, 32_768, 131_072), (16, 64)))
    yield from pair("softmax", sizes, map_of, liger="liger_softmax")

    usual = rows_of(machine.size(2048, 32))
    for op in ("relu", "gelu", "silu"):
        yield from pair(op, usual, map_of)
    yield from pair("gated", usual, added, liger="liger_swiglu")

    N, V, C = machine.size((2**18, 37_000, 512), (32, 50, 32))
    yield from pair("embedding", [{"rows": N, "V": V, "columns": C}], {FORWARD: 2, BACKWARD: 1 + V / N})


def _pair(
    machine: Machine,
    op: str,
    sizes: list[Size],
    passes: Mapping[str, float],
    options: Mapping[str, Any] = {},
    pytorch: Callable[..., Tensor] | None = None,
    liger: str = "",
    **liger_options: Any,
) -> Iterator[Task]:
    """Yield the races of a pair: ours, PyTorch's function, the same compiled, and Liger's where it is installed.

    Liger's come last, since some overwrite what they are given. A pair takes so many passes over what comes out, or
    over the logits; the fused loss so many products.
    """
    function = pytorch or PEERS[op]

    def ligers(*inputs: Tensor) -> Tensor:  # to import it asks for a GPU
        own = getattr(import_module("liger_kernel.transformers.functional"), liger)
        return own(*inputs, **(liger_options or options))

    for size in sizes:
        elements = size["rows"] * size.get("columns", size.get("V", 1)) if "rows" in size else math.prod(_heads(size))
        for what, count in passes.items():
            contestants = {
                OURS: of_pair(op, what, **options),
                "PyTorch": of_autograd(function, what),
                "torch.compile": of_autograd(machine.compiled(function), what),
            }
            if liger and find_spec("liger_kernel"):
                contestants["Liger"] = of_autograd(ligers, what)
            work = {"moved": float(round(count * elements) * machine.dtype.itemsize)}
            if op == "linear_cross_entropy":
                work = {"flops": 2.0 * count * elements * size["C"]}
            yield Task.of(machine, op, what, size, work, partial(_drawn, machine, op, size), contestants)


def _heads(size: Size) -> tuple[int, ...]:
    return tuple(size[axis] for axis in ("B", "H", "Tq", "D"))


def _drawn(machine: Machine, op: str, size: Size) -> tuple[tuple, Tensor | None]:
    """Return inputs of a pair, and the gradient that its output receives: none for a loss. No id is ignored."""
    if "rows" not in size:
        query, key, value, dout = (machine.randn(*_heads(size)) for _ in range(4))
        return (query, key, value), dout
    rows, width = size["rows"], size.get("columns", size.get("C", 1))
    elementwise = all(argument.axes == ("...",) for argument in declaration_of(op).arrays)
    leading = (rows, width) if elementwise else (rows,)
    inputs = {}
    for argument, shape in shapes(op, leading, N=rows, C=width, F=width, n=width, V=size.get("V", 1)).items():
        drawn = machine.randint(1, size["V"], *shape) if argument.kind == "ids" else machine.randn(*shape)
        inputs[argument.name] = drawn / width**0.5 if argument.name == "table" else drawn
    return tuple(inputs.values()), None if "targets" in inputs else machine.randn(rows, width)


def _quantized(machine: Machine) -> Iterator[Task]:
    """Yield a token and a prompt, with a weight larger than the L2 cache; beside them the same weight in 16 bits.

    The unpacked product is of a weight that was unpacked before; PyTorch unpacks it in each call.
    """
    width_in, width_out = machine.size((8192, 28_672), (64, 50))

    def drawn(rows: int, bits: int) -> tuple[tuple, Tensor]:
        groups = width_out, width_in // 32
        packed = machine.randint(0, 256, *groups, 4 * bits).to(torch.uint8)
        scales, zeros = (machine.randn(*groups, dtype=torch.float16) / 100 for _ in range(2))
        weight = Quantized(packed.view(torch.int8) if bits == 8 else packed, scales, None if bits == 8 else zeros, bits)
        return (machine.randn(rows, width_in), weight, machine.randn(width_out)), machine.randn(rows, width_out)

    def unpacked(inputs: tuple, dout: Tensor | None) -> Call:
        x, weight, bias = inputs
        whole = torch.cat([rows for _, rows in columns(weight)]).to(x.dtype)
        return lambda: F.linear(x, whole, bias)

    naive = of_function(lambda x, weight, bias: PEERS["quantized_linear"](x, bias, weight))
    for rows in machine.size((1, 2048), (1, 20)):
        for bits in (8, 4):
            size = {"rows": rows, "C_in": width_in, "C_out": width_out, "bits": bits}
            moved = width_in * width_out * (bits + (16 if bits == 8 else 32) / 32) / 8
            flops = 2.0 * rows * width_in * width_out
            work = {"moved": moved} if rows == 1 else {"flops": flops}
            contestants: dict[str, Prepare] = {
                OURS: of_pair("quantized_linear", FORWARD),
                "PyTorch": naive,
                "16 bits": unpacked,
            }
            yield Task.of(machine, "quantized_linear", FORWARD, size, work, partial(drawn, rows, bits), contestants)
            if rows > 1:
                ours = {OURS: of_pair("quantized_linear", BACKWARD)}
                yield Task.of(machine, "quantized_linear", BACKWARD, size, work, partial(drawn, rows, bits), ours)


def _rope(machine: Machine) -> Iterator[Task]:
    """Yield halves, of the queries and the keys of a projection, as attention's layer hands them over.

    Liger's turns queries and keys in one call, and in place: no other contestant does that.
    """
    B, H, Hk, T, D = machine.size((4, 32, 8, 4096, 128), (1, 2, 1, 20, 8))
    angles, compiled = cache(lambda: tuple(machine.randn(2, T, D // 2))), machine.compiled(PEERS["rope"])

    def drawn() -> tuple[tuple, Tensor]:
        heads = machine.randn(B, T, H + 2 * Hk, D)[:, :, : H + Hk].transpose(1, 2)
        return (heads,), machine.randn(B, T, H + Hk, D).transpose(1, 2)

    for what in (FORWARD, BACKWARD):

        def ours(inputs: tuple, dout: Tensor | None, what: str = what) -> Call:
            return of_pair("rope", what, **dict(zip(("cos", "sin"), angles(), strict=True)))(inputs, dout)

        contestants: dict[str, Prepare] = {
            OURS: ours,
            "PyTorch": of_autograd(lambda x: PEERS["rope"](x, *angles()), what),
            "torch.compile": of_autograd(lambda x: compiled(x, *angles()), what),
        }
        work = {"moved": 2.0 * B * (H + Hk) * T * D * machine.dtype.itemsize}
        yield Task.of(machine, "rope", what, {"B": B, "H": H + Hk, "T": T, "D": D}, work, drawn, contestants)


def _adam(machine: Machine) -> Iterator[Task]:
    """Yield the step and the norm, on float32, as a model's parameters are."""
    P = machine.size(2**27, 2**9)

    def flat() -> Tensor:
        return machine.randn(P, dtype=torch.float32)

    def optimizer(**how: bool) -> Prepare:
        def prepare(inputs: tuple, dout: Tensor | None) -> Call:
            parameter = torch.nn.Parameter(inputs[0])
            parameter.grad = inputs[1]
            return torch.optim.Adam([parameter], lr=ADAM["lr"], betas=(0.9, 0.98), eps=ADAM["eps"], **how).step

        return prepare

    step: dict[str, Prepare] = {
        OURS: of_function(partial(kernels.adam_step, step=100, **ADAM)),
        "PyTorch": optimizer(),
        "PyTorch, fused": optimizer(fused=True),
        "torch.compile": of_function(machine.compiled(partial(adam_step_naive, step=100, **ADAM))),
    }
    norm: dict[str, Prepare] = {
        OURS: of_function(kernels.global_norm),
        "PyTorch": of_function(torch.linalg.vector_norm),
        "torch.compile": of_function(machine.compiled(lambda x: torch.linalg.vector_norm(x))),
    }
    size, moved = {"P": P}, {"moved": 28.0 * P}
    yield Task.of(machine, "adam", "step", size, moved, lambda: ((flat(), flat(), flat(), flat().abs()), None), step)
    yield Task.of(machine, "adam", "global norm", size, {"moved": 4.0 * P}, lambda: ((flat(),), None), norm)
