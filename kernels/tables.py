"""The tables of ops over tensors that a model takes: PyTorch's own arithmetic, or the Triton kernels."""

from dataclasses import replace
from typing import Any

import torch

from minitransformer.ops import Ops, as_it_is, entries

from . import eager
from .availability import interpreting, require_triton, triton_device
from .eager import add_layernorm_from, attention_from
from .eager.arrays import dtype_of, plumbing
from .graph import Captured

__all__ = ["add_layernorm_from", "attention_from", "torch_ops", "triton_ops"]

TORCH_DTYPES = ("float64", "float32", "bfloat16", "float16")
TRITON_DTYPES = ("float32", "bfloat16", "float16")


def torch_ops(device: Any = "cpu", dtype: Any = "float32") -> Ops:
    """Return the table of PyTorch's arithmetic without its autograd, on "cpu", "cuda" or "mps".

    dtype is that of activations: with bfloat16 and float16 the model's parameters are float32; float64 and float32 must
    be the model's own (`Transformer(…, dtype=…)`). Raises `ValueError` for another dtype, and `RuntimeError` for a
    device that this machine does not have.
    """
    chosen = _dtype(dtype, TORCH_DTYPES)
    there = _device(device)
    repeated = Captured if there.type == "cuda" else as_it_is
    return Ops(**entries(vars(eager)), **plumbing(there, chosen), repeated=repeated, has_threads=True)


def triton_ops(device: Any = None, dtype: Any = "float32") -> Ops:
    """Return the table of the Triton kernels.

    `linear`, `log_softmax`, `log_probs`, `entropy`, the baselines' ops and plumbing are PyTorch's.
    device is a GPU, by default the current one, or with TRITON_INTERPRET=1 the CPU; dtype is as in `torch_ops`. Raises
    `ValueError` for another device or dtype, `RuntimeError` without a GPU, and `ModuleNotFoundError` without Triton,
    saying what works instead.
    """
    require_triton()
    chosen = _dtype(dtype, TRITON_DTYPES)
    there = triton_device()
    if interpreting() and chosen == torch.bfloat16:
        raise ValueError("Triton's interpreter computes bfloat16 wrongly: without a GPU use float32 or float16")
    device = there if device is None else device
    if _kind(device) != there:
        raise ValueError(f"the triton backend runs on {there}, not on {device}: the torch backend runs there")
    return replace(torch_ops(device, chosen), **triton_entries())


def triton_entries() -> dict[str, Any]:
    """Return the entries of a table that are Triton kernels."""
    import kernels

    return entries({name: getattr(kernels, name) for op in kernels.KERNELS for name in kernels.functions_of(op)})


def _dtype(dtype: Any, known: tuple[str, ...]) -> torch.dtype:
    name = (getattr(dtype, "__name__", None) or str(dtype)).removeprefix("torch.")
    if name not in known:
        raise ValueError(f"dtype is {name or dtype!r}, expected one of {', '.join(known)}")
    return dtype_of(name)


def _device(device: Any) -> torch.device:
    """Return the device, with its number. Raises `RuntimeError` if this machine does not have it."""
    kind = _kind(device)
    there = {
        "cpu": lambda: 1,
        "cuda": lambda: torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": lambda: int(torch.backends.mps.is_available()),
    }
    count = there[kind]()
    if not count:
        raise RuntimeError(f"PyTorch finds no device of the kind {kind!r} here: use cpu")
    device = torch.device(device)
    if (device.index or 0) >= count:
        raise RuntimeError(f"there is no {device} here: the last one is {kind}:{count - 1}")
    return torch.device("cuda", torch.cuda.current_device()) if str(device) == "cuda" else device


def _kind(device: Any) -> str:
    """Return the device's type. Raises `ValueError` unless it is cpu, cuda or mps."""
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError):
        kind = None
    if kind not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device is {str(device)!r}, expected cpu, cuda or mps")
    return kind
