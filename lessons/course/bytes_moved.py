"""Count memory traffic: the bytes that PyTorch's operations, or a kernel's loads and stores, move."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from unittest import mock

from .gpu import DEVICE, require_kernels

NOT_READ = {"empty_like", "zeros_like", "ones_like", "full_like"}


class Traffic(NamedTuple):
    """Bytes from memory and to it; each operation reads its arguments and writes its result."""

    read: int
    written: int
    largest: int = 0
    """Bytes of the largest array that was made."""


def of_operations(run: Callable[[], Any]) -> Traffic:
    """Return the traffic of the PyTorch operations in `run()`, each from memory and back to it; views move nothing."""
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    read = written = largest = 0

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal read, written, largest
            out = func(*args, **(kwargs or {}))
            if not func.is_view:
                if func.overloadpacket.__name__ not in NOT_READ:
                    read += _bytes(args)
                written += _bytes(out)
                largest = max(largest, _bytes(out))
            return out

    def _bytes(tree: Any) -> int:
        tensors = {id(leaf): leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)}  # `x * x` reads x once
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())

    with Counting():
        run()
    return Traffic(read, written, largest)


def of_kernels(run: Callable[[], Any], cached: Iterable[Any] = ()) -> Traffic:
    """Return the traffic of the Triton kernels in `run()`: bytes of the lanes that their masks let load and store.

    Loads from the tensors `cached` are not counted: they are short, all programs read them, and caches keep them.
    Raises `ModuleNotFoundError` if kernels are compiled, because only Triton's interpreter can be patched.
    """
    require_kernels()
    if DEVICE == "cuda":
        raise ModuleNotFoundError("compiled kernels do not count their bytes, Triton's interpreter does")
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    read = written = 0
    ranges = [(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in cached]
    load, store = Builder.create_masked_load, Builder.create_masked_store

    def counted_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        nonlocal read
        loaded = load(self, pointers, mask, *rest)
        first = int(pointers.data.min())
        if not any(start <= first < stop for start, stop in ranges):
            read += int(mask.data.sum()) * loaded.data.itemsize
        return loaded

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        nonlocal written
        written += int(mask.data.sum()) * value.data.itemsize
        return store(self, pointers, value, mask, *rest)

    with (
        mock.patch.object(Builder, "create_masked_load", counted_load),
        mock.patch.object(Builder, "create_masked_store", counted_store),
    ):
        run()
    return Traffic(read, written)
