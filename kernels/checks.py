"""Argument checks of the ops over tensors, from the declarations of the ops with the same names in `minitransformer`.

They check shapes, types and devices, which the host knows. Token ids are checked only in host memory: on a GPU a check
would wait for all kernels before it, and the batcher has checked the ids already. For a wrong id on a GPU the kernels
read and write nothing outside a table, and the result is NaN.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from minitransformer import ops as reference
from minitransformer.ops.arguments import (
    Declaration,
    after_check,
    as_float,
    check_ignore_index,
    check_not_negative,
    check_number,
)

FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

EXACT = ("gamma", "beta", "cos", "sin", "state", "total")
"""Parameters, tables and sums that may stay in float32 when activations are narrower."""

P = ParamSpec("P")
R = TypeVar("R")


# --- Decorators -----------------------------------------------------------------------------------------------


def declared(op: Callable[P, R]) -> Callable[P, R]:
    """Check that the tensors of `op` fit the declaration of its namesake in `minitransformer.ops`, on one device."""
    return after_check(partial(check_tensors, getattr(reference, op.__name__).declaration), op)


def refuses_autograd(op: Callable[P, R]) -> Callable[P, R]:
    """Make a tensor that requires a gradient an error: autograd would not know what `op` computes from it.

    Under `torch.no_grad()`, where autograd records nothing, all tensors are accepted.
    """
    return after_check(check_no_gradients, op)


def kernel(op: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of an `op` that launches kernels: as `declared` and `refuses_autograd` do, without float64.

    The kernels would narrow float64 to float32. A backward has no declaration, so it is only checked for autograd.
    """
    declaration = getattr(getattr(reference, op.__name__, None), "declaration", None)

    def check(given: Mapping[str, Any]) -> None:
        check_no_gradients(given)
        if declaration is not None and check_tensors(declaration, given) == torch.float64:
            name = next(argument.name for argument in declaration.arrays if argument.kind == "float")
            raise TypeError(f"{name} is torch.float64, and the kernels compute in float32: use torch_ops")

    return after_check(check, op)


def check_tensors(declaration: Declaration, given: Mapping[str, Any]) -> torch.dtype | None:
    """Raise unless the arguments, by name, are as declared; return the dtype that the floating tensors share.

    A missing argument is left to Python's own error.
    """
    first: tuple[str, Tensor] | None = None  # of all tensors, whose device the others must share
    floats: dict[bool, tuple[str, Tensor]] = {}  # the first of the activations, and of the parameters in `EXACT`
    sizes: dict[str, tuple] = {}
    for argument in declaration.arrays:
        if (name := argument.name) not in given or (argument.optional and given[name] is None):
            continue
        tensor = given[name]
        if argument.or_probabilities and isinstance(tensor, Tensor) and tensor.is_floating_point():
            argument = argument.as_probabilities()
        check_kind(name, tensor, argument.kind)
        first = first or (name, tensor)
        check_device(name, tensor, *first)
        if argument.kind in ("float", "fixed"):
            check_same(name, tensor, *floats.setdefault(name in EXACT, (name, tensor)))
            if tensor.dtype != torch.float32:  # a parameter that is not float32 must have the activations' dtype
                check_same(name, tensor, *floats.get(False, (name, tensor)))
        declaration.check_shape(argument, tuple(tensor.shape), sizes)
    for argument in declaration.arrays:
        if argument.kind == "ids" and argument.name in given and argument.limit in sizes:
            if given[argument.name].is_floating_point():
                check_probabilities(argument.name, given[argument.name])
                continue
            ignored = check_ignore_index(given.get("ignore_index"))
            check_ids(argument.name, given[argument.name], sizes[argument.limit][0], ignored)
    for name, check in declaration.options.items():
        if name in given:
            check(name, given[name])
    return floats[False][1].dtype if False in floats else None


# --- Tensors --------------------------------------------------------------------------------------------------


def check_kind(name: str, tensor: Any, kind: str = "float") -> Tensor:
    """Return `tensor`. Raises `TypeError` unless it is a tensor of the kind: "float", "fixed", "ids" or "mask"."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    dtype = tensor.dtype
    integer = not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    is_float = dtype in FLOAT_DTYPES
    fits = {"float": is_float, "fixed": is_float, "ids": integer, "mask": dtype == torch.bool}
    if not fits[kind]:
        needed = {
            "float": "of a floating dtype",
            "fixed": "of a floating dtype",
            "ids": "an integer tensor",
            "mask": "a boolean tensor",
        }
        raise TypeError(f"{name} must be {needed[kind]}, got {dtype}")
    return tensor


def check_same(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise `TypeError` unless both have the same dtype."""
    if tensor.dtype != other.dtype:
        raise TypeError(f"{other_name} is {other.dtype} and {name} is {tensor.dtype}: types are never mixed")


