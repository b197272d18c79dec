"""PyTorch and Triton for the lessons about kernels, with or without a GPU: import them from here, before all else.

    from course.gpu import DEVICE, DTYPE, machine, tl, torch, triton

With a GPU, kernels are compiled for it. Without one they run in Triton's interpreter, in host memory, slowly and with
the same results. Triton reads `TRITON_INTERPRET` once, when it is first imported, so this module sets it before. If a
package is missing, an object in its place lets a cell *define* kernels; running one raises a `ModuleNotFoundError`
that says what is missing, and `recorded` then shows the results that were recorded elsewhere.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

__all__ = ["DEVICE", "DTYPE", "MISSING", "machine", "require_kernels", "tl", "torch", "triton"]

NO_TORCH = "PyTorch is not installed here"
NO_TRITON = "Triton is not installed here (it is made for Linux)"
TOO_LATE = "Triton was imported before the lesson could ask for its interpreter (restart the kernel)"
OLD_INTERPRETER = "the interpreter of Triton 3.6 does not work with NumPy 2.4 (install triton 3.7)"


class MissingPackage:
    """A missing package, with a few working attributes; any other attribute raises `ModuleNotFoundError`."""

    def __init__(self, missing: str, **attributes: Any) -> None:
        self.missing = missing
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python and notebooks look these up in any object
            raise AttributeError(name)
        raise ModuleNotFoundError(self.missing)


class MissingKernel:
    """A kernel that cannot run: its launch, `kernel[grid](...)`, raises `ModuleNotFoundError`."""

    def __init__(self, function: Callable[..., Any], missing: str) -> None:
        self.__name__, self.__doc__, self.fn, self.missing = function.__name__, function.__doc__, function, missing

    def __getitem__(self, grid: Any) -> Any:
        raise ModuleNotFoundError(self.missing)


class Constant:
    """`tl.constexpr` without Triton, as an annotation and as a constant of a module."""

    def __init__(self, value: Any) -> None:
        self.value = value


def missing_triton(missing: str) -> tuple[Any, Any]:
    """Return `triton` and `tl` without Triton: kernels can be defined, and the host's arithmetic works."""

    def jit(function: Any = None, **options: Any) -> Any:
        return jit if function is None else MissingKernel(function, missing)

    def cdiv(x: int, y: int) -> int:
        return -(-x // y)

    def next_power_of_2(n: int) -> int:
        return 1 << max(n - 1, 0).bit_length()

    triton = MissingPackage(missing, jit=jit, cdiv=cdiv, next_power_of_2=next_power_of_2)
    return triton, MissingPackage(missing, constexpr=Constant)


def _load() -> tuple[Any, Any, Any, str, str | None]:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return MissingPackage(NO_TORCH), *missing_triton(NO_TORCH), "cpu", NO_TORCH
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")
    elif os.environ.get("TRITON_INTERPRET") == "1":
        device = "cpu"
    try:
        triton, tl = importlib.import_module("triton"), importlib.import_module("triton.language")
    except ImportError:
        return torch, *missing_triton(NO_TRITON), device, NO_TRITON
    missing = None
    if device == "cpu":
        numpy = importlib.import_module("numpy")
        if type(tl.sum).__name__ != "InterpretedFunction":  # Triton's own helpers are decorated when it is imported
            missing = TOO_LATE
        elif _version(triton) < (3, 7) and _version(numpy) >= (2, 4):
            missing = OLD_INTERPRETER
    if missing:
        return torch, *missing_triton(missing), device, missing
    return torch, triton, tl, device, None


def _version(package: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in package.__version__.split(".")[:2])


torch, triton, tl, DEVICE, MISSING = _load()
"""The modules or their replacements; "cuda", or "cpu" for the interpreter; a message about what is missing, or None."""

DTYPE: Any = None if isinstance(torch, MissingPackage) else torch.float16 if DEVICE == "cuda" else torch.float32
"""The type of a lesson's larger runs: float16 on a GPU, since a T4 has no bfloat16, else float32."""


ON_KERNELS = {
    "15": ("add", "relu", "contiguous", "row_sums", "matmul", "max_and_sum", "softmax_rows", "layernorm_backward_rows"),
    "16": ("attention_scores", "attention_lse", "attention_out", "flash_forward"),
    "17": ("running_sums",),
    "20": ("rmsnorm_rows",),
    "23": ("chunk_states_backward",),
}
"""The exercises that are kernels, by lesson: they alone can't be judged in a browser."""


def require_kernels() -> None:
    """Raise `ModuleNotFoundError`, with a message that says what is missing, if kernels cannot run here."""
    if MISSING:
        raise ModuleNotFoundError(MISSING)


def machine() -> str:
    """Return one line that says what runs the kernels here."""
    if MISSING:
        return f"{MISSING}: cells show what was recorded where it is."
    if DEVICE == "cuda":
        return f"Triton {triton.__version__}, compiled for this GPU: {torch.cuda.get_device_name()}."
    return f"Triton {triton.__version__} in its interpreter, on the CPU: right, and far too slow to be timed."
