"""Move NumPy arrays to the device of the kernels and back, and check the tensors that kernels return."""

from typing import Any

import numpy as np

from .exercise import Attempt, Unwritten, Wrong
from .gpu import DEVICE, MISSING, require_kernels, torch


def tensor(array: Any, dtype: Any = None) -> Any:
    """Return the array as a tensor on the kernels' device; floating numbers become `dtype`, by default float32.

    Raises `ModuleNotFoundError` if kernels cannot run here.
    """
    require_kernels()
    array = torch.tensor(np.asarray(array), device=DEVICE)
    return array.to(dtype or torch.float32) if array.is_floating_point() else array


def numpy(tensor: Any) -> np.ndarray:
    """Return a tensor's numbers as a NumPy array of float64."""
    return tensor.detach().double().cpu().numpy()


def needs_kernels(attempt: Attempt, *placeholders: Any) -> None:
    """Raise `Wrong` if kernels cannot run here, or `Unwritten` if the attempt is a stub, which can be told anywhere."""
    if MISSING:
        try:
            attempt(*placeholders)
        except Unwritten:
            raise
        except Wrong:
            pass
        raise Wrong(f"nothing can be said of it: {MISSING}")


def as_numbers(name: str, found: Any, shape: tuple[int, ...], dtype: Any = None) -> np.ndarray:
    """Return a tensor's numbers in float64; it must have this shape and, if one is given, this dtype."""
    if not isinstance(found, torch.Tensor):
        raise Wrong(f"{name} must be a tensor, not one {type(found).__name__}")
    if tuple(found.shape) != shape:
        raise Wrong(f"{name} has shape {tuple(found.shape)} and must have {shape}")
    if dtype is not None and found.dtype != dtype:
        raise Wrong(f"{name} is {found.dtype} and must be {dtype}")
    return numpy(found)