def check_device(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise `ValueError` unless both are on one device."""
    if tensor.device != other.device:
        raise ValueError(f"{other_name} is on {other.device} and {name} on {tensor.device}, expected one device")


def check_mask(name: str, mask: Any, other_name: str, other: Tensor) -> Tensor:
    """Return `mask`. Raises unless it is a boolean tensor on the other's device."""
    check_device(name, check_kind(name, mask, "mask"), other_name, other)
    return mask


def check_adam(numbers: Mapping[str, Any], beta1: float, beta2: float, eps: float) -> None:
    """Raise `ValueError` as the reference does. Tensors among `numbers` (step, lr, grad_scale) are not checked."""
    step = numbers["step"]
    if not isinstance(step, Tensor) and (step < 1 or step % 1):
        raise ValueError(f"step is {step:g}, expected 1, 2, …: Adam's bias correction divides by 1 − β^step")
    for name in ("lr", "grad_scale"):
        if not isinstance(numbers[name], Tensor):
            check_not_negative(name, numbers[name])
    if max(beta1, beta2) >= 1 or not eps:
        raise ValueError(f"beta1, beta2, eps are {beta1}, {beta2}, {eps}, expected betas below 1 and eps above 0")


def check_no_gradients(given: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a tensor that requires a gradient, if autograd is on."""
    if torch.is_grad_enabled():
        for name, value in given.items():
            if isinstance(value, Tensor) and value.requires_grad:
                raise ValueError(
                    f"{name} requires a gradient, which autograd would lose here: call kernels.functional, "
                    "pass it with .detach(), or call under torch.no_grad()"
                )


def check_place(name: str, tensor: Tensor, shape: Any, other: str, device: torch.device) -> None:
    """Raise `ValueError` unless a tensor has this shape and is on this device, which is that of `other`."""
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(shape)}")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device} and {other} on {device}, expected one device")


def check_gradient(name: str, gradient: Tensor, shape: Any, dtype: torch.dtype, device: torch.device) -> None:
    """Raise unless a received gradient has the shape, the dtype and the device of the output that it belongs to."""
    check_kind(name, gradient)
    if gradient.dtype != dtype:
        raise TypeError(f"{name} is {gradient.dtype} and its output is {dtype}: types are never mixed silently")
    check_place(name, gradient, shape, "its output", device)


def check_ids(name: str, ids: Tensor, limit: int, ignore: int | None = None) -> None:
    """Raise `ValueError` unless ids in host memory are in [0, limit) or equal to `ignore`."""
    if ids.device.type != "cpu" or not ids.numel():
        return
    wide = ids.to(torch.int64)  # PyTorch converts `limit` to the tensor's type before it compares: in uint8, 300 is 44
    outside = (wide < 0) | (wide >= limit)
    if ignore is not None:
        outside &= wide != ignore
    if outside.any():
        raise ValueError(f"{name} holds {ids[outside][0].item()}, expected ids from 0 to {limit - 1}")


def check_probabilities(name: str, tensor: Tensor) -> None:
    """Raise `ValueError` unless numbers in host memory are from 0 to 1, up to rounding."""
    if tensor.device.type == "cpu" and tensor.numel():
        outside = ~((tensor >= 0) & (tensor <= 1 + max(1e-5, torch.finfo(tensor.dtype).eps)))
        if outside.any():
            raise ValueError(f"{name} holds {tensor[outside][0].item()}, expected probabilities from 0 to 1")


def check_out(name: str, out: Tensor | None, shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return `out`, to which a gradient is added. Raises unless shape and device fit and its dtype is wide enough."""
    check_no_gradients({name: out})
    out = check_kind(name, out)
    if torch.promote_types(out.dtype, dtype) != out.dtype:
        raise TypeError(f"{name} is {out.dtype} and the gradient is {dtype}: it would be narrowed silently")
    check_place(name, out, shape, "the gradient", device)
    return out


# --- Options --------------------------------------------------------------------------------------------------


def check_loss_options(label_smoothing: float, ignore_index: int | None) -> int | None:
    """Check the options of both losses; return ignore_index as an `int`."""
    check_number("label_smoothing", label_smoothing, at_least=0.0, at_most=1.0)
    return check_ignore_index(ignore_index)


def check_z_loss(z_loss: float, targets: Tensor) -> float:
    """Return z_loss. Raises `ValueError` if it is below 0, or above 0 beside probabilities."""
    number = as_float("z_loss", z_loss)
    if not 0.0 <= number < math.inf:  # not `check_number`: torch.compile follows no math.isfinite of a float it traces
        raise ValueError(f"z_loss is {number}, expected a finite number of at least 0")
    if z_loss and targets.is_floating_point():
        raise ValueError(f"z_loss is {z_loss} beside probabilities, expected 0: only the loss of classes has one")
    return float(z_loss)


def check_shadow(shadow: Tensor | None, data: Tensor) -> None:
    """Check the copy that Adam keeps of the flat `data` in another dtype."""
    if shadow is not None:
        check_kind("shadow", shadow)
        check_place("shadow", shadow, data.shape, "data", data.device)


def check_key(key: Tensor) -> Tensor:
    """Return a dropout key in device memory. Raises `ValueError` unless it is two int32, the low and the high half."""
    if key.dtype != torch.int32 or tuple(key.shape) != (2,):
        raise ValueError(f"dropout's key is a {key.dtype} tensor of shape {tuple(key.shape)}, expected two int32")
    return key


def check_slopes(name: str, slopes: Tensor, of: str, query: Tensor, batch: int) -> Tensor:
    """Return ALiBi's slopes for B sentences of a query `(…, H, Tq, D)`. Raises unless float32, `(H,)` or `(B, H)`."""
    if check_kind(name, slopes).dtype != torch.float32:
        raise TypeError(f"{name} is {slopes.dtype}, expected torch.float32")
    B, H = batch, query.shape[1]
    if tuple(slopes.shape) not in ((H,), (B, H)):
        raise ValueError(f"{name} has shape {tuple(slopes.shape)}, expected {(H,)} or {(B, H)}")
    check_device(name, slopes, of, query)
    return slopes


def check_rows_numbered(sentence: Tensor, position: Tensor, shape: Any) -> None:
    """Raise `ValueError` unless dropout's coordinates of packed tokens number each row of this shape."""
    for name, numbers in (("sentence", sentence), ("position", position)):
        expected = tuple(shape) if len(shape) == 1 else (torch.Size(shape).numel(),)
        if tuple(numbers.shape) != expected:
            raise ValueError(f"dropout's {name} has shape {tuple(numbers.shape)}, expected {expected}")
