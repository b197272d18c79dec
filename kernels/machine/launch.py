"""Launches of Triton kernels as machine code in host memory: `emulating` replaces a GPU and its driver."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..availability import interpreting
from ..proof.pretending import pretending
from .assembly import Program, parse
from .execute import AT_ONCE, Machine, Region, granule_of_tensors
from .memory import Memory
from .registers import LANES

TARGET = "hip:gfx1100"
MEMORY_AT, ARGUMENTS_AT = 1 << 40, 1 << 32
"""The addresses at which the executor's memory and arguments begin; the hardware's addresses have 48 bits."""
GAP = 256
"""The bytes between two tensors, which belong to none."""


@dataclass
class Emulation:
    """The options with which kernels are executed, and a `Launch` for each that was."""

    order: str = "together"
    seed: int = 0
    rewrite: Callable[[str], str] = str
    launches: list["Launch"] = field(default_factory=list)


@dataclass(frozen=True)
class Launch:
    """One kernel that was executed, and the number of instructions, summed over its waves."""

    kernel: str
    program: Program
    grid: tuple[int, int, int]
    num_warps: int
    instructions: int


@contextmanager
def emulating(order: str = "together", seed: int = 0, rewrite: Callable[[str], str] = str) -> Iterator[Emulation]:
    """Run Triton kernels inside the block as machine code of a gfx1100, by instruction, on tensors of the CPU.

        with kernels.machine.emulating() as emulation:
            y, cache = kernels.softmax_forward(x)
        print(emulation.launches)

    `order` is one of `execute.ORDERS`; `seed` is that of the order "at random"; `rewrite` may change an assembly before
    it is executed, for example to leave out a barrier. Raises `Fault` for a race, a stray access, lanes that disagree
    or a barrier that not all waves reach, `Unknown` for an instruction that the executor does not know, and
    `RuntimeError` in Triton's interpreter, which compiles nothing.
    """
    if interpreting():
        raise RuntimeError("Triton's interpreter is on and compiles nothing: start again without TRITON_INTERPRET")
    emulation = Emulation(order, seed, rewrite)
    with pretending(TARGET, then=lambda *launch: emulation.launches.append(_execute(emulation, *launch))):
        yield emulation


def _execute(emulation: Emulation, function: Any, kernel: Any, grid: Any, arguments: dict[str, Any]) -> Launch:
    """Execute one launch: the tensors are copied to the executor's memory, and back."""
    shape = tuple(grid(arguments) if callable(grid) else grid)
    shape = (*shape, 1, 1)[:3]
    flat = list(_flat(kernel.src.signature, arguments))
    program, num_warps = parse(emulation.rewrite(kernel.asm["amdgcn"])), kernel.metadata.num_warps
    tensors = {name: value for name, _, value in flat if isinstance(value, torch.Tensor)}
    instructions = execute(
        program, shape, num_warps, kernel.metadata.shared, tensors,
        lambda places: [(kind, places.get(name, value)) for name, kind, value in flat], emulation.order, emulation.seed,
    )  # fmt: skip
    return Launch(function.fn.__name__, program, shape, num_warps, instructions)


