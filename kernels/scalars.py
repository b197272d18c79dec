"""Numbers that a kernel takes by value from the host, or by address from device memory.

A captured CUDA graph repeats its launches with exactly the same arguments, so numbers that change from step to step
must be in device memory. A kernel that reads them there does not make the host wait.
"""

from numbers import Real
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from .checks import check_device


@triton.jit
def number(value, pointer, dtype: tl.constexpr):
    """Return `value`, or the number at `pointer` if there is one, as `dtype`."""
    if pointer is not None:
        value = tl.load(pointer)
    return tl.full((), value, dtype)


def number_arguments(name: str, value: float | Tensor, kind: type[float | int], beside: Tensor) -> dict[str, Any]:
    """Return the two arguments `name` and `name_ptr` of a kernel that works on the device of `beside`.

    Raises `ValueError` unless a tensor has one element and is on this device or in host memory, and `TypeError` for a
    value that is not a number.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} has shape {tuple(value.shape)}, expected one element")
        if value.device.type != "cpu" or not beside.is_cuda:
            check_device(name, value, "the data", beside)
            return {name: kind(0), f"{name}_ptr": value}
        value = value.item()  # from host memory: nothing waits
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number or a tensor of one element, got {type(value).__name__}")
    return {name: kind(value), f"{name}_ptr": None}
