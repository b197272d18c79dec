"""How a time is taken: on a GPU, or in a rehearsal in Triton's interpreter; of contestants on the same task.

For each contestant inputs are drawn afresh, and the median time of a call counts.
"""

import gc
import itertools
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar, cast

import torch
import torch._functorch.config as functorch_config
from torch import Tensor

import kernels
from kernels.availability import require_triton, triton_device
from kernels.proof.ledger import BACKWARD, FORWARD, LATE, Entry
from minitransformer.ops import Ops
from minitransformer.system.threads import available_cores

T = TypeVar("T")
Call = Callable[[], Any]

WARM_UP_MS, REPEAT_MS = 10, 50
"""How long each measurement warms up, and how long it repeats; the median counts."""

INTERPRETER = "interpreter"


@dataclass(frozen=True)
class Machine:
    """A device, and whether it only rehearses: `smoke` takes the tiny sizes, on whatever device there is."""

    device: str
    smoke: bool

    @classmethod
    def here(cls, smoke: bool) -> "Machine":
        """Raises `RuntimeError` where there is no GPU, `ModuleNotFoundError` where there is no Triton."""
        require_triton()
        return cls(triton_device(), smoke)

    @property
    def name(self) -> str:
        """The GPU's, as its driver calls it."""
        return torch.cuda.get_device_name() if self.device == "cuda" else INTERPRETER

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """What kernels are checked in: the interpreter computes bfloat16 wrongly, and old GPUs have none."""
        has_bfloat16 = self.device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return (torch.float32, torch.float16, torch.bfloat16)[: 3 if has_bfloat16 else 2]

    @property
    def dtype(self) -> torch.dtype:
        """What is timed: bfloat16 where there is any; PyTorch on a CPU is slow in float16, and it rehearses only."""
        return torch.float32 if self.device == "cpu" else self.dtypes[-1]

    @property
    def processes(self) -> int:
        """How many may check side by side."""
        return available_cores() if self.device == "cpu" else max(1, min(8, available_cores() // 2))

    @property
    def ops(self) -> Ops:
        """PyTorch's arithmetic there."""
        return kernels.torch_ops(self.device, self.dtype)

    def size(self, full: T, tiny: T) -> T:
        """The size of a task: the one that is meant, or the one to rehearse with."""
        return tiny if self.smoke else full

    def randn(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Fresh normal numbers, in the dtype that is timed."""
        return torch.randn(shape, dtype=dtype or self.dtype, device=self.device)

    def randint(self, low: int, high: int, *shape: int) -> Tensor:
        """Fresh ids from low to high − 1."""
        return torch.randint(low, high, shape, device=self.device)

    def compiled(self, function: Callable) -> Callable:
        """`torch.compile`, when it is first called and with nothing left of what was compiled before.

        A rehearsal traces and generates no code.
        """

        @cache
        def compiled() -> Callable:
            torch._dynamo.reset()
            functorch_config.donated_buffer = False  # a backward that is timed runs more than once
            return torch.compile(function, dynamic=False, backend="aot_eager" if self.smoke else "inductor")

        return lambda *arguments: compiled()(*arguments)

    def milliseconds(self, calls: Sequence[Call]) -> float:
        """The median time of calls that take turns, so that none finds its own inputs in the cache."""
        turns = itertools.cycle(calls)
        if self.device == "cuda":
            from triton.testing import do_bench

            return cast(float, do_bench(lambda: next(turns)(), warmup=WARM_UP_MS, rep=REPEAT_MS, return_mode="median"))
        start = time.perf_counter()
        next(turns)()
        return 1000 * (time.perf_counter() - start)

    def peak_bytes(self, call: Call) -> int | None:
        """The most that a call takes beyond what is there already; `None` in host memory, where nobody counts."""
        if self.device != "cuda":
            return None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def tidy(self) -> None:
        """Gives back the memory of what is over."""
        if self.device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()

    def works(self) -> bool:
        """Whether it still computes: after an illegal access, nothing on a GPU does as long as the process lives."""
        try:
            return self.randn(1).isfinite().item() is True
        except Exception:
            return False

    def versions(self) -> dict[str, str]:
        """The versions of PyTorch, Triton and the GPU's own software."""
        import triton

        versions = {"torch": torch.__version__, "triton": triton.__version__}
        if self.device == "cuda":
            versions["hip" if torch.version.hip else "cuda"] = str(torch.version.hip or torch.version.cuda)
            versions["driver"] = _driver()
        return versions


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.splitlines()[0].strip()


# --- Contestants ----------------------------------------------------------------------------------------------

SETS = 2
"""How many sets of inputs take turns; each is meant to be larger than the cache."""

Found = dict[str, Any]
"""A time, `ms`, and what was found beside it."""

Start = Callable[[], Sequence[Call]]
"""Makes the calls of a contestant, which take turns."""

Draw = Callable[[], tuple[tuple, Tensor | None]]
"""A set of inputs, and the gradient that the output receives: `None` for a loss, whose is 1."""

Prepare = Callable[[tuple, Tensor | None], Call]
"""Makes one call from these two."""


@dataclass(frozen=True)
class Bench:
    """A machine, and what PyTorch itself gets out of it: a large product of matrices, and a large copy."""

    machine: Machine
    ceilings: dict[str, float]
    """`matmul_tflops`, and `copy_gbs`, read and written."""

    @classmethod
    def of(cls, machine: Machine) -> "Bench":
        """Measured here and now."""
        n, count = machine.size(8192, 32), machine.size(2**30, 2**10)
        if machine.device == "cuda":  # four arrays of two bytes an element, in half of what is free
            count = min(count, torch.cuda.mem_get_info()[0] // 16)
        pairs = [(machine.randn(n, n), machine.randn(n, n)) for _ in range(SETS)]
        matmul = machine.milliseconds([lambda a=a, b=b: a @ b for a, b in pairs])
        large = [machine.randn(count) for _ in range(SETS)]
        copies = [torch.empty_like(source) for source in large]
        copy = machine.milliseconds([lambda a=a, b=b: a.copy_(b) for a, b in zip(copies, large, strict=True)])
        return cls(machine, {"matmul_tflops": 2 * n**3 / matmul / 1e9, "copy_gbs": 2 * large[0].nbytes / copy / 1e6})

    def timed(self, start: Start, *, flops: float | None = None, moved: float | None = None) -> Found:
        """Time and memory; beside them TFLOP/s or GB/s, by the operations or bytes that the task takes at the least."""
        calls = start()
        for call in calls:
            call()  # compiles
        peak = self.machine.peak_bytes(calls[0])
        milliseconds = self.machine.milliseconds(calls)
        found = {"ms": milliseconds, "peak_mb": None if peak is None else peak / 1e6}
        return found | self.rates(milliseconds, flops, moved)

    def rates(self, milliseconds: float, flops: float | None, moved: float | None = None) -> Found:
        """What so many operations, or so many bytes, came to in that time, and their share of the ceiling."""
        if flops is not None:
            tflops = flops / milliseconds / 1e9
            return {"tflops": tflops, "share": tflops / self.ceilings["matmul_tflops"]}
        if moved is not None:
            gbs = moved / milliseconds / 1e6
            return {"gbs": gbs, "share": gbs / self.ceilings["copy_gbs"]}
        return {}


@dataclass(frozen=True)
class Task:
    """What is computed on what; the bytes (`moved`) or operations (`flops`) that it takes at the least; and by whom."""

    op: str
    what: str
    size: dict[str, Any]
    work: dict[str, float]
    contestants: Mapping[str, Callable[[Bench], Found]]

    def entry(self) -> Entry:
        """What the ledger holds of it before anything is measured."""
        described = {"op": self.op, "what": self.what, "size": self.size, **self.work}
        return described | {"contestants": dict.fromkeys(self.contestants, LATE)}


def task(
    machine: Machine,
    op: str,
    what: str,
    size: dict[str, Any],
    work: dict[str, float],
    draw: Draw,
    prepares: Mapping[str, Prepare],
) -> Task:
    """One whose contestants' calls have inputs of their own each."""
    sets = machine.size(SETS, 1)

    def measured(prepare: Prepare, bench: Bench) -> Found:
        return bench.timed(lambda: [prepare(*draw()) for _ in range(sets)], **work)

    return Task(op, what, size, work, {name: partial(measured, prepare) for name, prepare in prepares.items()})


def of_pair(op: str, what: str, **options: Any) -> Prepare:
    """The calls of one of our pairs."""
    forward, backward = getattr(kernels, f"{op}_forward"), getattr(kernels, f"{op}_backward")

    def prepare(inputs: tuple, dout: Tensor | None) -> Call:
        received = 1.0 if dout is None else dout
        if what == FORWARD:
            return lambda: forward(*inputs, **options)
        if what == BACKWARD:
            _, cache = forward(*inputs, **options)
            return lambda: backward(received, cache)
        return lambda: backward(received, forward(*inputs, **options)[1])

    return prepare


def of_autograd(function: Callable[..., Tensor], what: str) -> Prepare:
    """The calls of a function that PyTorch differentiates, with respect to all floating inputs."""

    def prepare(inputs: tuple, dout: Tensor | None) -> Call:
        if what == FORWARD:
            return torch.no_grad()(lambda: function(*inputs))
        leaves = tuple(x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs)
        floats = [x for x in leaves if x.requires_grad]
        if what == BACKWARD:
            out = function(*leaves)
            return lambda: torch.autograd.grad(out, floats, dout, retain_graph=True)
        return lambda: torch.autograd.grad(function(*leaves), floats, dout)

    return prepare


def of_function(function: Callable[..., Any]) -> Prepare:
    """The calls of what takes the inputs as they are."""
    return lambda inputs, dout: lambda: function(*inputs)
