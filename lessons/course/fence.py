"""A fence around a kernel's arrays: in Triton's interpreter, what a forgotten mask or a race does is seen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from .gpu import DEVICE, require, torch


@dataclass
class Trespasses:
    """How many lanes did what they must not."""

    loads: int = 0
    """Read memory that belongs to none of the kernel's arguments. (They were stopped, and got 0 or `other`.)"""
    stores: int = 0
    """Wrote such memory. (They were stopped too: it may be anybody's.)"""
    races: int = 0
    """Read or wrote what another program of the same launch had written; on a GPU, who comes first is chance."""


@contextmanager
def fence() -> Iterator[Trespasses]:
    """Within it, lanes of kernels that trespass are counted. Where kernels are compiled, nothing is seen."""
    seen = Trespasses()
    if DEVICE == "cuda":
        yield seen
        return
    require()
    from torch.utils._pytree import tree_leaves
    from triton.runtime.interpreter import GridExecutor
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    ranges: list[tuple[int, int]] = []
    writers: dict[int, tuple[int, ...]] = {}  # of each address, the program that wrote it
    launch, load, store = GridExecutor._init_args_hst, Builder.create_masked_load, Builder.create_masked_store

    def launched(self: Any, args: Any, kwargs: Any) -> Any:
        found = launch(self, args, kwargs)
        storages = [leaf.untyped_storage() for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        ranges[:] = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]
        writers.clear()
        return found

    def inside(self: Any, pointers: Any, mask: Any) -> tuple[Any, int]:
        """The mask of the lanes that stay within the arrays, and how many do not; notes races."""
        places, wanted = np.broadcast_arrays(pointers.data, mask.data)
        allowed = np.zeros(places.shape, bool)
        for start, stop in ranges:
            allowed |= (places >= start) & (places < stop)
        me = tuple(self.grid_idx)
        seen.races += sum(writers.get(place, me) != me for place in places[wanted & allowed].tolist())
        return type(mask)(wanted & allowed, mask.dtype), int((wanted & ~allowed).sum())

    def fenced_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        mask, outside = inside(self, pointers, mask)
        seen.loads += outside
        return load(self, pointers, mask, *rest)

    def fenced_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        mask, outside = inside(self, pointers, mask)
        seen.stores += outside
        writers.update(dict.fromkeys(np.broadcast_to(pointers.data, mask.data.shape)[mask.data].tolist(),
                                     tuple(self.grid_idx)))  # fmt: skip
        return store(self, pointers, value, mask, *rest)

    with (
        mock.patch.object(GridExecutor, "_init_args_hst", launched),
        mock.patch.object(Builder, "create_masked_load", fenced_load),
        mock.patch.object(Builder, "create_masked_store", fenced_store),
    ):
        yield seen