def execute(
    program: Program, grid: tuple[int, int, int], num_warps: int, shared_size: int, tensors: dict[str, torch.Tensor],
    arguments: Any, order: str = "together", seed: int = 0,
) -> int:  # fmt: skip
    """Run all programs of a grid; return the number of instructions.

    `arguments` is given the addresses of the tensors and returns the types and values of all arguments.
    """
    data, owner, regions, places, storages = _laid_out(tensors)
    memory = Memory(data, granule_of_tensors(program), "global memory")
    packed = _packed(program, arguments(places), _hidden(grid, num_warps))
    programs = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    numbers = np.arange(len(programs))
    rng = np.random.default_rng(seed)
    if order == "in reverse":
        programs, numbers = programs[::-1], numbers[::-1]
    batch, instructions = max(AT_ONCE // num_warps, 1), 0
    for start in range(0, len(programs), batch):
        stop = start + batch
        machine = Machine(
            program, programs[start:stop], numbers[start:stop], num_warps, shared_size, packed, ARGUMENTS_AT,
            memory, MEMORY_AT, owner, regions,
        )  # fmt: skip
        instructions += machine.run(order, rng)
    for storage, start in storages:
        storage.copy_(torch.from_numpy(memory.data[start : start + storage.numel()]))
    return instructions


def _laid_out(tensors: dict[str, torch.Tensor]) -> Any:
    """Return the bytes of all storages one after the other, the owner of each byte, and the tensors' places."""
    starts: dict[int, tuple[int, str, torch.Tensor]] = {}
    end = GAP
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in starts and storage.nbytes():
            end += (storage.data_ptr() - end) % GAP  # as aligned as in host memory
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            starts[storage.data_ptr()] = end, name, whole
            end += storage.nbytes() + GAP
    data, owner = np.zeros(end, np.uint8), np.zeros(end, np.uint16)
    regions, storages = [], []
    for number, (start, name, whole) in enumerate(starts.values(), 1):
        data[start : start + whole.numel()] = whole.numpy()
        owner[start : start + whole.numel()] = number
        regions.append(Region(name, start, whole.numel()))
        storages.append((whole, start))
    places = {}
    for name, tensor in tensors.items():
        base = tensor.untyped_storage().data_ptr()
        places[name] = MEMORY_AT + (starts[base][0] + tensor.data_ptr() - base if base in starts else 0)
    return data, owner, regions, places, storages


def _flat(signature: dict[str, Any], arguments: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the names, types and values of the arguments that are not compiled in, those in tuples one by one."""

    def pairs(name: str, kind: Any, value: Any) -> Iterator[tuple[str, str, Any]]:
        if isinstance(kind, tuple):
            names = getattr(value, "_fields", range(len(kind)))
            for each, inner, part in zip(names, kind, value, strict=True):
                yield from pairs(f"{name}.{each}", inner, part)
        elif kind.startswith("tensordesc"):
            from triton.backends.amd.driver import expand_signature, make_tensordesc_arg  # Triton 3.6 lacks them

            for inner, part in zip(expand_signature([kind], None), make_tensordesc_arg(value, None, None), strict=True):
                yield f"{name} {inner}", inner, part
        elif kind != "constexpr":
            yield name, kind, value

    for name, kind in signature.items():
        yield from pairs(name, kind, arguments.get(name))


def _hidden(grid: tuple[int, int, int], num_warps: int) -> dict[str, int]:
    """Return the arguments that a launch adds: the number of programs, and of threads in one."""
    sizes = (num_warps * LANES, 1, 1)
    counts = {f"block_count_{axis}": count for axis, count in zip("xyz", grid, strict=True)}
    return counts | {f"group_size_{axis}": size for axis, size in zip("xyz", sizes, strict=True)}


def _packed(program: Program, arguments: Sequence[tuple[str, Any]], hidden: dict[str, int]) -> np.ndarray:
    """Return the bytes of a kernel's arguments at their places; Triton's own, which follow, are null."""
    packed = np.zeros(-(-program.needs["kernarg_size"] // 4) * 4 + 64, np.uint8)
    own = [each for each in program.arguments if not each.hidden]
    given = [*zip(own, arguments, strict=False)]
    given += [(each, ("i32", hidden[each.hidden])) for each in program.arguments if each.hidden in hidden]
    for place, (kind, value) in given:
        dtype = {"fp32": np.float32, "fp64": np.float64, "fp16": np.float16}.get(kind)
        if dtype is None:
            number = np.array([int(value) & (2 ** (8 * place.size) - 1)], np.uint64).view(np.uint8)[: place.size]
        else:
            number = np.array([value], dtype).view(np.uint8)
        packed[place.offset : place.offset + place.size] = number
    return packed
