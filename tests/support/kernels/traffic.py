"""Traffic through memory: passes of PyTorch's operations, the largest tensor made, and the loads of kernels."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

UNREAD = {"full_like", "empty_like", "zeros_like", "ones_like"}
"""Operations that look at no element of their arguments."""
FREE = {"_unsafe_view", "set_", "index", "index_put_"}
"""Operations that move nothing, or a few elements of a large tensor."""


class Traffic(TorchDispatchMode):
    """Counts, of the operations within, how often a tensor of `size` elements is read or written; views are free."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size, self.passes, self.largest, self.operations = size, 0, 0, []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.operations.append(name)
        if func.is_view or name in FREE:
            return out
        written = _tensors(out)
        floats = (tensor.numel() for tensor in written if tensor.is_floating_point())  # the interpreter copies bytes
        self.largest = max([self.largest, *floats])
        read = [] if name in UNREAD else _tensors(args[1:] if name == "copy_" else (args, kwargs))
        self.passes += sum(tensor.numel() == self.size for tensors in (read, written) for tensor in tensors)
        return out


def _tensors(tree: Any) -> Iterable[Tensor]:
    """Each tensor once: `g * g` reads g once."""
    return {id(leaf): leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)}.values()


@dataclass
class Loads:
    """The numbers that kernels have loaded."""

    elements: int = 0
    """Elements of all arrays, without those that a mask leaves out."""
    masked: int = 0
    """How often `tl.load` was given a mask."""


@contextmanager
def counted_loads() -> Iterator[Loads]:
    """Within it, loads are counted; kernels must run in Triton's interpreter."""
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    seen, plain_load, masked_load = Loads(), Builder.create_load, Builder.create_masked_load

    def plain(self: Any, *arguments: Any) -> Any:
        seen.masked -= 1  # the interpreter makes it a masked one
        return plain_load(self, *arguments)

    def masked(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        seen.masked += 1
        seen.elements += int(mask.data.sum())
        return masked_load(self, pointers, mask, *rest)

    with mock.patch.object(Builder, "create_load", plain), mock.patch.object(Builder, "create_masked_load", masked):
        yield seen
