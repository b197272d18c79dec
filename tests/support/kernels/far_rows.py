"""Rows that reach further apart in memory than an offset of 32 bits does."""

import torch
from torch import Tensor

STRIDE = 2**30
"""Fits 32 bits, as an argument of a kernel; twice it does not, signed."""


def far_rows(rows: Tensor) -> Tensor:
    """The three rows of a `(3, n)`, 2³⁰ elements apart: what lies between is reserved, and on a CPU never touched."""
    poisoned = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)  # with it, what is allocated would be filled with NaN
    memory = torch.empty(2 * STRIDE + rows.shape[1], dtype=rows.dtype, device=rows.device)
    torch.use_deterministic_algorithms(poisoned)
    return memory.as_strided(rows.shape, (STRIDE, 1)).copy_(rows)
