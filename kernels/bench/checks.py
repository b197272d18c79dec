"""Every op on this machine against the float64 reference in NumPy, in each dtype that the machine has.

float32 must be within 1e-5. In float16 and bfloat16 the error may be twice that of PyTorch's own function in the same
dtype for outputs, three times for gradients, and never needs to be below the rounding of the result itself. What is
allocated is filled with NaN first, and a second backward must give the same bits.
"""

import math
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

import kernels
import minitransformer.ops as reference
from minitransformer.gradcheck import error

from . import peers
from .cases import Case, cases
from .machine import Machine

TOLERANCE, TF32_TOLERANCE = 1e-5, 5e-3
OUTPUT_FACTOR, GRADIENT_FACTOR = 2.0, 3.0

EXACT = ("gamma", "beta")
"""Parameters that stay in float32 beside narrower activations."""

TAKING_OUT = ("embedding", "linear_cross_entropy")
"""Ops whose backward can add the gradient of a large table into a tensor that is there already."""


class CheckFailed(Exception):
    """An op is not what it has to be: which, in which dtype, in which case, and how far off."""

    def __init__(self, op: str, message: str) -> None:
        super().__init__(op, message)
        self.op, self.message = op, message

    def __str__(self) -> str:
        return f"{self.op}, {self.message}"


class Refused(Exception):
    """What is wrong, beyond an error that is too large."""


class Finding(NamedTuple):
    """How far off something is, and how far it may be."""

    what: str
    error: float
    allowed: float


Worst = dict[str, float]
"""The worst error, and the largest share that any took of what it was allowed."""


def check_all(ops: Iterable[str], machine: Machine, processes: int) -> Iterator[tuple[str, dict[str, Worst]]]:
    """Op by op, the worst error by dtype. In processes side by side, since compiling takes most of the time.

    Raises `CheckFailed` at the first op that is not what it has to be.
    """
    tasks = {op: {_name(dtype): (op, dtype, machine) for dtype in machine.dtypes} for op in ops}
    if processes == 1:
        yield from ((op, {dtype: check(*task) for dtype, task in each.items()}) for op, each in tasks.items())
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=threadpool_limits, initargs=(2,))
    try:
        futures = {op: {dtype: pool.submit(check, *task) for dtype, task in each.items()} for op, each in tasks.items()}
        yield from ((op, {dtype: each.result() for dtype, each in found.items()}) for op, found in futures.items())
    finally:
        pool.shutdown(cancel_futures=True)


def check(op: str, dtype: torch.dtype, machine: Machine) -> Worst:
    """All cases of an op in one dtype. Raises `CheckFailed` at the first that fails, whatever went wrong."""
    prove = _adam if op == "adam" else _pair
    worst = {"error": 0.0, "of_allowed": 0.0}
    for case in cases(op, full=not machine.smoke):
        where = f"{_name(dtype)}, {case.name}"
        try:
            with poisoned():
                findings = list(prove(op, case, dtype, machine.device))
        except Refused as refused:
            raise CheckFailed(op, f"{where}: {refused}") from None
        except Exception as problem:
            traceback.print_exc()
            raise CheckFailed(op, f"{where}: {type(problem).__name__}: {problem}") from None
        for what, found, allowed in findings:
            if not found <= allowed:
                raise CheckFailed(op, f"{where}: {what} is off by {found:.3g}, allowed {allowed:.3g}")
            if not case.tf32:
                worst = {
                    "error": max(worst["error"], found),
                    "of_allowed": max(worst["of_allowed"], found / allowed),
                }
    return worst


