"""Triton's interpreter without work that it repeats: four tenths of its time."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from unittest import mock

import pytest


@pytest.fixture(autouse=True, scope="session")
def fast_interpreter() -> Iterator[None]:
    """Kernels run in Triton's interpreter, without what it does twice."""
    if find_spec("triton") is None:
        yield
        return
    with patched_once():
        yield


@contextmanager
def patched_once() -> Iterator[None]:
    """Within it, the interpreter patches `triton.language` once a launch, not anew for each function that is called.

    Modules are patched as ever, those that a function sees as `tl` or as `core`; only the second time is left out.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    launch, patch, patched = interpreter.GridExecutor.__call__, interpreter._patch_lang, set()
    seen: dict[Any, tuple[bool, ...]] = {}

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

    def numpys(dtype: Any) -> Any:
        """NumPy's type of a scalar, a pointer or a block, without a new table of all types."""
        name = dtype.scalar.name
        if name not in types:
            types[name] = made(dtype)
        return types[name]

    made, types = interpreter._get_np_dtype, dict[str, Any]()
    with (
        mock.patch.object(interpreter, "_get_np_dtype", numpys),
        mock.patch.object(interpreter.GridExecutor, "__call__", launched),
        mock.patch.object(interpreter, "_patch_lang", patched_for),
    ):
        yield
