"""PyTorch, the engine of many processes: imported only where there are several, and nowhere else in the library."""

from typing import Any


def pytorch() -> Any:
    """Return PyTorch, imported when it is needed."""
    import torch.distributed

    return torch


def torch_distributed() -> Any:
    """Return `torch.distributed`, imported when it is needed."""
    return pytorch().distributed


def take_gpu(number: int) -> None:
    """Use this machine's GPU of this number. Raises ValueError if there is none."""
    cuda = pytorch().cuda
    if number >= (count := cuda.device_count()):
        raise ValueError(f"process {number} of this machine has no GPU of its own: there are {count}")
    cuda.set_device(number)