@contextmanager
def poisoned() -> Iterator[None]:
    """PyTorch fills what is allocated and not yet written with NaN: an element that no program writes is seen."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _pair(op: str, case: Case, dtype: torch.dtype, device: str) -> Iterator[Finding]:
    """A forward and its backward."""
    if (case.float32 or case.tf32) and dtype != torch.float32:
        return
    arrays = {name: _rounded(array, dtype) for name, array in case.arrays.items()}
    expected, cache = getattr(reference, f"{op}_forward")(*arrays.values(), **case.options)
    loss = np.ndim(expected) == 0
    if loss:
        dout = float(arrays["targets"].size)  # a loss is a mean: this makes the gradients of rows of order one
    else:
        dout = _rounded(np.random.default_rng(1).standard_normal(expected.shape), dtype)
    wanted = _floats(getattr(reference, f"{op}_backward")(dout, cache))

    options = {name: _tensor(value, None, device) for name, value in case.options.items()}
    tensors = [_tensor(array, torch.float32 if name in EXACT else dtype, device) for name, array in arrays.items()]
    received = dout if loss else _tensor(dout, dtype, device)
    before = [tensor.clone() for tensor in tensors]
    forward, backward = getattr(kernels, f"{op}_forward"), getattr(kernels, f"{op}_backward")
    out, cache = forward(*tensors, **options, **({"precision": "tf32"} if case.tf32 else {}))
    gradients = _floats(backward(received, cache))
    again = _floats(backward(received, cache))
    _require(all(map(_same_bits, gradients, again)), "a second backward gives other bits")
    _require(all(map(_same_bits, tensors, before)), "an input was written into")
    _require(len(gradients) == len(wanted), f"there are {len(gradients)} gradients, expected {len(wanted)}")

    if dtype == torch.float32:
        allowed = [TF32_TOLERANCE if case.tf32 else TOLERANCE] * (1 + len(wanted))
    else:
        allowed = _allowed(getattr(peers, op), tensors, options, received, expected, wanted)
    yield Finding("the output", error(_numpy(out), expected), allowed[0])
    for index, (gradient, truth) in enumerate(zip(gradients, wanted, strict=True)):
        yield Finding(f"gradient {index}", error(_numpy(gradient), truth), allowed[1 + index])
    if op in TAKING_OUT:
        there = torch.ones(wanted[-1].shape, device=device)
        backward(received, cache, out=there)
        yield Finding("a gradient added into out", error(_numpy(there), 1 + wanted[-1]), allowed[-1])
    if op == "linear_cross_entropy":
        out, _ = forward(*tensors, **options, with_grad=False)
        yield Finding("the loss without gradients", error(_numpy(out), expected), allowed[0])


def _allowed(
    peer: Callable[..., Tensor], tensors: list[Tensor], options: dict, received: Any, expected: Any, wanted: list
) -> list[float]:
    """What PyTorch's own function in the same dtype is off by, times the factors; at least the result's rounding."""
    leaves = [tensor.clone().requires_grad_() if tensor.is_floating_point() else tensor for tensor in tensors]
    floats = [leaf for leaf in leaves if leaf.requires_grad]
    out = peer(*leaves, **options)
    dout = torch.full_like(out, received) if isinstance(received, float) else received
    gradients = torch.autograd.grad(out, floats, dout)
    eps = torch.finfo(floats[0].dtype).eps
    allowed = []
    for found, truth in ((out, expected), *zip(gradients, wanted, strict=True)):
        off = error(_numpy(found), truth)
        factor = GRADIENT_FACTOR if allowed else OUTPUT_FACTOR
        allowed.append(max(factor * off, eps) if math.isfinite(off) else eps)
    return allowed


def _adam(op: str, case: Case, dtype: torch.dtype, device: str) -> Iterator[Finding]:
    """Three steps of Adam in place, once with numbers in device memory; its copy in a narrow dtype; the norm."""
    arrays = {name: _rounded(array, dtype) for name, array in case.arrays.items()}
    norm = kernels.global_norm(_tensor(arrays["grad"], dtype, device))
    length = float(np.linalg.norm(arrays["grad"]))
    yield Finding("the global norm", error(_numpy(norm) / length, np.ones(())), TOLERANCE)

    truth = {name: array.copy() for name, array in arrays.items()}
    tensors = {name: _tensor(array, torch.float32, device) for name, array in arrays.items()}
    twins = {name: tensor.clone() for name, tensor in tensors.items()}
    shadow = torch.empty_like(tensors["data"], dtype=dtype)
    for step in range(1, 4):
        reference.adam_step(*truth.values(), step=step, lr=0.1, grad_scale=0.5)
        kernels.adam_step(*tensors.values(), step=step, lr=0.1, grad_scale=0.5, shadow=shadow)
        numbers = {"step": step, "lr": 0.1, "grad_scale": 0.5}
        kernels.adam_step(*twins.values(), **{k: torch.tensor([v], device=device) for k, v in numbers.items()})
    for name, array in truth.items():
        yield Finding(name, error(_numpy(tensors[name]), array), TOLERANCE)
        _require(torch.equal(tensors[name], twins[name]), f"{name} depends on where step, lr and grad_scale are")
    _require(torch.equal(shadow, tensors["data"].to(dtype)), "the copy is not the data")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Refused(otherwise)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """NaN too is itself."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def _rounded(array: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """What the dtype can hold of floats, in float64: the reference gets the kernel's numbers."""
    if array.dtype.kind != "f":
        return array
    return torch.from_numpy(array).to(dtype).double().numpy()


def _tensor(value: Any, dtype: torch.dtype | None, device: str) -> Any:
    """An array on the device, floats in the dtype; heads as layers hand them over, `(B, T, H, D)` in memory."""
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.from_numpy(value).to(device)
    if tensor.is_floating_point():
        tensor = tensor.to(dtype)
    return tensor.transpose(1, 2).contiguous().transpose(1, 2) if tensor.ndim == 4 else tensor


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()


def _floats(gradients: Any) -> list:
    return list(gradients) if isinstance(gradients, tuple) else [gradients]
