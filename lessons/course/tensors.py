"""NumPy arrays to where kernels run and back, and what judges of kernels share."""

from typing import Any

import numpy as np

from .exercise import Attempt, Unwritten, Wrong
from .gpu import DEVICE, MISSING, require, torch


def tensor(array: Any, dtype: Any = None) -> Any:
    """The array where kernels run, float32 unless another floating `dtype` is asked for.

    Raises `ModuleNotFoundError` where kernels cannot be run.
    """
    require()
    array = torch.tensor(np.asarray(array), device=DEVICE)
    return array.to(dtype or torch.float32) if array.is_floating_point() else array


def numpy(tensor: Any) -> np.ndarray:
    """A tensor's numbers in float64."""
    return tensor.detach().double().cpu().numpy()


def needs_kernels(attempt: Attempt, *placeholders: Any) -> None:
    """Where kernels cannot be run, a stub is a stub, and of anything else nothing can be said."""
    if MISSING:
        try:
            attempt(*placeholders)
        except Unwritten:
            raise
        except Wrong:
            pass
        raise Wrong(f"nothing can be said of it: {MISSING}")


def as_numbers(name: str, found: Any, shape: tuple[int, ...], dtype: Any = None) -> np.ndarray:
    """A returned tensor, which must have this shape (and dtype), in float64."""
    if not isinstance(found, torch.Tensor):
        raise Wrong(f"{name} must be a tensor, not one {type(found).__name__}")
    if tuple(found.shape) != shape:
        raise Wrong(f"{name} has shape {tuple(found.shape)} and must have {shape}")
    if dtype is not None and found.dtype != dtype:
        raise Wrong(f"{name} is {found.dtype} and must be {dtype}")
    return numpy(found)
