"""What the host wrappers of all kernels share."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from .tuning import capability


def on(tensor: Tensor) -> AbstractContextManager[Any]:
    """The tensor's GPU as the current one: Triton launches on the current device, whatever its arguments live on.

    Raises `ValueError` for a tensor that is on none, unless kernels are interpreted; and then for bfloat16, of which
    Triton's interpreter makes wrong numbers without saying so (its issue 11584).
    """
    if tensor.is_cuda:
        return torch.cuda.device(tensor.device)
    if capability(tensor.device).kind == "interpreter" and tensor.dtype == torch.bfloat16:
        raise ValueError("Triton's interpreter computes bfloat16 wrongly: without a GPU use float32 or float16")
    return nullcontext()


def rows_of(x: Tensor) -> Tensor:
    """x `(..., C)` as `(N, C)` with neighbouring elements of a row side by side; a copy only where there is no view."""
    rows = x.reshape(-1, x.shape[-1]) if x.numel() else x.reshape(x.shape[:-1].numel(), x.shape[-1])
    return rows if rows.stride(-1) == 1 or rows.shape[-1] == 1 else rows.contiguous()


def row_block(width: int, most: int) -> int:
    """The smallest power of two that holds `width` elements, but `most` at the most."""
    return min(1 << max(width - 1, 0).bit_length(), most)


def blocks_of_rows(num_rows: int, width: int, elements: int) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid and the options of a kernel whose programs have so many elements: a few rows, or a block of one."""
    block = row_block(width, elements)
    rows = elements // block
    options = {"ROWS": rows, "BLOCK": block, "num_warps": row_warps(elements)}
    return (-(-num_rows // rows), -(-width // block)), options


def row_warps(block: int) -> int:
    """Warps for a row of `block` elements: 8 to 32 elements a thread, which keeps 16-byte loads and few registers."""
    return min(max(block // 512, 1), 16)
