"""Lesson 17's measurements on this machine's GPU: the package's kernels at the benchmark's sizes."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from course.gpu import DEVICE, DTYPE, torch

from .roofline import BACKWARD, FORWARD, Gpu, Work, gpu_named

Call = Callable[[], Any]


def this_gpu() -> Gpu:
    """Return this GPU's data sheet or, if it is unknown, the speeds of a matrix product and a copy by PyTorch."""
    name = torch.cuda.get_device_name()
    if known := gpu_named(name):
        return known
    n, count = 8192, min(2**30, torch.cuda.mem_get_info()[0] // 16)  # four arrays fill half of the free memory
    product = seconds_of([partial(torch.matmul, randn(n, n), randn(n, n)) for _ in range(2)])
    copy = seconds_of([partial(torch.empty_like(source).copy_, source) for source in (randn(count), randn(count))])
    return Gpu(name, 0, f"{str(DTYPE).removeprefix('torch.')} as measured", 2 * n**3 / product, 4 * count / copy)


def measured_here(works: Sequence[Work]) -> dict[int, float]:
    """Return the seconds of each task, by its number, without those that do not fit into memory and some kinds."""
    found = {}
    for number, work in enumerate(works):
        try:
            found[number] = seconds_of([call_of(work) for _ in range(2)])
        except (KeyError, torch.OutOfMemoryError):
            continue
        finally:
            torch.cuda.empty_cache()
    return found


def seconds_of(calls: Sequence[Call]) -> float:
    """Return the median time of calls that take turns, so that none finds its own inputs in the cache."""
    from triton.testing import do_bench

    turns = itertools.cycle(calls)
    return cast(float, do_bench(lambda: next(turns)(), warmup=10, rep=50, return_mode="median")) / 1e3


def call_of(work: Work) -> Call:
    """Return a call of our kernels on fresh inputs. Raises `KeyError` for a task of another kind."""
    import kernels

    forward, backward = (getattr(kernels, name) for name in kernels.functions_of(work.op))
    *inputs, dout = _inputs(work)
    if work.what == FORWARD:
        return partial(forward, *inputs)
    if work.what == BACKWARD:
        return partial(backward, dout, forward(*inputs)[1])
    return lambda: backward(dout, forward(*inputs)[1])


def _inputs(work: Work) -> list[Any]:
    """Return an op's inputs, and the gradient that its output receives."""
    size = work.size
    if work.op == "attention":
        return [randn(*(size[name] for name in ("B", "H", "Tq", "D"))) for _ in range(4)]
    count = {"relu": 1, "softmax": 1, "layernorm": 1, "add_layernorm": 2, "dropout": 1}[work.op]
    *inputs, dout = (randn(size["rows"], size["columns"]) for _ in range(count + 1))
    if work.op.endswith("layernorm"):
        inputs += [randn(size["columns"]) for _ in range(2)]
    if work.op == "dropout":
        from minitransformer.ops import Dropout

        inputs.append(Dropout(0.1, key=1))
    return [*inputs, dout]


def randn(*shape: int) -> Any:
    """Return fresh normal numbers."""
    return torch.randn(shape, dtype=DTYPE, device=DEVICE)
