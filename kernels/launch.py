"""Functions of all host wrappers: the current device, rows, and sizes of blocks."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .tuning import capability


def on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Make the tensor's GPU the current one, because Triton launches on the current one, wherever the arguments are.

    Raises `ValueError` for a tensor that is not on a GPU, unless kernels are interpreted; then it raises for bfloat16,
    for which Triton's interpreter computes wrong numbers silently (its issue 11584).
    """
    if tensor.is_cuda:
        return torch.cuda.device(tensor.device)
    if capability(tensor.device).kind == "interpreter" and tensor.dtype == torch.bfloat16:
        raise ValueError("Triton's interpreter computes bfloat16 wrongly: without a GPU use float32 or float16")
    return nullcontext()


def on_quietly(tensor: Tensor) -> AbstractContextManager[Any]:
    """Call `on` and, without a GPU, let the interpreter's NumPy not warn of overflows, as no GPU does."""
    where = on(tensor)
    return np.errstate(over="ignore") if isinstance(where, nullcontext) else where


def rows_of(x: Tensor) -> Tensor:
    """Return x `(..., C)` as `(N, C)` with a row's elements side by side in memory; a copy only if no view exists."""
    rows = x.reshape(-1, x.shape[-1]) if x.numel() else x.reshape(x.shape[:-1].numel(), x.shape[-1])
    return rows if rows.stride(-1) == 1 or rows.shape[-1] == 1 else rows.contiguous()


def row_block(width: int, most: int) -> int:
    """Return the smallest power of two that holds `width` elements, or `most` if that is smaller."""
    return min(1 << max(width - 1, 0).bit_length(), most)


def blocks_of_rows(num_rows: int, width: int, elements: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Return the grid and options of a kernel with `elements` elements a program: a few rows, or a block of one."""
    block = row_block(width, elements)
    rows = elements // block
    options = {"ROWS": rows, "BLOCK": block, "num_warps": row_warps(elements)}
    return (-(-num_rows // rows), -(-width // block)), options


def row_warps(block: int, most: int = 16) -> int:
    """Return the warps for `block` elements: 8 to 32 a thread, which allows 16-byte loads and needs few registers."""
    return min(max(block // 512, 1), most)
