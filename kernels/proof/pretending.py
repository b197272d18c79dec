"""Another GPU, which is not here: the host wrappers run, and what they would launch is only compiled.

Nothing is described twice: the wrappers run on small tensors in host memory, or on tensors without memory, and Triton's
own machinery compiles what they launch. That takes a process without Triton's interpreter.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

TARGETS = {
    "cuda:75": 64,  # T4
    "cuda:80": 163,  # A100
    "cuda:86": 99,  # RTX 30
    "cuda:89": 99,  # RTX 40, L4
    "cuda:90": 227,  # H100, H200
    "cuda:100": 227,  # B200
    "cuda:120": 99,  # RTX 50
    "hip:gfx942": 64,  # MI300
    "hip:gfx1100": 64,  # RX 7900
}
"""GPUs that learners may have, and the KiB of shared memory that a block may have there."""

WARP_SIZES = {"gfx942": 64}
"""Threads of a warp, where they are not 32."""


@contextmanager
def pretending(
    target: str, shared_memory: int = 0, warp_size: int = 0, then: Callable[..., None] | None = None
) -> Iterator[list[Any]]:
    """Launches compile for `target` instead; each kernel is collected here with what was made of it.

    The bytes of shared memory and the threads of a warp are those of `TARGETS` and `WARP_SIZES` unless given. `then`
    is called after each with the kernel, what was made of it, the grid, and the arguments by name.
    """
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    from .. import tuning

    kind, arch = target.split(":")
    gpu = GPUTarget(kind, int(arch) if kind == "cuda" else arch, warp_size or WARP_SIZES.get(arch, 32))
    shared_memory = shared_memory or TARGETS[target] * tuning.KIBIBYTE
    launches: list[Any] = []
    launch: Any = JITFunction.run
    touched: dict[int, Any] = {}

    def compile_only(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if id(kernel) not in touched:
            touched[id(kernel)] = kernel
            kernel.device_caches.clear()  # what is compiled for one GPU must not be taken for the other
        made = launch(kernel, *arguments, grid=grid, warmup=True, **options)
        launches.append((kernel, made))
        if then is not None:
            then(kernel, made, grid, dict(zip(kernel.arg_names, arguments, strict=False)) | options)
        return made

    one_device = {"get_current_device": lambda: 0, "get_current_stream": lambda device: 0}  # all that compiling needs
    driver.set_active(cast(Any, SimpleNamespace(**one_device, get_current_target=lambda: gpu)))
    pretended = tuning.pretending(tuning.Capability(kind, gpu.arch, shared_memory))
    try:
        with patch.object(JITFunction, "run", compile_only), pretended:
            yield launches
    finally:
        driver.set_active(cast(Any, None))  # Triton looks again for the one that is there
        for kernel in touched.values():
            kernel.device_caches.clear()
