"""The tasks of each section of `lease`, and the variants of the kernels that are compared.

A variant is the package with something replaced. Most are switched on and off within a process. But Triton reads the
functions that a kernel calls when it compiles the kernel: variants of these, `ALONE`, have processes of their own.
"""

import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import attention
import rows
import swap
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from threadpoolctl import threadpool_limits
from timing import Call, Found, Machine, Task
from torch import Tensor

from kernels import KERNELS
from kernels.proof import checks
from kernels.proof.cases import name_of
from kernels.proof.ledger import BOTH, FORWARD, OURS
from kernels.tuning import Tile, agree
from minitransformer.gradcheck import error

COURSE = Path(__file__).resolve().parents[3] / "lessons" / "course"
LESSONS = {f"lesson {n}": COURSE / f"lesson_{n}" / "solutions.py" for n in (15, 16)}
SOLUTION = "solution"

# --- Variants --------------------------------------------------------------------------------------------------

Change = tuple[str, Callable[[Any], Any]]
"""An attribute of a module of `kernels`, such as "softmax.STAGES", and what to make of its value."""


class Variant(NamedTuple):
    """The changes to the package, and how they are expected to change the time."""

    expected: str
    changes: tuple[Change, ...]


@contextmanager
def applied(changes: Sequence[Change]) -> Iterator[None]:
    """Make these changes to the package for a while. A function is replaced in every module that has imported it."""
    with ExitStack() as stack:
        for place, change in changes:
            module, name = f"kernels.{place}".rsplit(".", 1)
            owner = import_module(module)
            original = getattr(owner, name)
            value = change(original)
            for each in [each for title, each in sys.modules.items() if title.startswith("kernels.")]:
                if each is owner or (callable(original) and vars(each).get(name) is original):
                    stack.enter_context(patch.object(each, name, value))
        yield


def to(value: Any) -> Callable[[Any], Any]:
    """Return a change to this value."""
    return lambda original: value


def scheduled(**chosen: Any) -> Change:
    """Return a change of `tiles.schedule`: these parts, where a kernel's schedule has them, have these values."""

    def change(original: Callable[..., dict]) -> Callable[..., dict]:
        def schedule(*arguments: Any) -> dict:
            found = original(*arguments)
            return found | {name: value for name, value in chosen.items() if name in found}

        return schedule

    return "attention.tiles.schedule", change


def tiled(keys: int, descriptors: bool) -> Change:
    """Return a change of `tiles.candidates`: the forward has one tile, the first with this many keys (or the first)."""

    def change(original: Callable[..., list[Tile]]) -> Callable[..., list[Tile]]:
        def candidates(name: str, *arguments: Any, **options: Any) -> list[Tile]:
            tiles = original(name, *arguments, **options)
            if name != "forward":
                return tiles
            some = next((tile for tile in tiles if tile.columns == keys), tiles[0])._replace(descriptors=descriptors)
            alike = [tile for tile in tiles if (tile.columns, tile.descriptors) == (some.columns, descriptors)]
            return [*alike, some][:1]

        return candidates

    return "attention.tiles.candidates", change


SCHEDULES = {
    "pointers, LEAD 0": Variant("slower: 1,790 cycles a block of 64 keys", (tiled(64, False), scheduled(LEAD=0))),
    "pointers, LEAD 1": Variant("slower: 1,690 cycles", (tiled(64, False), scheduled(LEAD=1))),
    "TMA 64 keys, LEAD 0": Variant("slower than with LEAD 1", (tiled(64, True), scheduled(LEAD=0))),
    "TMA 64 keys, LEAD 1": Variant("fastest: 1,423 cycles", (tiled(64, True), scheduled(LEAD=1))),
    "TMA 128 keys, LEAD 0": Variant("slower than with LEAD 1", (tiled(128, True), scheduled(LEAD=0))),
    "TMA 128 keys, LEAD 1": Variant("about as 64 keys", (tiled(128, True), scheduled(LEAD=1))),
}
"""Attention's forward on Hopper. Cycles are counted in machine code, for heads of 128; of 64 they are 1,373 and 1,174
with pointers, 1,371 and 1,197 with descriptors."""

HOISTING = {f"HOISTED {value}": Variant("", (scheduled(HOISTED=value),)) for value in (False, True)}
"""Attention's forward and backward; they must compute the same."""


@triton.jit
def normal_below(x):
    """Return Φ(x), the probability that a standard normal number is below x, by the error function."""
    return 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)  # √½


@triton.jit
def exp_below(x):
    """Return e^x, also below 2⁻¹²⁶."""
    return tl.exp(x)


ALONE = {
    "erf": Variant("slower: 606 instructions, not 340", (("elementwise.normal_below", to(normal_below)),)),
    "exp": Variant("slower: 286 instructions, not 238, of 4,096 columns", (("rows.exp", to(exp_below)),)),
}

ONE = to(lambda *arguments, **options: 1)
UNALIGNED = Variant("slower: loads of two bytes", (("attention.host.alignment_of", ONE),))
UNSPLIT = Variant("slower: few programs", (("attention.host.parts_of", ONE),))

