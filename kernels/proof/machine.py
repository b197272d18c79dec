"""What is measured on: a GPU, or in a smoke run Triton's interpreter in host memory; and how a time is taken."""

import gc
import itertools
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
import torch._functorch.config as functorch_config
from torch import Tensor

import kernels
from minitransformer.ops import Ops
from minitransformer.threads import available_cores

from ..availability import require_triton, triton_device

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

            return float(do_bench(lambda: next(turns)(), warmup=WARM_UP_MS, rep=REPEAT_MS, return_mode="median"))
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
