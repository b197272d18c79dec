"""PyTorch and Triton for the lessons about kernels, whatever the machine has: import them from here, before all else.

    from course.gpu import DEVICE, DTYPE, machine, tl, torch, triton

With a GPU, kernels are compiled for it. Without one they run in Triton's interpreter, in host memory, slowly and
with the same results: Triton reads the variable that says so once, when it is first imported, so this module sets it
first. And where a package is missing, its stand-in lets a cell *define* kernels; whatever would *run* something
raises a `ModuleNotFoundError` that says what is missing, and `recorded` then shows what was recorded elsewhere.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

__all__ = ["DEVICE", "DTYPE", "MISSING", "machine", "require", "tl", "torch", "triton"]

NO_TORCH = "PyTorch is not installed here"
NO_TRITON = "Triton is not installed here (it is made for Linux)"
TOO_LATE = "Triton was imported before the lesson could ask for its interpreter (restart the kernel)"
OLD_INTERPRETER = "the interpreter of Triton 3.6 does not work with NumPy 2.4 (install triton 3.7)"


class StandIn:
    """For a missing package: has the attributes that it is given; any other says what is missing."""

    def __init__(self, missing: str, **attributes: Any) -> None:
        self.missing = missing
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python and notebooks look for in any object
            raise AttributeError(name)
        raise ModuleNotFoundError(self.missing)


class Kernel:
    """For a kernel that cannot be run: what is launched, `kernel[grid](...)`, says what is missing."""

    def __init__(self, function: Callable[..., Any], missing: str) -> None:
        self.__name__, self.__doc__, self.fn, self.missing = function.__name__, function.__doc__, function, missing

    def __getitem__(self, grid: Any) -> Any:
        raise ModuleNotFoundError(self.missing)


class Constant:
    """For `tl.constexpr`, an annotation, and a constant of a module."""

    def __init__(self, value: Any) -> None:
        self.value = value


def stand_ins(missing: str) -> tuple[Any, Any]:
    """`triton` and `tl` without Triton: kernels can be defined, and the host's arithmetic works."""

    def jit(function: Any = None, **options: Any) -> Any:
        return jit if function is None else Kernel(function, missing)

    def cdiv(x: int, y: int) -> int:
        return -(-x // y)

    def next_power_of_2(n: int) -> int:
        return 1 << max(n - 1, 0).bit_length()

    triton = StandIn(missing, jit=jit, cdiv=cdiv, next_power_of_2=next_power_of_2)
    return triton, StandIn(missing, constexpr=Constant)


def _load() -> tuple[Any, Any, Any, str, str | None]:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return StandIn(NO_TORCH), *stand_ins(NO_TORCH), "cpu", NO_TORCH
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")
    elif os.environ.get("TRITON_INTERPRET") == "1":
        device = "cpu"
    try:
        triton, tl = importlib.import_module("triton"), importlib.import_module("triton.language")
    except ImportError:
        return torch, *stand_ins(NO_TRITON), device, NO_TRITON
    missing = None
    if device == "cpu":
        numpy = importlib.import_module("numpy")
        if type(tl.sum).__name__ != "InterpretedFunction":  # Triton's own helpers are decorated when it is imported
            missing = TOO_LATE
        elif _version(triton) < (3, 7) and _version(numpy) >= (2, 4):
            missing = OLD_INTERPRETER
    if missing:
        return torch, *stand_ins(missing), device, missing
    return torch, triton, tl, device, None


def _version(package: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in package.__version__.split(".")[:2])


torch, triton, tl, DEVICE, MISSING = _load()
"""The modules or their stand-ins; "cuda", or "cpu" for the interpreter; what is missing, or None."""

DTYPE: Any = None if isinstance(torch, StandIn) else torch.float16 if DEVICE == "cuda" else torch.float32
"""What a lesson's larger runs compute in: float16 on a GPU, which a T4 has and bfloat16 it has not; else float32."""


def require() -> None:
    """Raises `ModuleNotFoundError`, in one clear sentence, where kernels cannot be run."""
    if MISSING:
        raise ModuleNotFoundError(MISSING)


def machine() -> str:
    """One line: what runs the kernels here."""
    if MISSING:
        return f"{MISSING}: cells show what was recorded where it is."
    if DEVICE == "cuda":
        return f"Triton {triton.__version__}, compiled for this GPU: {torch.cuda.get_device_name()}."
    return f"Triton {triton.__version__} in its interpreter, on the CPU: right, and far too slow to be timed."
