"""The host's cost of `kernels.functional` and of `torch.nn.functional`: `python tests/benchmarks/functional_host.py`.

Forward and backward of small tensors, where what is computed takes next to no time. Two ratios, each of the medians of
rounds that take turns: without a GPU, where PyTorch's own functions are called, and of the kernels' path. On a machine
without a GPU nothing is launched on that path, so its ratio is of the host's work alone.
"""

import os
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

ROUNDS, CALLS = 15, 20
TARGETS = torch.arange(4)
CASES: dict[str, tuple[Callable[[Any, Tensor], Tensor], tuple[int, ...]]] = {
    "layer_norm": (lambda f, x: f.layer_norm(x, (64,), x[0], x[1]), (4, 64)),
    "rms_norm": (lambda f, x: f.rms_norm(x, (64,), x[0]), (4, 64)),
    "gelu": (lambda f, x: f.gelu(x), (4, 64)),
    "softmax": (lambda f, x: f.softmax(x, -1), (4, 64)),
    "embedding": (lambda f, x: f.embedding(TARGETS.to(x.device), x), (4, 64)),
    "cross_entropy": (lambda f, x: f.cross_entropy(x, TARGETS.to(x.device)), (4, 64)),
    "linear_cross_entropy": (lambda f, x: f.linear_cross_entropy(x, x, TARGETS.to(x.device)), (4, 64)),
    "scaled_dot_product_attention": (
        lambda f, x: f.scaled_dot_product_attention(x, x, x, is_causal=True), (1, 4, 32, 64)
    ),
}  # fmt: skip


def ratio(function: Callable[[Any, Tensor], Tensor], shape: tuple[int, ...], device: str) -> float:
    """Ours ÷ PyTorch's."""
    from kernels import functional

    x = torch.randn(shape, device=device, requires_grad=True)
    received = torch.ones_like(function(F, x))
    seconds: dict[Any, list[float]] = {functional: [], F: []}
    for turn in range(ROUNDS + 1):
        for module, times in seconds.items():
            start = perf_counter()
            for _ in range(CALLS):
                torch.autograd.backward(function(module, x), received)
            if turn:  # the first compiles
                times.append(perf_counter() - start)
    return statistics.median(seconds[functional]) / statistics.median(seconds[F])


def nothing(*_: object, **__: object) -> None:
    """A launch on a machine without a GPU."""


def main() -> None:
    torch.set_num_threads(1)
    gpu = torch.cuda.is_available()
    if not gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported, which reads it once
    print(f"{'ours ÷ PyTorch, forward and backward':40}  without a GPU  the kernels' path")
    for name, (function, shape) in CASES.items():
        with mock.patch.dict(os.environ, {"TRITON_INTERPRET": "0"}):
            plain = ratio(function, shape, "cpu")
        with ExitStack() as stack:
            if not gpu:
                stack.enter_context(mock.patch("triton.runtime.interpreter.InterpretedFunction.run", nothing))
            kernels = ratio(function, shape, "cuda" if gpu else "cpu")
        print(f"{name:40}  {plain:13.1f}  {kernels:17.1f}")


if __name__ == "__main__":
    main()
