"""Triton's interpreter without work that it repeats or throws away: two thirds of its time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from unittest import mock

import pytest


@pytest.fixture(autouse=True, scope="session")
def fast_interpreter() -> Iterator[None]:
    """Kernels run in Triton's interpreter, without what it does in vain."""
    if find_spec("triton") is None:
        yield
        return
    with without_waste():
        yield


@contextmanager
def without_waste() -> Iterator[None]:
    """Within it, the interpreter does the same in less time.

    - It patches `triton.language` once a launch, not anew for each function that is called. Modules are patched as
      ever, those that a function sees as `tl` or as `core`; only the second time is left out.
    - It doesn't compute each integer operation in int64 too, for an assertion that is only made with TRITON_DEBUG.
    - It works out once what a type and a shape are, not for each value that has them.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    launch, patch, patched = interpreter.GridExecutor.__call__, interpreter._patch_lang, set()
    make_tensor, make_block = tl.tensor.__init__, tl.block_type.__init__
    seen: dict[Any, tuple[bool, ...]] = {}
    blocks: dict[tuple, dict[str, Any]] = {}

    def launched(self: Any, *arguments: Any, **options: Any) -> None:
        patched.clear()  # the end of a launch takes its patches back
        launch(self, *arguments, **options)

    def patched_for(function: Any) -> Any:
        if function not in seen:
            names = function.__globals__.values()
            seen[function] = tuple(any(value is module for value in names) for module in (tl, tl.core))
        if seen[function] in patched:
            return None
        patched.add(seen[function])
        return patch(function)

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, *[getattr(size, "value", size) for size in shape]
        if key not in blocks:
            make_block(self, element_ty, shape)
            blocks[key] = self.__dict__
        self.__dict__ = blocks[key]

    @_once_for_each_type
    def attributes(kind: Any) -> dict[str, Any]:
        make_tensor(like := tl.tensor.__new__(tl.tensor), None, kind)
        return like.__dict__

    def tensor(self: Any, handle: Any, type: Any) -> None:
        self.__dict__.update(attributes(type), handle=handle, type=type)

    with (
        mock.patch.object(interpreter.GridExecutor, "__call__", launched),
        mock.patch.object(interpreter, "_patch_lang", patched_for),
        mock.patch.object(
            interpreter.interpreter_builder,
            "options",
            replace(interpreter.interpreter_builder.options, sanitize_overflow=False),
        ),
        mock.patch.object(interpreter, "_get_np_dtype", _once_for_each_type(interpreter._get_np_dtype)),
        mock.patch.object(tl.block_type, "__init__", block),
        mock.patch.object(tl.tensor, "__init__", tensor),
    ):
        yield


def _once_for_each_type(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Types of blocks have no hash, but names that say all."""
    known: dict[str, Any] = {}

    def looked_up(kind: Any) -> Any:
        if kind.name not in known:
            known[kind.name] = function(kind)
        return known[kind.name]

    return looked_up
