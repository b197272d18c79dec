"""Argument checks of the host wrappers: one clear sentence, naming the argument, what was given and what was expected.

They look at shapes, types and devices, which the host knows. Token ids are looked at only in host memory: on a GPU a
look would wait for everything before it, and the batcher has checked them. What is no id all the same is not followed
there: nothing outside a table is read or written, and NaN says that something is wrong.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from numbers import Integral
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from minitransformer.ops.arguments import check_ignore_index, check_number

FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

P = ParamSpec("P")
R = TypeVar("R")


def refuses_autograd(op: Callable[P, R]) -> Callable[P, R]:
    """`op`, which refuses a tensor that requires a gradient: what a kernel returns is unknown to autograd.

    Under `torch.no_grad()`, where autograd follows nothing, all tensors are taken.
    """
    names = tuple(inspect.signature(op).parameters)

    @wraps(op)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_grad_enabled():
            for name, value in (*zip(names, args, strict=False), *kwargs.items()):
                check_no_gradient(name, value)
        return op(*args, **kwargs)

    return checked


def check_no_gradient(name: str, value: Any) -> None:
    """`ValueError` for a tensor that requires a gradient, where autograd is on."""
    if isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} requires a gradient, which autograd would lose here: pass it with .detach(), "
            "or call under torch.no_grad()"
        )


def check_tensor(name: str, tensor: Any) -> None:
    """`TypeError` for what is no tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")


def check_float(name: str, tensor: Any) -> None:
    """`TypeError` for what is no tensor of a floating dtype."""
    check_tensor(name, tensor)
    if tensor.dtype not in FLOAT_DTYPES:
        raise TypeError(f"{name} must be of a floating dtype, got {tensor.dtype}")


def check_floats(**tensors: Tensor | None) -> torch.dtype:
    """The one floating dtype that all given tensors share, on one device (`None` is passed over).

    Raises `TypeError` for anything but floating tensors and where types are mixed, `ValueError` where devices are.
    """
    first_name, first = "", None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        check_float(name, tensor)
        if first is None:
            first_name, first = name, tensor
        elif tensor.dtype != first.dtype:
            raise TypeError(f"{first_name} is {first.dtype} and {name} is {tensor.dtype}: types are never mixed")
        check_device(name, tensor, first_name, first)
    assert first is not None
    return first.dtype


def check_device(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """`ValueError` unless both are on one device."""
    if tensor.device != other.device:
        raise ValueError(f"{other_name} is on {other.device} and {name} on {tensor.device}, expected one device")


def check_scale_and_shift(x: Tensor, gamma: Tensor, beta: Tensor) -> None:
    """gamma and beta `(C,)` of x `(..., C)`: of x's dtype, or in float32 beside narrower activations."""
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., C) with C ≥ 1")
    check_floats(gamma=gamma, beta=beta)
    if gamma.dtype != torch.float32:
        check_floats(x=x, gamma=gamma)
    for name, tensor in (("gamma", gamma), ("beta", beta)):
        check_device(name, tensor, "x", x)
        check_shape(name, tensor, x.shape[-1:])


def check_shape(name: str, tensor: Tensor, expected: Any) -> None:
    """`ValueError` unless `tensor` has exactly the expected shape: nothing is broadcast silently."""
    if tuple(tensor.shape) != tuple(expected):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(expected)}")


def check_ndim(name: str, tensor: Tensor, ndim: int, meaning: str) -> None:
    """`ValueError` unless `tensor` has `ndim` axes; `meaning` names them, as in `(B, H, Tq, D)`."""
    if tensor.ndim != ndim:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {ndim} axes {meaning}")


def check_rows(name: str, tensor: Tensor) -> None:
    """`ValueError` unless `tensor` has a last axis."""
    if tensor.ndim == 0:
        raise ValueError(f"{name} has shape (), expected at least one axis")


def check_gradient(name: str, gradient: Tensor, shape: Any, dtype: torch.dtype, device: torch.device) -> None:
    """A received gradient must have the shape and the dtype of the output that it belongs to, and be where it is."""
    check_tensor(name, gradient)
    if gradient.dtype != dtype:
        raise TypeError(f"{name} is {gradient.dtype} and its output is {dtype}: types are never mixed silently")
    check_place(name, gradient, shape, "its output", device)


def check_place(name: str, tensor: Tensor, shape: Any, other: str, device: torch.device) -> None:
    """`ValueError` unless a tensor has the shape and is on the device of something else."""
    check_shape(name, tensor, shape)
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device} and {other} on {device}, expected one device")


