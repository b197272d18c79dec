"""A sanitizer for Triton kernels: in the interpreter it finds accesses out of bounds, races and atomics.

`sanitize` records the accesses of the kernels that run inside it; the judges of kernels then require of the
`AccessReport` that the kernels were safe and did the work in one pass.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from .checks import require
from .gpu import DEVICE, require_kernels, torch


@dataclass
class AccessReport:
    """The accesses of kernels within `sanitize`; all fields but `programs` are for the interpreter alone."""

    interpreted: bool = True
    programs: list[int] = field(default_factory=list)
    """For each launch the number of programs that read or wrote something; 0 if kernels are compiled."""
    loads: int = 0
    """Lanes that would have read memory outside the kernel's arguments; they were masked out."""
    stores: int = 0
    """Lanes that would have written memory outside the kernel's arguments; they were masked out."""
    races: int = 0
    """Lanes that read or wrote bytes that another program of the same launch had written: on a GPU their order is
    undefined."""
    atomics: int = 0
    """Lanes of atomic operations."""
    rounded: int = 0
    """Products of float32 blocks whose inputs an A100 and later would round to tf32; the interpreter does not."""
    _read: Counter[int] = field(default_factory=Counter)  # lanes, by the address of the storage
    _written: Counter[int] = field(default_factory=Counter)
    _given: dict[int, Any] = field(default_factory=dict)  # all storages, kept so that no address is used twice

    def launched_with(self, arguments: Any) -> list[Any]:
        """Record and return the storages among a kernel's arguments."""
        from torch.utils._pytree import tree_leaves

        found = [leaf.untyped_storage() for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        self._given |= {storage.data_ptr(): storage for storage in found}
        return found

    def given(self, tensor: Any) -> bool:
        """Return True if a kernel was launched with this tensor's memory."""
        return tensor.untyped_storage().data_ptr() in self._given

    def read(self, tensor: Any) -> int:
        """Return the number of lanes that read this tensor's memory."""
        return self._read[tensor.untyped_storage().data_ptr()]

    def written(self, tensor: Any) -> int:
        """Return the number of lanes that wrote this tensor's memory."""
        return self._written[tensor.untyped_storage().data_ptr()]

    def written_beside(self, tensor: Any) -> int:
        """Return the number of lanes that wrote memory of the other arguments."""
        return self._written.total() - self.written(tensor)


@contextmanager
def sanitize() -> Iterator[AccessReport]:
    """Record the accesses of the kernels that run inside this context.

    In the interpreter, undefined values are NaN: uninitialised memory, and lanes that `tl.load` masks out without an
    `other`. Of compiled kernels only the launches are recorded. Raises `ModuleNotFoundError` if kernels cannot run.
    """
    require_kernels()
    if DEVICE == "cuda":
        with _launches() as seen:
            yield seen
        return
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # fills the tensors of torch.empty with NaN
    try:
        with _lanes() as seen:
            yield seen
    finally:
        torch.set_deterministic_debug_mode(mode)


@contextmanager
def _launches() -> Iterator[AccessReport]:
    from triton.runtime.jit import JITFunction

    seen, run = AccessReport(interpreted=False), JITFunction.run

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.programs.append(0)
        seen.launched_with((args, kwargs))
        return run(self, *args, **kwargs)

    with mock.patch.object(JITFunction, "run", counted):
        yield seen


@contextmanager
def _lanes() -> Iterator[AccessReport]:
    from triton._C.libtriton import ir
    from triton.runtime.interpreter import GridExecutor, TensorHandle, _get_np_dtype
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    seen = AccessReport()
    storages: dict[int, int] = {}  # the running kernel's arguments: first address to one behind the last byte
    writers: dict[int, np.ndarray] = {}  # by a storage's address: the program that wrote each byte, or 0
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
        """Return the mask of the lanes within the arrays, and the number of those outside; count accesses and races."""
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


# --- What judges require of a report ----------------------------------------------------------------------------


def require_safe_access(seen: AccessReport, where: str) -> None:
    """Raise `Wrong` for accesses out of bounds, races and atomics, with which a right result may be luck.

    The interpreter runs one program after the other and masks out what lies outside the arrays; a GPU does neither.
    """
    require(
        not seen.stores,
        f"{where} it is right, but the kernel also writes where there is no array ({seen.stores} lanes, stopped here; "
        "on a GPU somebody else's memory is overwritten): tl.store wants the mask too",
    )
    require(
        not seen.loads,
        f"{where} it is right, but the kernel also reads where there is no array ({seen.loads} lanes, stopped here; a "
        "GPU may crash): tl.load wants the mask too",
    )
    require(
        not seen.races,
        f"{where} it is right, but a program reads or writes what another has written ({seen.races} lanes): on a GPU "
        "they run side by side, and who comes first is chance. Each program writes places of its own",
    )
    require(
        not seen.atomics,
        f"{where} it is right, but it adds with atomic operations: their order is chance, and the sum's last bits with "
        "it. Each program writes its sum to a row of its own",
    )


def require_float32_products(seen: AccessReport) -> None:
    """Raise `Wrong` for products whose inputs a GPU would round to tf32, which the interpreter does not do."""
    require(
        not seen.rounded,
        'here it is right, but a tl.dot lacks input_precision="ieee": an A100 and later then round the float32 numbers '
        "that they multiply to 10 bits of fraction, and are off by about 1e-3",
    )


def require_few_launches(seen: AccessReport, kernel: str, at_most: int, work: str) -> None:
    """Raise `Wrong` unless the kernel was launched for this work, and at most `at_most` times."""
    require(
        seen.programs,
        "the numbers are right, and no kernel was launched: PyTorch computed them, array after array through memory. "
        f"Write {kernel}, and launch it, {kernel}[(programs,)](…)",
    )
    require(
        not seen.interpreted or len(seen.programs) <= at_most,
        f"for {work} kernels were launched {len(seen.programs)} times: one launch has a grid of programs, "
        f"{kernel}[(programs,)](…), which run side by side",
    )


def require_single_pass(seen: AccessReport, **arrays: tuple[str, Any]) -> None:
    """Raise `Wrong` unless kernels have read, or written, each number of each array exactly once.

    `arrays` has for each name "read" or "written", and the tensor.
    """
    for name, (way, array) in arrays.items() if seen.interpreted else ():
        lanes = getattr(seen, way)(array)
        require(
            lanes >= array.numel(),
            f"the numbers are right, but kernels have {way} {lanes:,} of the {array.numel():,} numbers of {name}: an "
            "operation of PyTorch before or after the kernel is one more pass through memory",
        )
        require(
            lanes <= array.numel(),
            f"the numbers are right, but each number of {name} is {way} {lanes / array.numel():.3g} times: keep what "
            "is loaded, store only what is final. The reason for a kernel is that it passes over memory once",
        )


def partly_written(seen: AccessReport, array: Any) -> bool:
    """Return True if kernels wrote only a part of an array, so that the rest is undefined."""
    return 0 < seen.written(array) < array.numel()
