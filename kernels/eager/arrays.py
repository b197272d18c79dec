"""Making, moving and joining tensors on one device: the counterpart of `minitransformer.ops.arrays`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

SMALL_K = 16
"""Up to this k, `topk` takes the maximum k times; for larger k it sorts."""


def plumbing(device: torch.device, dtype: torch.dtype) -> dict[str, Callable[..., Any]]:
    """Return `minitransformer.ops.arrays`'s functions by name, for tensors on `device` and activations of `dtype`."""

    def asarray(data: Any, dtype: Any = None) -> Tensor:
        """Return `data` (tensor, array, list or number) on the device."""
        if not isinstance(data, Tensor):
            data = np.asarray(data)
            # PyTorch takes no negative strides, which an empty array may have although it is contiguous.
            as_it_is = data.flags.writeable and data.flags.c_contiguous and data.size
            data = torch.from_numpy(data if as_it_is else data.copy())
        return data.to(device, None if dtype is None else dtype_of(dtype))

    def zeros(shape: int | Sequence[int], dtype: Any = "float32") -> Tensor:
        """Return zeros on the device; PyTorch aligns them to 64 bytes or more."""
        return torch.zeros(shape, dtype=dtype_of(dtype), device=device)

    def activations(data: Tensor) -> Tensor:
        """Return float32 parameters in the dtype of activations: a copy if that is narrower, else `data` itself."""
        return data.to(dtype) if dtype.itemsize < data.dtype.itemsize and dtype.itemsize == 2 else data

    return {
        "asarray": asarray,
        "zeros": zeros,
        "activations": activations,
        "to_numpy": to_numpy,
        "concatenate": concatenate,
        "cast": cast,
        "sin": torch.sin,
        "cos": torch.cos,
        "take": take,
        "topk": topk,
    }


def dtype_of(dtype: Any) -> torch.dtype:
    """Return PyTorch's dtype for "float32", `np.float32` or `torch.float32`. Raises `TypeError` for types it lacks."""
    if isinstance(dtype, torch.dtype):
        return dtype
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"dtype is {name}, which PyTorch does not have")
    return found


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return the tensor as an array in host memory; bfloat16, which NumPy doesn't have, becomes float32."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()


def concatenate(tensors: Sequence[Tensor], axis: int = -1) -> Tensor:
    """Join tensors along an existing axis: as a view if they lie side by side already, else as a copy."""
    joined = side_by_side(tensors, axis)
    return torch.cat(tuple(tensors), dim=axis) if joined is None else joined


def side_by_side(tensors: Sequence[Tensor], axis: int = -1) -> Tensor | None:
    """Join tensors along the axis as a view, if each begins where the one before it ends in one buffer; else None."""
    parts = [each.movedim(axis, -1) for each in tensors]
    first, length = parts[0], 0
    for part in parts:
        alike = part.dtype == first.dtype and part.shape[:-1] == first.shape[:-1] and part.stride() == first.stride()
        follows = part.storage_offset() == first.storage_offset() + length * first.stride(-1)
        if not (alike and follows and part.untyped_storage() == first.untyped_storage()):
            return None
        length += part.shape[-1]
    return first.as_strided((*first.shape[:-1], length), first.stride()).movedim(-1, axis)


def cast(tensor: Tensor, dtype: Any) -> Tensor:
    """Return the tensor as `dtype`, itself if it has this dtype already."""
    return tensor.to(dtype_of(dtype))


def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Copy the slices of `x` at `indices` along `axis`."""
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return torch.index_select(x, axis, indices.reshape(-1)).reshape(shape)


def topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest elements of the last axis and their indices, `(..., k)` each, the largest first.

    Of equal elements the one with the smaller index comes first (`torch.topk` does not promise an order); NaN is the
    largest of all. Raises `ValueError` unless 1 ≤ k ≤ the length of the last axis.
    """
    n = x.shape[-1] if x.ndim else 0
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}, expected 1 to {n}, the length of the last axis")
    if k > SMALL_K:
        values, indices = torch.sort(x, dim=-1, descending=True, stable=True)
        return values[..., :k], indices[..., :k]
    left = torch.ones_like(x, dtype=torch.bool)
    places = torch.arange(n, device=x.device)
    values, indices = [], []
    for _ in range(k):
        # Elements taken before are −inf here, but others may be −inf too: choose only among those that are left.
        highest = x.masked_fill(~left, -torch.inf).amax(-1, keepdim=True)
        best = torch.where(left & ((x == highest) | x.isnan()), places, n).amin(-1, keepdim=True)
        values.append(x.gather(-1, best))
        indices.append(best)
        left.scatter_(-1, best, False)
    return torch.cat(values, -1), torch.cat(indices, -1)