def check_ids(name: str, ids: Tensor, limit: int, ignore: int | None = None) -> None:
    """Ids must be an integer tensor, and in host memory in [0, limit); `ignore` is let through wherever it lies."""
    if not isinstance(ids, Tensor) or ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
        given = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
        raise TypeError(f"{name} must be an integer tensor, got {given}")
    if ids.device.type != "cpu" or not ids.numel():
        return
    wide = ids.to(torch.int64)  # PyTorch makes a number the tensor's type before it compares: in uint8, 300 is 44
    outside = (wide < 0) | (wide >= limit)
    if ignore is not None:
        outside &= wide != ignore
    if outside.any():
        raise ValueError(f"{name} holds {ids[outside][0].item()}, expected ids from 0 to {limit - 1}")


def check_out(name: str, out: Tensor, shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`out`, a tensor to add a gradient into: of its shape and on its device, of its dtype or a wider one."""
    check_no_gradient(name, out)
    check_float(name, out)
    if torch.promote_types(out.dtype, dtype) != out.dtype:
        raise TypeError(f"{name} is {out.dtype} and the gradient is {dtype}: it would be narrowed silently")
    check_place(name, out, shape, "the gradient", device)
    return out


def check_targets(
    targets: Tensor, beside: Tensor, shape: tuple[int, ...], label_smoothing: float, ignore_index: int | None
) -> int | None:
    """What both losses ask of targets for logits of the given shape, and of the options; ignore_index as an `int`."""
    if not shape or shape[-1] == 0:
        raise ValueError(f"logits has shape {tuple(shape)}, expected (..., V) with V ≥ 1")
    check_number("label_smoothing", label_smoothing, at_least=0.0, at_most=1.0)
    ignore_index = check_ignore_index(ignore_index)
    check_ids("targets", targets, shape[-1], ignore=ignore_index)
    check_shape("targets", targets, shape[:-1])
    check_device("targets", targets, "the data", beside)
    return ignore_index


def check_projection(x: Tensor, table: Tensor) -> None:
    """x `(N, C)` and a table `(V, C)` that projects it on V tokens."""
    if x.ndim != 2 or table.ndim != 2 or x.shape[1] != table.shape[1] or not len(table):
        raise ValueError(f"x has shape {tuple(x.shape)} and table {tuple(table.shape)}, expected (N, C) and (V, C)")


def check_look_up(ids: Tensor, table: Tensor) -> None:
    """Ids `(...)` of a table `(V, C)`, on one device."""
    if table.ndim != 2:
        raise ValueError(f"table has shape {tuple(table.shape)}, expected (V, C)")
    check_ids("ids", ids, len(table))
    check_device("ids", ids, "table", table)


def check_flat(data: Tensor, **others: Tensor | None) -> None:
    """`data` is a flat array `(P,)`, and so are the others."""
    if data.ndim != 1:
        raise ValueError(f"data has shape {tuple(data.shape)}, expected a flat array (P,)")
    for name, tensor in others.items():
        if tensor is not None:
            check_shape(name, tensor, data.shape)


def check_key(key: Tensor) -> Tensor:
    """A dropout key in device memory: its low and its high half, as int32."""
    if key.dtype != torch.int32 or tuple(key.shape) != (2,):
        raise ValueError(f"dropout's key is a {key.dtype} tensor of shape {tuple(key.shape)}, expected two int32")
    return key


def check_mask(name: str, mask: Tensor, shape: Any, other_name: str, other: Tensor) -> None:
    """A boolean tensor of exactly this shape, on the device of another."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"{name} must be a boolean tensor, got {getattr(mask, 'dtype', type(mask).__name__)}")
    check_shape(name, mask, shape)
    check_device(name, mask, other_name, other)


def check_attention(
    query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None, window: int | None, scale: float | None
) -> None:
    """What attention can be given: query `(B, H, Tq, D)`, key `(B, H, Tk, D)`, value `(B, H, Tk, Dv)` and options."""
    check_floats(query=query, key=key, value=value)
    check_ndim("query", query, 4, "(B, H, Tq, D)")
    check_ndim("key", key, 4, "(B, H, Tk, D)")
    check_ndim("value", value, 4, "(B, H, Tk, Dv)")
    batch, heads, _, width = query.shape
    if not width or not value.shape[-1]:
        raise ValueError(f"query {tuple(query.shape)} and value {tuple(value.shape)} need a last axis of at least 1")
    check_shape("key", key, (batch, heads, key.shape[2], width))
    check_shape("value", value, (batch, heads, key.shape[2], value.shape[3]))
    if scale is not None:
        check_number("scale", scale)
    if key_mask is not None:
        check_mask("key_mask", key_mask, (batch, key.shape[2]), "query", query)
    if window is not None:
        if isinstance(window, bool) or not isinstance(window, Integral):
            raise TypeError(f"window must be an integer, got {type(window).__name__}")
        if window < 0:
            raise ValueError(f"window is {window}, expected a distance of 0 or more")
