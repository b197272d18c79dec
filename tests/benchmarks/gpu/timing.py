"""A machine, how a time is taken on it, and the tasks that contestants are timed on.

For each contestant inputs are drawn afresh, and the median time of a call counts.
"""

import gc
import itertools
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeVar, cast

import torch
import torch._functorch.config as functorch_config
import triton
from torch import Tensor
from triton.testing import do_bench

import kernels
from kernels.availability import triton_device
from kernels.eager.arrays import plumbing
from kernels.proof.ledger import BACKWARD, FORWARD, LATE, Entry
from kernels.tuning import Capability, capability
from minitransformer.ops import Ops

T = TypeVar("T")
Call = Callable[[], Any]

Found = dict[str, Any]
"""A time, `ms`, and what was found beside it."""

Prepare = Callable[[tuple, Tensor | None], Call]
"""Makes a call from a set of inputs and the gradient that the output receives: `None` for a loss, whose is 1."""

SETS = 2
"""The sets of inputs that take turns; each is meant to be larger than the cache."""


@dataclass(frozen=True)
class Machine:
    """A device, and whether it only rehearses: then tasks have tiny sizes.

    On "meta" tensors have shapes and no memory: `ahead` compiles there for the GPU that is described.
    """

    device: str
    smoke: bool
    name: str = "interpreter"
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float16)
    """Those that kernels are checked in: the interpreter computes bfloat16 wrongly, and old GPUs have none."""
    versions: dict[str, Any] = field(default_factory=dict)
    gpu: Capability | None = None
    warp_size: int = 32
    processors: int = 0
    ceilings: Mapping[str, float] = field(default_factory=dict)
    """`matmul_tflops` of a large product in PyTorch, and `copy_gbs` of a large copy, read and written."""

    @classmethod
    def here(cls, smoke: bool) -> "Machine":
        """Return what there is. Raises `RuntimeError` where there is no GPU, but for Triton's interpreter."""
        found = cls(triton_device(), smoke, versions={"torch": str(torch.__version__), "triton": triton.__version__})
        if found.device == "cuda":
            device = torch.device("cuda", torch.cuda.current_device())
            about: Any = torch.cuda.get_device_properties(device)
            narrow = torch.cuda.is_bf16_supported(including_emulation=False)
            driver = subprocess.getoutput("nvidia-smi --query-gpu=driver_version --format=csv,noheader").splitlines()[0]
            own = {"hip": torch.version.hip} if torch.version.hip else {"cuda": torch.version.cuda, "driver": driver}
            found = replace(
                found,
                name=about.name,
                dtypes=(*found.dtypes, *([torch.bfloat16] if narrow else [])),
                versions=found.versions | own,
                gpu=capability(device),
                warp_size=about.warp_size,
                processors=about.multi_processor_count,
            )
        return replace(found, ceilings=found._ceilings())

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that is timed: bfloat16 where there is any; on a CPU, where PyTorch is slow in float16, float32."""
        return torch.float32 if self.device == "cpu" else self.dtypes[-1]

    @property
    def ops(self) -> Ops:
        """PyTorch's arithmetic there."""
        if self.device != "meta":
            return kernels.torch_ops(self.device, self.dtype)
        return replace(kernels.torch_ops("cpu", self.dtype), **plumbing(torch.device("meta"), self.dtype))

    def size(self, full: T, tiny: T) -> T:
        """Return the size of a task: the one that is meant, or the one to rehearse with."""
        return tiny if self.smoke else full

    def randn(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return fresh normal numbers, in the dtype that is timed."""
        return torch.randn(shape, dtype=dtype or self.dtype, device=self.device)

    def randint(self, low: int, high: int, *shape: int) -> Tensor:
        """Return fresh ids from low to high − 1."""
        return torch.randint(low, high, shape, device=self.device)

    def compiled(self, function: Callable) -> Callable:
        """Return `torch.compile(function)`, made when first called, with nothing left of what was compiled before.

        A rehearsal traces and generates no code.
        """

        @cache
        def compiled() -> Callable:
            torch._dynamo.reset()
            functorch_config.donated_buffer = False  # a backward that is timed runs more than once
            return torch.compile(function, dynamic=False, backend="aot_eager" if self.smoke else "inductor")

        return lambda *arguments: compiled()(*arguments)

    def milliseconds(self, calls: Sequence[Call]) -> float:
        """Return the median time of calls that take turns, so that none finds its own inputs in the cache."""
        turns = itertools.cycle(calls)
        if self.device == "cuda":
            return cast(float, do_bench(lambda: next(turns)(), warmup=10, rep=50, return_mode="median"))
        start = time.perf_counter()
        next(turns)()
        return 1000 * (time.perf_counter() - start)

    def timed(self, start: Callable[[], Sequence[Call]], **work: float) -> Found:
        """Return the time and peak memory of the calls that `start` makes, and their `rates`; on "meta" only call."""
        calls = start()
        for call in calls:
            call()  # compiles
        if self.device == "meta":
            return {}
        peak = None  # in host memory nobody counts
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            calls[0]()
            torch.cuda.synchronize()
            peak = (torch.cuda.max_memory_allocated() - before) / 1e6
        milliseconds = self.milliseconds(calls)
        return {"ms": milliseconds, "peak_mb": peak} | self.rates(milliseconds, **work)

    def rates(self, milliseconds: float, flops: float | None = None, moved: float | None = None) -> Found:
        """Return what so many operations, or so many bytes, came to in that time, and their share of the ceiling."""
        if flops is not None:
            tflops = flops / milliseconds / 1e9
            return {"tflops": tflops, "share": tflops / self.ceilings["matmul_tflops"]}
        if moved is not None:
            gbs = moved / milliseconds / 1e6
            return {"gbs": gbs, "share": gbs / self.ceilings["copy_gbs"]}
        return {}

    def _ceilings(self) -> dict[str, float]:
        n, count = self.size(8192, 32), self.size(2**30, 2**10)
        if self.device == "cuda":  # four arrays of two bytes an element, in half of what is free
            count = min(count, torch.cuda.mem_get_info()[0] // 16)
        matmul = self.milliseconds([partial(torch.matmul, self.randn(n, n), self.randn(n, n)) for _ in range(SETS)])
        large = [self.randn(count) for _ in range(SETS)]
        copy = self.milliseconds([partial(torch.empty_like(source).copy_, source) for source in large])
        return {"matmul_tflops": 2 * n**3 / matmul / 1e9, "copy_gbs": 2 * large[0].nbytes / copy / 1e6}

    def tidy(self) -> None:
        """Give back the memory of what is over."""
        if self.device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()

    def works(self) -> bool:
        """Return whether it still computes: after an illegal access, a GPU does not as long as the process lives."""
        try:
            return self.randn(1).isfinite().item() is True
        except Exception:
            return False


# --- Contestants ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """An op and its inputs; the bytes (`moved`) or operations (`flops`) that it takes at the least; and by whom."""

    op: str
    what: str
    size: dict[str, Any]
    work: dict[str, float]
    contestants: Mapping[str, Callable[[Machine], Found]]

    @classmethod
    def of(
        cls,
        machine: Machine,
        op: str,
        what: str,
        size: dict[str, Any],
        work: dict[str, float],
        draw: Callable[[], tuple[tuple, Tensor | None]],
        prepares: Mapping[str, Prepare],
    ) -> "Task":
        """Return a task whose contestants' calls have inputs of their own each."""
        sets = machine.size(SETS, 1)

        def measured(prepare: Prepare, on: Machine) -> Found:
            return on.timed(lambda: [prepare(*draw()) for _ in range(sets)], **work)

        return cls(op, what, size, work, {name: partial(measured, prepare) for name, prepare in prepares.items()})

    def entry(self) -> Entry:
        """Return what the ledger holds of it before anything is measured."""
        described = {"op": self.op, "what": self.what, "size": self.size, **self.work}
        return described | {"contestants": dict.fromkeys(self.contestants, LATE)}


def of_pair(op: str, what: str, **options: Any) -> Prepare:
    """Return what makes the calls of one of our pairs."""
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
    """Return what makes the calls of a function that PyTorch differentiates, with respect to all floating inputs."""

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
    """Return what makes the calls of a function that takes the inputs as they are."""
    return lambda inputs, dout: lambda: function(*inputs)
