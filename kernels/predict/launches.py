"""What a call launches, found without a GPU: kernels of Triton's, compiled for one, and PyTorch's own operations.

The call runs on tensors that have shapes and no memory, under a driver that only compiles: see `bench.compilation`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from triton.runtime.jit import JITFunction

from ..bench.compilation import pretending, said_by
from . import sass, trips
from .gpus import GPU, NEAR, Time, Work, time_of, time_of_torch


class Launch(NamedTuple):
    """One launch of a kernel or of an operation."""

    name: str
    time_on: Callable[[GPU], Time] | None
    """None where too much is unknown."""
    unknown: str = ""
    """What the model does not know of it."""


@contextmanager
def watched(target: str) -> Iterator[list[Launch]]:
    """Whatever is launched inside is collected here."""
    found: list[Launch] = []
    with pretending(target) as compiled:
        compile_only: Any = JITFunction.run

        def run(function: Any, *arguments: Any, grid: Any, **options: Any) -> Any:
            made = compile_only(function, *arguments, grid=grid, **options)
            (_, kernel) = compiled.pop()
            found.append(_launch_of(function, kernel, arguments, options, grid))
            return made

        with patch.object(JITFunction, "run", run), _Operations(found):
            yield found


class _Operations(TorchDispatchMode):
    """Collects PyTorch's operations, but for views and what only allocates."""

    def __init__(self, found: list[Launch]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        written = [each for each in func._schema.returns if each.alias_info is None or each.alias_info.is_write]
        tensors = [each for each in _flat((args, kwargs or {}, out)) if isinstance(each, Tensor)]
        if written and tensors and not name.startswith(("empty", "new_empty", "detach")):
            moved = sum(each.numel() * each.element_size() for each in tensors)
            count = flop_registry.get(func._overloadpacket)
            flops = count(*(each for each in args if isinstance(each, Tensor)), out_val=out) if count else 0
            self.found.append(Launch(name, lambda gpu: time_of_torch(name, moved, flops, gpu)))
        return out


def _launch_of(function: Any, kernel: Any, arguments: Sequence[Any], options: dict[str, Any], grid: Any) -> Launch:
    """A launch of one of our kernels."""
    bound = dict(zip(function.arg_names, arguments, strict=False)) | options
    kinds = kernel.src.signature
    given = [each for name in function.arg_names for each in _given(kinds[name], bound.get(name))]
    code, registers = _machine_code(kernel.hash, kernel.asm["cubin"])
    try:
        found = trips.read(kernel.asm["ttir"], given, grid(bound) if callable(grid) else grid)
        times, unknown = _times(found, code)
    except ValueError as error:
        return Launch(function.__name__, None, str(error))
    moved = passed = 0.0
    for number, amount in (*found.loaded.items(), *found.stored.items()):
        once = min(given[number].numel() * given[number].element_size(), amount)
        moved += once
        passed += once if once <= NEAR else amount
    work = Work(
        programs=found.programs,
        warps=kernel.metadata.num_warps,
        registers=registers,
        shared=kernel.metadata.shared,
        code=code,
        trips=times,
        even=all(each is None or each.min() == each.max() for each in found.trips),
        moved=moved,
        passed=passed,
    )
    return Launch(function.__name__, lambda gpu: time_of(work, gpu), unknown)


def _times(found: trips.Found, code: Sequence[sass.Instruction]) -> tuple[list[float], str]:
    """How often each loop of machine code runs on the average, and what of it is unknown.

    Raises `ValueError` if the compiler has made more loops or fewer, and for one of products whose end is in memory.
    """
    loops = sass.loops(code)
    if len(loops) != len(found.trips):
        raise ValueError(f"{len(found.trips)} loops, and {len(loops)} in machine code")
    for (begin, end), each in zip(loops, found.trips, strict=True):
        if each is None and any(one.base == "HGMMA" for one in code[begin : end + 1]):
            raise ValueError("how many products there are")
    unknown = ["branches"] * found.branches + ["trips"] * any(each is None for each in found.trips)
    return [1.0 if each is None else float(each.mean()) for each in found.trips], " and ".join(unknown)


_known: dict[str, tuple[list[sass.Instruction], int]] = {}
"""By its hash, a kernel's machine code and the registers of a thread."""


def _machine_code(name: str, cubin: bytes) -> tuple[list[sass.Instruction], int]:
    if name not in _known:
        said = said_by("cuobjdump", cubin, "-sass", "-res-usage")
        registers = re.search(r"REG:(\d+)", said)
        assert registers is not None, said
        _known[name] = sass.instructions(said), int(registers[1])
    return _known[name]


def _given(kind: Any, value: Any) -> Iterator[Any]:
    """The values that compiled code is given of an argument: those of a tuple one by one, of a constant none."""
    if isinstance(kind, tuple):
        for each, part in zip(kind, value, strict=True):
            yield from _given(each, part)
    elif kind != "constexpr":
        yield value


def _flat(values: Any) -> Iterator[Any]:
    """What tuples, lists and dictionaries hold, one by one."""
    if isinstance(values, dict):
        values = tuple(values.values())
    if isinstance(values, tuple | list):
        for each in values:
            yield from _flat(each)
    else:
        yield values
