"""The affine map whose weight is in eight or four bits: see `minitransformer.ops.quantized`."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from minitransformer.ops.quantized import AT_ONCE, LINEAR, Quantized, check_quantized

from ..checks import after_check, check_gradient, check_ids, check_kind, check_tensors


def on_device(weight: Quantized, device: Any) -> Quantized:
    """Return a `Quantized` of NumPy's as one of tensors on this device, which the pair below takes."""
    return weight.mapped(lambda each: torch.as_tensor(each, device=device))


def columns(weight: Quantized) -> Iterator[tuple[slice, Tensor]]:
    """Yield a few columns after the other: which they are, and they themselves as rows, `(columns, C_in)`, float32."""
    width_in, width_out = weight.shape
    count = max(1, AT_ONCE // max(1, width_in))
    for start in range(0, width_out, count):
        part = slice(start, min(start + count, width_out))
        yield part, _rows(weight, part)


def _rows(weight: Quantized, which: Any) -> Tensor:
    """Return the columns that an index chooses, each as a row `(..., C_in)`, in float32."""
    q = weight.packed[which]
    if weight.bits == 4:
        q = torch.cat([q & 15, q >> 4], dim=-1)  # (..., groups, group)
    rows = q.float()
    if weight.bits == 4 and weight.zeros is None:
        rows -= 8
    rows *= weight.scales[which][..., None].float()  # d·q, rounded before m is added, as in NumPy
    if weight.zeros is not None:
        rows += weight.zeros[which][..., None].float()
    return rows.reshape(*rows.shape[:-2], weight.shape[0])


def quantized_rows(weight: Quantized, ids: Tensor) -> Tensor:
    """Rows of the table `(V, C)` held as a weight `(C, V)`: ids `(...)` → `(..., C)`, NaN for a wrong id on a GPU."""
    check_ids("ids", ids, weight.shape[1])
    ids = ids.to(torch.int64)  # PyTorch takes uint8 for a mask
    known = (ids >= 0) & (ids < weight.shape[1])  # the host does not check ids on a GPU
    return _rows(weight, torch.where(known, ids, 0)).masked_fill_(~known[..., None], torch.nan)


def check_call(given: Mapping[str, Any]) -> None:
    """Check a call as `linear_forward`'s: a tensor of the weight's shape, without memory, stands for it."""
    if given.keys() >= {"x", "weight"}:
        x, weight = check_kind("x", given["x"]), given["weight"]
        check_quantized("weight", weight, partial(check_kind, kind="ids"))
        stand_in = torch.empty((), dtype=x.dtype, device=weight.packed.device)
        check_tensors(LINEAR, {**given, "weight": stand_in.expand(weight.shape)})


@partial(after_check, check_call)
def quantized_linear_forward(x: Tensor, weight: Quantized, bias: Tensor | None) -> tuple[Tensor, tuple]:
    """`y = x @ dequantize(weight) + bias`; x `(..., C_in)`, weight `on_device`, bias `(C_out,)` or `None`."""
    rows = x.reshape(x.shape[:-1].numel(), x.shape[-1])  # (N, C_in)
    y = x.new_empty(len(rows), weight.shape[1])
    for part, block in columns(weight):  # (columns, C_in)
        y[:, part] = rows @ block.to(x.dtype).mT
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], weight.shape[1]), (weight, bias is not None, x.shape, x.dtype)


def quantized_linear_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor | None]:
    """Gradients `(dx, dbias)`: `dx = dy @ dequantize(weight)ᵀ`, `dbias = Σ dy`. The weight has none."""
    weight, has_bias, shape, dtype = cache
    check_gradient("dy", dy, (*shape[:-1], weight.shape[1]), dtype, weight.packed.device)
    dy = dy.reshape(shape[:-1].numel(), weight.shape[1])  # (N, C_out)
    dx = torch.zeros(len(dy), shape[-1], dtype=torch.promote_types(dtype, torch.float32), device=dy.device)
    for part, block in columns(weight):
        dx += dy[:, part] @ block.to(dtype)  # y[:, part] = rows @ block.T; summed in float32
    return dx.reshape(shape).to(dtype), dy.sum(0) if has_bias else None
