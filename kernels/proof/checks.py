"""Every op on this machine against the float64 reference in NumPy, in each dtype that the machine has.

float32 must be within 1e-5. In float16 and bfloat16 the error may be twice that of PyTorch's own function in the same
dtype for outputs, three times for gradients, and never needs to be below the rounding of the result itself. What is
allocated is filled with NaN first, a second backward must give the same bits, and no input may be written into. The
tests of the kernels prove them by the same findings.
"""

import inspect
import math
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import kernels
import minitransformer.ops as reference
from minitransformer.gradcheck import error
from minitransformer.ops.attention import sum_to
from minitransformer.ops.quantized import Quantized

from ..checks import EXACT
from ..eager.attention import alibi_bias
from ..eager.quantized import on_device
from .cases import Case, cases, name_of
from .peers import PEERS

TOLERANCE, TF32_TOLERANCE = 1e-5, 5e-3
OUTPUT_FACTOR, GRADIENT_FACTOR = 2.0, 3.0

STEPS, RATES = (1, 2, 3), {"lr": 0.1, "grad_scale": 0.5}
"""The steps and options that Adam is checked with."""


class Refused(Exception):
    """An op is not what it has to be."""


class Finding(NamedTuple):
    """The error of something, and the largest that is allowed."""

    what: str
    error: float
    allowed: float


def check(op: str, dtype: torch.dtype, device: str = "cpu", some: Iterable[Case] | None = None) -> dict[str, float]:
    """Return the worst error of an op in one dtype, and the largest share that any took of what it was allowed.

    The cases are `chosen` unless given. Raises `Refused` at the first that fails, whatever went wrong: in which dtype,
    in which case, and how far off.
    """
    worst = {"error": 0.0, "of_allowed": 0.0}
    for case in chosen(op, dtype) if some is None else some:
        where = f"{name_of(dtype)}, {case.name}"
        try:
            with poisoned():
                findings = list(findings_of(op, case, dtype, device))
        except Refused as refused:
            raise Refused(f"{where}: {refused}") from None
        except Exception as problem:
            traceback.print_exc()
            raise Refused(f"{where}: {type(problem).__name__}: {problem}") from None
        for what, found, allowed in findings:
            if not found <= allowed:
                raise Refused(f"{where}: {what} is off by {found:.3g}, allowed {allowed:.3g}")
            if not case.tf32:
                shares = {"error": found, "of_allowed": found / allowed}
                worst = {name: max(worst[name], share) for name, share in shares.items()}
    return worst


def chosen(op: str, dtype: torch.dtype, full: bool = False) -> Iterator[Case]:
    """Return the cases of an op that are meant for a dtype; `full` for a GPU's sizes."""
    return (case for case in cases(op, full) if dtype == torch.float32 or not (case.float32 or case.tf32))


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