OF_ROWS = {
    ("gelu", FORWARD): {"erf": ALONE["erf"]},
    ("softmax", FORWARD): {
        "exp": ALONE["exp"],
        "a program a row": Variant("slower: 9,417 cycles a row, not 6,390", (("softmax.SEVERAL", to(2**30)),)),
        "2 stages": Variant("slower: 9,655 cycles a row", (("softmax.STAGES", to(2)),)),
    },
    ("cross_entropy", BOTH): {"exp": ALONE["exp"]},
    ("layernorm", FORWARD): {
        f"{4096 // tile} warps a row": Variant("slower", (("norms.whole.FORWARD_TILE", to(tile)),))
        for tile in (512, 2048)
    },
    ("linear_cross_entropy", BOTH): {
        f"2^{power} logits": Variant(
            expected,
            (
                ("linear_cross_entropy.CHUNK_LOGITS", to(2**power)),
                ("linear_cross_entropy.CHUNK_ROWS", to(1)),
            ),
        )
        for power, expected in {26: "slower", 27: "between the two"}.items()
    },
}
"""Variants of an op, compared on its first task; for softmax and LayerNorm on the first with these columns:"""
COLUMNS = {"softmax": 32_768, "layernorm": 4096}


def process_of(who: str) -> str:
    """Return a name for the process of a contestant: those with the same name may share one."""
    return who if who in ALONE else ""


def varied(variant: Variant, measured: Callable[[Machine], Found], alone: bool, machine: Machine) -> Found:
    """Return a variant's time. Its numbers must be those as shipped, where both run in one process."""

    class Comparing(Machine):
        def timed(self, start: Callable[[], Sequence[Call]], **work: float) -> Found:
            calls = start()
            shipped = calls[0]()[0]
            with applied(variant.changes):
                if not agree(calls[0]()[0], shipped):
                    raise AssertionError("it computes other numbers than the kernels as shipped")
                return super().timed(lambda: calls, **work)

    if not alone and machine.device != "meta":
        return measured(Comparing(**vars(machine))) | {"expected": variant.expected}
    with applied(variant.changes):
        return measured(machine) | {"expected": variant.expected}


# --- The tasks of each section -----------------------------------------------------------------------------------

REFERENCE = {"against": "float64"}
REACHING = (
    "full", "padding", "grouped heads, a bias for all sentences", "causal, 1100 × 1100", "one query of many keys",
    "everything, 128 and 128 wide",
)  # fmt: skip
"""Cases of attention that together reach all of its code, for every schedule; those as shipped take all cases."""


def schedules(machine: Machine) -> Iterator[Task]:
    """Yield the check of attention: as shipped on all cases, in parts; with each schedule on a few."""
    contestants, parts = {}, machine.size(4, 1)
    for part in range(parts):
        for dtype in machine.dtypes:
            who = f"{name_of(dtype)}, part {part + 1} of {parts}"
            contestants[who] = partial(checked, "attention", dtype, part=part, parts=parts)
    names = machine.size(REACHING, ("padding", "everything"))
    for schedule, variant in (SCHEDULES | HOISTING).items():
        for dtype in machine.dtypes if machine.smoke else machine.dtypes[1:]:  # float32 has one schedule
            check = partial(checked, "attention", dtype, names=names, changes=variant.changes)
            contestants[f"{schedule} in {name_of(dtype)}"] = check
    yield Task("attention", "check", REFERENCE, {}, contestants)


def every_check(machine: Machine) -> Iterator[Task]:
    """Yield the check of every other op."""
    for op in [op for op in KERNELS if op != "attention"]:
        contestants = {name_of(dtype): partial(checked, op, dtype) for dtype in machine.dtypes}
        yield Task(op, "check", REFERENCE, {}, contestants)


def checked(
    op: str,
    dtype: torch.dtype,
    machine: Machine,
    part: int = 0,
    parts: int = 1,
    names: Collection[str] = (),
    changes: Sequence[Change] = (),
) -> Found:
    """Return the worst error. Raises `checks.Refused`. Where tensors have no memory, kernels are only compiled."""
    cases = (case for case in checks.chosen(op, dtype, not machine.smoke) if not names or case.name in names)
    with applied(changes), threadpool_limits(2):  # others check beside it
        some = islice(cases, part, None, parts)
        if machine.device != "meta":
            return checks.check(op, dtype, machine.device, some)
        for case in some:
            checks.launched(op, case, dtype, machine.device)
        return {}


def ab(machine: Machine) -> Iterator[Task]:
    """Yield the comparisons: attention with each schedule, with a bias, decoding; then the ops over rows."""
    for kind, T, D in (("full", 4096, 128), ("causal", 16_384, 128), ("full", 4096, 64)):
        yield beside(attention.attending(machine, kind, T, D, [OURS]), SCHEDULES)
    yield beside(attention.attending(machine, "bias", 4096, 128, [OURS]), {"not aligned": UNALIGNED})
    for task in attention.decoding(machine, [OURS]):
        yield beside(task, {"not split": UNSPLIT})
    waiting = dict(OF_ROWS)
    for task in rows.tasks(machine):
        columns = COLUMNS.get(task.op)
        if (task.op, task.what) in waiting and (machine.smoke or columns in (None, task.size.get("columns"))):
            yield beside(task, waiting.pop((task.op, task.what)))


