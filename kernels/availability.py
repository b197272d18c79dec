"""The machine's PyTorch, Triton and GPU, and the errors if one of them is missing.

Importing this file does not initialise CUDA.
"""

import os
from importlib.util import find_spec


def interpreting() -> bool:
    """Return True if kernels run in Triton's interpreter, in host memory, which checks them without a GPU.

    Triton reads the variable once, when it is first imported.
    """
    return os.environ.get("TRITON_INTERPRET") == "1"


def require_torch() -> None:
    """Raise `ModuleNotFoundError`, saying what works instead, if PyTorch is missing."""
    if find_spec("torch") is None:
        raise ModuleNotFoundError(
            "PyTorch is not installed, and the torch and triton backends compute with it: install torch, "
            "or use the numpy backend, which needs neither",
            name="torch",
        )


def require_triton() -> None:
    """Raise `ModuleNotFoundError`, saying what works instead, if Triton is missing."""
    require_torch()
    if find_spec("triton") is None:
        raise ModuleNotFoundError(
            "Triton is not installed (it has no builds for macOS and Windows): use the torch backend, "
            "the same model in PyTorch's own operations, or numpy",
            name="triton",
        )


def torch_device() -> str:
    """Return the default device of PyTorch: a GPU if there is one, else the CPU."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def use_threads(count: int) -> None:
    """Let PyTorch use this many threads of the CPU."""
    import torch

    torch.set_num_threads(count)


def triton_device() -> str:
    """Return the device of Triton's kernels: "cuda", "cpu" in the interpreter. Raises `RuntimeError` without a GPU."""
    import torch

    if interpreting():
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    raise RuntimeError(
        "the triton backend needs a GPU that PyTorch can use, and there is none: use the torch backend or numpy "
        "(TRITON_INTERPRET=1 runs the kernels without a GPU, a thousand times slower, to check them)"
    )


def gpu_memory(device: str) -> int:
    """Return the memory of a GPU in bytes."""
    import torch

    return torch.cuda.mem_get_info(device)[1]