def launched(op: str, case: Case, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Launch whatever a check launches, and no more; return what ours computed."""
    if op == "adam":
        norm, tensors, _, shadow = _stepped(case, dtype, device)
        return [norm, *tensors.values(), shadow]
    found = _computed(op, case, dtype, device)
    return [found.out, *found.gradients]


def findings_of(
    op: str, case: Case, dtype: torch.dtype, device: str, peer: Callable[..., Tensor] | None = None, **how: Any
) -> Iterator[Finding]:
    """Yield what an op's results are off by. Raises `Refused` for anything else that is wrong.

    A narrow dtype is judged by `peer`, PyTorch's function in `PEERS` unless it is given; `how` is for `_computed`.
    """
    if op == "adam":
        yield from _adam_findings(case, dtype, device)
        return
    found = _computed(op, case, dtype, device, **how)
    arrays = {name: _rounded(array, dtype) for name, array in case.arrays.items()}
    wide = (v.astype(np.float64) if getattr(v, "dtype", None) == np.float32 else v for v in case.options.values())
    options, bias = dict(zip(case.options, wide, strict=True)), arrays.get("bias")
    if (slopes := options.pop("slopes", None)) is not None:  # which are a bias to the reference
        lines = alibi_bias(torch.from_numpy(slopes).double(), arrays["query"].shape[2], arrays["key"].shape[2]).numpy()
        arrays["bias"] = lines if bias is None else lines + bias
    forward, backward = (getattr(reference, f"{op}_{way}") for way in ("forward", "backward"))
    expected, cache = forward(**arrays, **options)
    _require(found.out.shape == np.shape(expected), f"the output is {tuple(found.out.shape)}")
    dout = found.received if isinstance(found.received, float) else _numpy(found.received)
    wanted = _floats(backward(dout, cache))
    if slopes is not None:
        *wanted, dbias = wanted
        wanted += [] if bias is None else [sum_to(bias.shape, dbias)]
    _require(all(map(_same_bits, found.gradients, found.again)), "a second backward gives other bits")
    _require(all(map(_same_bits, found.tensors, found.before)), "an input was written into")
    count = len(found.gradients)
    _require(count == len(wanted), f"there are {count} gradients, expected {len(wanted)}")

    if dtype == torch.float32:
        allowed = [TF32_TOLERANCE if case.tf32 else TOLERANCE] * (1 + len(wanted))
    else:
        allowed = list(_allowed(peer or PEERS[op], found, len(case.arrays), expected, wanted))
    yield Finding("the output", error(_numpy(found.out), expected), allowed[0])
    for index, (gradient, truth) in enumerate(zip(found.gradients, wanted, strict=True)):
        yield Finding(f"gradient {index}", error(_numpy(gradient), truth), allowed[1 + index])
    if found.added is not None:
        yield Finding("a gradient added into out", error(_numpy(found.added), 1 + wanted[-1]), allowed[-1])
    if found.loss_alone is not None:
        yield Finding("the loss without gradients", error(_numpy(found.loss_alone), expected), allowed[0])


# --- A forward and its backward -------------------------------------------------------------------------------


def as_layers_do(x: Tensor) -> Tensor:
    """Return heads as layers hand them over, a part of a projection `(B, T, heads, D)`; anything else as it is."""
    if x.ndim != 4:
        return x
    B, H, T, D = x.shape
    heads = torch.full((B, T, H + 2, D), torch.nan, dtype=x.dtype, device=x.device)[:, :, 1:-1].transpose(1, 2)
    return heads.copy_(x)


class Computed(NamedTuple):
    """A case as an op of ours was given it, and all that it made of it: everything that a check launches."""

    tensors: list[Tensor]
    before: list[Tensor]
    options: dict[str, Any]
    received: Any
    out: Tensor
    gradients: list[Tensor]
    again: list[Tensor]
    added: Tensor | None = None
    loss_alone: Tensor | None = None


def _computed(
    op: str,
    case: Case,
    dtype: torch.dtype,
    device: str,
    forward: Callable[..., Any] | None = None,
    lie: Callable[[Tensor], Tensor] = as_layers_do,
    exact: Sequence[str] = EXACT,
    in_all_ways: bool = True,
) -> Computed:
    """Return a forward, and the backward twice; `in_all_ways` adds gradients into a tensor, takes a loss without them.

    `forward` takes the place of the op's own, `lie` gives a tensor its place in memory, and arrays that are `exact` are
    float32 whatever the dtype is.
    """
    arrays = {name: _rounded(array, dtype) for name, array in case.arrays.items()}
    tensors = [lie(_tensor(x, torch.float32 if name in exact else dtype, device)) for name, x in arrays.items()]
    options = {name: _tensor(value, None, device) for name, value in case.options.items()}
    op_forward, backward = forward or getattr(kernels, f"{op}_forward"), getattr(kernels, f"{op}_backward")
    before = [tensor.clone() for tensor in tensors]
    named = dict(zip(arrays, tensors, strict=True))
    out, cache = op_forward(**named, **options, **({"precision": "tf32"} if case.tf32 else {}))
    if "targets" in case.arrays:  # a loss is a mean: this makes the gradients of its rows of order one
        targets = case.arrays["targets"]
        received: Any = float(len(targets) if targets.dtype.kind == "f" else targets.size)
    else:
        drawn = _rounded(np.random.default_rng(1).standard_normal(out.shape), dtype)
        received = lie(_tensor(drawn, dtype, device))
        tensors, before = [*tensors, received], [*before, received.clone()]
    gradients, again = _floats(backward(received, cache)), _floats(backward(received, cache))
    added = loss_alone = None
    if in_all_ways and "out" in inspect.signature(backward).parameters:  # the gradient of a large table
        added = torch.ones(gradients[-1].shape, device=device)
        backward(received, cache, out=added)
    if in_all_ways and "with_grad" in inspect.signature(op_forward).parameters:
        loss_alone, _ = op_forward(**named, **options, with_grad=False)
    return Computed(tensors, before, options, received, out, gradients, again, added, loss_alone)


def _allowed(
    peer: Callable[..., Tensor], of: Computed, count: int, expected: Any, wanted: list[Any]
) -> Iterator[float]:
    """Yield what PyTorch's own function in the same dtype is off by, times the factors; at least the rounding."""
    leaves = [tensor.requires_grad_() if tensor.is_floating_point() else tensor for tensor in of.before[:count]]
    floats = [leaf for leaf in leaves if leaf.requires_grad][: len(wanted)]  # not targets that are probabilities
    out = peer(*leaves, **of.options)
    dout = torch.full_like(out, of.received) if isinstance(of.received, float) else of.received
    gradients = torch.autograd.grad(out, floats, dout)
    eps, factor = torch.finfo(floats[0].dtype).eps, OUTPUT_FACTOR
    for found, truth in ((out, expected), *zip(gradients, wanted, strict=True)):
        off = error(_numpy(found), truth)
        yield max(factor * off, eps) if math.isfinite(off) else eps
        factor = GRADIENT_FACTOR


# --- Adam -----------------------------------------------------------------------------------------------------


def _stepped(
    case: Case, dtype: torch.dtype, device: str
) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Return what our Adam made: the norm, three steps, the same with numbers on the device, the narrow copy."""
    arrays = {name: _rounded(array, dtype) for name, array in case.arrays.items()}
    norm = kernels.global_norm(_tensor(arrays["grad"], dtype, device))
    tensors = {name: _tensor(array, torch.float32, device) for name, array in arrays.items()}
    twins = {name: tensor.clone() for name, tensor in tensors.items()}
    shadow = torch.empty_like(tensors["data"], dtype=dtype)
    for step in STEPS:
        kernels.adam_step(*tensors.values(), step=step, **RATES, shadow=shadow)
        numbers = {name: torch.tensor([value], device=device) for name, value in ({"step": step} | RATES).items()}
        kernels.adam_step(*twins.values(), **numbers)
    return norm, tensors, twins, shadow


def _adam_findings(case: Case, dtype: torch.dtype, device: str) -> Iterator[Finding]:
    norm, tensors, twins, shadow = _stepped(case, dtype, device)
    truth = {name: _rounded(array, dtype).copy() for name, array in case.arrays.items()}
    length = float(np.linalg.norm(truth["grad"]))
    yield Finding("the global norm", error(_numpy(norm) / length, np.ones(())), TOLERANCE)
    for step in STEPS:
        reference.adam_step(*truth.values(), step=step, **RATES)
    for name, array in truth.items():
        yield Finding(name, error(_numpy(tensors[name]), array), TOLERANCE)
        _require(torch.equal(tensors[name], twins[name]), f"{name} depends on where step, lr and grad_scale are")
    _require(torch.equal(shadow, tensors["data"].to(dtype)), "the copy is not the data")


# --- Arrays and tensors ---------------------------------------------------------------------------------------


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Refused(otherwise)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether all bits are equal: NaN too is itself."""
    return torch.equal(*(x.flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8) for x in (a, b)))


def _rounded(array: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Return what the dtype can hold of floats, in float64: the reference gets the kernel's numbers."""
    return array if array.dtype.kind != "f" else torch.tensor(array).to(dtype).double().numpy()


def _tensor(value: Any, dtype: torch.dtype | None, device: str) -> Any:
    """Return an array on the device, floats in the dtype, and a weight in few bits; anything else as it is."""
    if isinstance(value, Quantized):
        return on_device(value, device)
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.tensor(value, device=device)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()


def _floats(gradients: Any) -> list:
    return list(gradients) if isinstance(gradients, tuple) else [gradients]