def beside(task: Task, variants: dict[str, Variant]) -> Task:
    """Return a task whose contestants are ours as shipped and each variant."""
    ours = task.contestants[OURS]
    changed = {name: partial(varied, variant, ours, name in ALONE) for name, variant in variants.items()}
    return replace(task, contestants={OURS: ours, **changed})


def rows_tasks(machine: Machine) -> Iterator[Task]:
    """Yield decoding, then all other ops."""
    yield from attention.decoding(machine, [OURS, "FlashAttention-2", "cuDNN", "math"])
    yield from rows.tasks(machine)


def lessons(machine: Machine) -> Iterator[Task]:
    """Yield the solutions of lessons 15 and 16 beside PyTorch's functions."""
    course = ModuleType("course")  # the package itself imports what draws pictures
    course.__path__ = [str(COURSE)]
    sys.modules.setdefault("course", course)
    half, single = torch.float16 if machine.device == "cuda" else torch.float32, torch.float32

    def solution(lesson: str, name: str, *inputs: Any, **options: Any) -> Any:  # to import a lesson asks for a GPU
        return getattr(import_module(f"course.lesson_{lesson}.solutions"), name)(*inputs, **options)

    def layernorm_backward(dy: Tensor, x: Tensor, gamma: Tensor) -> Tensor:
        mean, rstd = x.mean(-1), (x.var(-1, correction=0) + 1e-5).rsqrt()
        return solution("15", "layernorm_backward_rows", dy, x, gamma, mean, rstd, machine.size(264, 2))[0]

    def autograd(dy: Tensor, x: Tensor, gamma: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.layer_norm(x, x.shape[-1:], gamma, eps=1e-5), x, dy)[0]

    line, wide, square = machine.size(((2**24,), (16_384, 1000), (1024, 1024)), ((64,), (4, 20), (16, 16)))
    softmax = partial(torch.softmax, dim=-1)
    cases: list[tuple[str, str, Callable | None, Callable, torch.dtype, list, dict[str, float]]] = [
        ("15", "add", None, torch.add, single, [line] * 2, {"moved": 3}),
        ("15", "softmax_rows", None, softmax, half, [wide], {"moved": 2}),
        ("15", "layernorm_backward_rows", layernorm_backward, autograd, single, [wide, wide, wide[1:]], {"moved": 3}),
        ("15", "matmul", None, torch.matmul, single, [square] * 2, {"flops": 2 * square[0]}),
    ]
    for T, causal in ((2048, False), (2048, True), (4096, False)):
        T, D = machine.size((T, 64), (T // 64, 16))
        ours = partial(solution, "16", "flash_forward", causal=causal)
        peer = partial(F.scaled_dot_product_attention, is_causal=causal)
        name, pairs = f"flash_forward{', causal' if causal else ''}", {"flops": 4 * T / (1 + causal)}
        cases.append(("16", name, ours, peer, half, [machine.size((16, T, D), (2, T, D))] * 3, pairs))
    for lesson, name, ours, peer, dtype, shapes, each in cases:
        unit = {"moved": dtype.itemsize, "flops": 1}
        work = {kind: float(count * math.prod(shapes[0]) * unit[kind]) for kind, count in each.items()}
        size = {"shape": " × ".join(f"{n:,}" for n in shapes[0]), "dtype": name_of(dtype)}
        draw, own = partial(drawn, machine, shapes, dtype), ours or partial(solution, lesson, name)
        who = {SOLUTION: partial(solved, own, peer, draw, work), "PyTorch": partial(solved, peer, peer, draw, work)}
        yield Task(f"lesson {lesson}", name, size, work, who)


def drawn(machine: Machine, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[Tensor]:
    """Return normal numbers in these shapes."""
    return [machine.randn(*shape, dtype=dtype) for shape in shapes]


def solved(function: Callable, truth: Callable, draw: Call, work: dict[str, float], machine: Machine) -> Found:
    """Return a function's time. Raises `AssertionError` if it does not compute what PyTorch does in float64."""
    inputs, others = draw(), draw()
    out = function(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    off = error(out.double().cpu().numpy(), truth(*(x.double() for x in inputs)).cpu().numpy())
    if not off <= max(checks.TOLERANCE, torch.finfo(out.dtype).eps):
        raise AssertionError(f"it is off by {off:.2g}")
    calls = [partial(function, *each) for each in (inputs, others)]
    return machine.timed(lambda: calls, **work) | {"error": off}


TASKS: dict[str, Callable[[Machine], Iterator[Task]]] = {
    "schedules": schedules, "ab": ab, "attention": attention.tasks,
    "checks": every_check, "lessons": lessons, "rows": rows_tasks, "swap": swap.tasks,
}  # fmt: skip
