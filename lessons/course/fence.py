"""A fence around a kernel's arrays: in Triton's interpreter, what a forgotten mask or a race does is seen."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from .gpu import DEVICE, require, torch


@dataclass
class Seen:
    """What kernels did within a fence. All but `programs` counts lanes, and only in the interpreter."""

    interpreted: bool = True
    programs: list[int] = field(default_factory=list)
    """For each launch how many programs read or wrote something; 0 where kernels are compiled."""
    loads: int = 0
    """Lanes that read memory that belongs to none of the kernel's arguments. (They were stopped.)"""
    stores: int = 0
    """Lanes that wrote such memory. (They were stopped too: it may be anybody's.)"""
    races: int = 0
    """Lanes that read or wrote what another program of the same launch had written. On a GPU, who comes first is
    chance."""
    atomics: int = 0
    """Lanes of atomic operations."""
    rounded: int = 0
    """Products of float32 blocks whose inputs an A100 and later would round to tf32. (The interpreter does not.)"""
    _read: Counter[int] = field(default_factory=Counter)  # of each storage, by its address
    _written: Counter[int] = field(default_factory=Counter)
    _given: dict[int, Any] = field(default_factory=dict)  # the storages, kept so that no later one has their address

    def launched_with(self, arguments: Any) -> list[Any]:
        """Notes what a kernel is given, and returns the storages among it."""
        from torch.utils._pytree import tree_leaves

        found = [leaf.untyped_storage() for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        self._given |= {storage.data_ptr(): storage for storage in found}
        return found

    def given(self, tensor: Any) -> bool:
        """Whether a kernel was launched with this tensor's memory."""
        return tensor.untyped_storage().data_ptr() in self._given

    def read(self, tensor: Any) -> int:
        """Lanes that read this tensor's memory."""
        return self._read[tensor.untyped_storage().data_ptr()]

    def written(self, tensor: Any) -> int:
        """Lanes that wrote this tensor's memory."""
        return self._written[tensor.untyped_storage().data_ptr()]

    def written_beside(self, tensor: Any) -> int:
        """Lanes that wrote other memory than this tensor's."""
        return self._written.total() - self.written(tensor)


@contextmanager
def fence() -> Iterator[Seen]:
    """Count what the kernels within it do.

    In the interpreter what may be anything is NaN: memory that nobody has written, and lanes that `tl.load` leaves out
    and is given no `other` for.
    """
    require()
    if DEVICE == "cuda":
        with _launches() as seen:
            yield seen
        return
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # fills what torch.empty gives
    try:
        with _lanes() as seen:
            yield seen
    finally:
        torch.set_deterministic_debug_mode(mode)


@contextmanager
def _launches() -> Iterator[Seen]:
    from triton.runtime.jit import JITFunction

    seen, run = Seen(interpreted=False), JITFunction.run

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.programs.append(0)
        seen.launched_with((args, kwargs))
        return run(self, *args, **kwargs)

    with mock.patch.object(JITFunction, "run", counted):
        yield seen


@contextmanager
def _lanes() -> Iterator[Seen]:
    from triton._C.libtriton import ir
    from triton.runtime.interpreter import GridExecutor, TensorHandle, _get_np_dtype
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    seen = Seen()
    storages: dict[int, int] = {}  # of the running kernel's arguments: the address, and the one behind the last byte
    writers: dict[int, np.ndarray] = {}  # by a storage's address: of each byte, the program that wrote it, or 0
    programs: dict[tuple[int, ...], int] = {}  # numbered from 1
    launch, load, store, atomic, product = (
        GridExecutor._init_args_hst,
        Builder.create_masked_load,
        Builder.create_masked_store,
        Builder.create_atomic_rmw,
        Builder.create_dot,
    )

    def launched(self: Any, args: Any, kwargs: Any) -> Any:
        found = launch(self, args, kwargs)
        seen.programs.append(0)
        for known in (storages, writers, programs):
            known.clear()
        for storage in seen.launched_with(found):
            storages[storage.data_ptr()] = storage.data_ptr() + storage.nbytes()
        return found

    def inside(self: Any, pointers: Any, mask: Any, counts: Counter[int] | None = None) -> tuple[Any, int]:
        """The mask of the lanes that stay within the arrays, and how many do not; notes what is read or written."""
        places, wanted = np.broadcast_arrays(pointers.data, mask.data.astype(bool))
        allowed = np.zeros(places.shape, bool)
        me = programs.setdefault(tuple(self.grid_idx), len(programs) + 1)
        seen.programs[-1] = len(programs)
        for start, stop in storages.items():
            here = wanted & (places >= start) & (places < stop)
            allowed |= here
            if counts is None or not here.any():
                continue
            bytes_ = (places[here] - start).astype(np.int64)
            counts[start] += len(bytes_)
            if start in writers:
                by = writers[start][bytes_]
                seen.races += int(((by != 0) & (by != me)).sum())
            if counts is seen._written:
                writers.setdefault(start, np.zeros(stop - start, np.int32))[bytes_] = me
        return TensorHandle(allowed, mask.dtype), int((wanted & ~allowed).sum())

    def fenced_load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        mask, outside = inside(self, pointers, mask, seen._read)
        seen.loads += outside
        kind = pointers.get_element_ty()
        if other is None and np.issubdtype(_get_np_dtype(kind), np.floating):
            other = TensorHandle(np.full(mask.data.shape, np.nan, _get_np_dtype(kind)), kind)
        return load(self, pointers, mask, other, *rest)

    def fenced_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        mask, outside = inside(self, pointers, mask, seen._written)
        seen.stores += outside
        return store(self, pointers, value, mask, *rest)

    def fenced_atomic(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        mask, outside = inside(self, pointers, mask)
        seen.stores += outside
        seen.atomics += int(mask.data.sum())
        return atomic(self, operation, pointers, value, mask, *rest)

    def watched_product(self: Any, a: Any, b: Any, total: Any, precision: Any, *rest: Any) -> Any:
        seen.rounded += a.data.dtype == np.float32 and precision == ir.INPUT_PRECISION.TF32
        return product(self, a, b, total, precision, *rest)

    with (
        mock.patch.object(GridExecutor, "_init_args_hst", launched),
        mock.patch.object(Builder, "create_masked_load", fenced_load),
        mock.patch.object(Builder, "create_masked_store", fenced_store),
        mock.patch.object(Builder, "create_atomic_rmw", fenced_atomic),
        mock.patch.object(Builder, "create_dot", watched_product),
    ):
        yield seen
