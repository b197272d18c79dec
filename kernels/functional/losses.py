"""Cross-entropy, and the output projection with its loss in one."""

import math
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from minitransformer.ops import Pair

from ..checks import check_z_loss
from ..eager.cross_entropy import BLOCK_LOGITS
from .operators import Kept, in_autocast_dtype, in_float32, is_seen, named, operator, runs_in_torch


def _scalar(x: Tensor, *_: object) -> Tensor:
    return x.new_empty((), dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)


def _cross_entropy_kept() -> Kept:
    from ..launch import rows_of
    from ..soft_cross_entropy import TowardsProbabilities

    def tensors(cache: tuple) -> list[Tensor]:
        if isinstance(cache, TowardsProbabilities):
            return [cache.highest, cache.ratio]
        return list(cache[2:5])  # the maxima, the sums, (mean, count)

    def like(logits: Tensor, targets: Tensor, *_: object) -> list[Tensor]:
        rows = math.prod(logits.shape[:-1])  # Size.numel() would compile again for every length
        if targets.is_floating_point():
            return [logits.new_empty((rows,), dtype=torch.float32) for _ in range(2)]
        return [logits.new_empty(shape, dtype=torch.float32) for shape in ((rows,), (rows,), (2,))]

    def cache(
        kept: list[Tensor],
        logits: Tensor,
        targets: Tensor,
        label_smoothing: float,
        ignore_index: int | None,
        z_loss: float,
    ) -> tuple:
        if targets.is_floating_point():
            highest, ratio = kept
            probabilities = rows_of(targets)
            rows = rows_of(logits)
            return TowardsProbabilities(rows, probabilities, highest, ratio, label_smoothing, logits.shape, None)
        ids = targets.reshape(-1).contiguous()
        return rows_of(logits), ids, *kept, logits.shape, label_smoothing, ignore_index, z_loss, None

    return Kept(tensors, like, cache)


def _linear_cross_entropy_kept(triton: bool) -> Kept:
    """Keep the gradients dx and dtable, which the forward computes, and the count, by which the backward divides."""

    def tensors(cache: tuple | None) -> list[Tensor]:
        return [] if cache is None else list(cache[:3])

    def like(x: Tensor, table: Tensor, *options: object) -> list[Tensor]:
        if not options[-2]:  # with_grad
            return []
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        count = x.new_empty(2 if triton else (), dtype=wide)  # the kernel's follows the mean
        return [x.new_empty(x.shape), table.new_empty(table.shape, dtype=wide), count]

    def cache(kept: list[Tensor], x: Tensor, table: Tensor, *options: object) -> tuple | None:
        return (*kept, table.dtype, None) if kept else None

    return Kept(tensors, like, cache)


def _each_loss(cross_entropy: Pair) -> Pair:
    """Make cross-entropy with a loss for each target; the gradients of the losses are the weights of their sum."""
    module = import_module(cross_entropy.forward.__module__)
    return Pair(module.each_loss_forward, module.each_loss_backward)


def _each_linear_loss(linear_cross_entropy: Pair) -> Pair:
    """Make the fused op with a loss for each target.

    What weighs the gradients of the losses is known only in the backward, which computes the logits again.
    """
    each_loss = import_module(linear_cross_entropy.forward.__module__).each_linear_loss

    def forward(*inputs: Any) -> tuple[Tensor, tuple]:
        return each_loss(*inputs), inputs

    def backward(dlosses: Tensor, cache: tuple) -> tuple[Tensor, Tensor]:
        x, table, targets, label_smoothing, ignore_index, z_loss = cache
        options = {"z_loss": z_loss, "weights": dlosses.contiguous()}
        _, found = linear_cross_entropy.forward(x, table, targets, label_smoothing, ignore_index, **options)
        return linear_cross_entropy.backward(found[2].reshape(-1)[-1], found)  # the count, by which the pair divides

    return Pair(forward, backward)


def _losses_like(logits: Tensor, *_: object) -> Tensor:
    return logits.new_empty(logits.shape[:-1], dtype=_scalar(logits).dtype)


_cross_entropy = operator(
    "cross_entropy",
    "Tensor logits, Tensor targets, float label_smoothing, int? ignore_index, float z_loss",
    ["logits"], _scalar, kept={"triton": _cross_entropy_kept},
)  # fmt: skip
_each_cross_entropy = operator(
    "each_cross_entropy", "Tensor logits, Tensor targets, float label_smoothing, int? ignore_index, float z_loss",
    ["logits"], _losses_like, kernel="cross_entropy", pair_of=_each_loss, kept={"triton": _cross_entropy_kept},
)  # fmt: skip
_linear_cross_entropy = operator(
    "linear_cross_entropy",
    "Tensor x, Tensor table, Tensor targets, float label_smoothing, int? ignore_index, bool with_grad, float z_loss",
    ["x", "table"], _scalar,
    kept={name: partial(_linear_cross_entropy_kept, name == "triton") for name in ("triton", "eager")},
)  # fmt: skip
_each_linear_cross_entropy = operator(
    "each_linear_cross_entropy",
    "Tensor x, Tensor table, Tensor targets, float label_smoothing, int? ignore_index, float z_loss",
    ["x", "table"], _losses_like, kernel="linear_cross_entropy", pair_of=_each_linear_loss,
    kept=dict.fromkeys(("triton", "eager"), lambda: Kept(lambda cache: [], lambda *_: [], lambda _, *inputs: inputs)),
)  # fmt: skip


@named
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    z_loss: float = 0.0,
) -> Tensor:
    """Cross-entropy, `−Σ_v q_v log softmax(input)_v` averaged over the targets that count, as `F.cross_entropy`.

    input `(C,)`, `(N, C)` or `(N, C, d1, …)`; target the classes `()`, `(N,)` or `(N, d1, …)`, or probabilities in the
    input's shape; the loss is float32. `reduction="sum"` adds the losses up; `"none"` returns each, in the shape of
    the classes, 0 for a target that does not count. The loss is 0 if no target counts. A z_loss adds
    `z_loss · (log Σ_v exp input_v)²` to the loss of each class (PaLM's is 1e-4).
    Raises `ValueError` for class weights, for `reduction`'s deprecated forms, for a z_loss beside probabilities, and
    for probabilities that require a gradient.
    """
    _check_options(weight, reduction, ("mean", "sum", "none"))
    check_z_loss(z_loss, target)
    for name, value in {"size_average": size_average, "reduce": reduce}.items():
        if value is not None:
            raise ValueError(f"{name} is given, expected None: PyTorch has deprecated it, and takes reduction")
    if target.requires_grad:
        raise ValueError("target requires a gradient, and the loss has none for it: pass it with .detach()")
    (input,) = in_float32(input)
    axis = min(1, input.ndim - 1)
    logits, ignored = input.movedim(axis, -1), ignore_index  # (N, d1, …, C)
    if target.is_floating_point():
        if target.shape != input.shape:
            raise ValueError(f"target has shape {tuple(target.shape)}, expected probabilities {tuple(input.shape)}")
        target, ignored = target.movedim(axis, -1).to(input.dtype), None
    elif target.shape != logits.shape[:-1]:
        raise ValueError(f"target has shape {tuple(target.shape)}, expected classes {tuple(logits.shape[:-1])}")
    elif runs_in_torch(input) and not z_loss:
        loss = _torchs(input, target, ignore_index, reduction, label_smoothing)
        if loss is not None:
            return loss
    if reduction == "none":
        return _each_cross_entropy(logits, target, label_smoothing, ignored, z_loss)
    return _reduced(_cross_entropy(logits, target, label_smoothing, ignored, z_loss), target, ignored, reduction)


@named
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: None = None,
    weight: None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: None = None,
    z_loss: float = 0.0,
) -> Tensor:
    """`cross_entropy(input @ linear_weightᵀ, target)` without all logits at once, as `F.linear_cross_entropy`.

    input `(..., C)`, linear_weight `(V, C)`, target the classes `(...)` → a float32 scalar, or with `reduction="none"`
    each loss `(...)`. If a gradient is needed, the forward computes it already; of `"none"` the backward does, from
    logits that it computes again. An ignore_index of `None` is −100, z_loss is `cross_entropy`'s. Raises `ValueError`
    as `cross_entropy` does, for a bias, and for options, with which PyTorch divides its work.
    """
    _check_options(weight, reduction, ("mean", "sum", "none"))
    check_z_loss(z_loss, target)
    if linear_bias is not None:
        raise ValueError("linear_bias is given, expected None: the projection has no bias")
    if options is not None:
        raise ValueError("options is given, expected None: how many logits there are at a time is chosen here")
    ignore_index = -100 if ignore_index is None else ignore_index
    if target.is_floating_point():
        raise TypeError(f"target is {target.dtype}, expected classes: for probabilities use cross_entropy")
    if target.shape != input.shape[:-1]:
        raise ValueError(f"target has shape {tuple(target.shape)}, expected classes {tuple(input.shape[:-1])}")
    x, table = in_autocast_dtype(input, linear_weight)
    fits = x.dtype == table.dtype and table.ndim == 2 and x.shape[-1] == table.shape[1] and not z_loss
    target = target.reshape(-1)
    if fits and target.numel() * len(table) <= BLOCK_LOGITS and runs_in_torch(x):  # one block, as in `kernels.eager`
        logits = F.linear(x.reshape(-1, x.shape[-1]), table)
        loss = _torchs(logits, target, ignore_index, reduction, label_smoothing)
        if loss is not None:
            return loss.reshape(input.shape[:-1]) if reduction == "none" else loss
    with_grad = torch.is_grad_enabled() and (x.requires_grad or table.requires_grad)
    rows = x.reshape(-1, x.shape[-1])
    if reduction == "none":
        losses = _each_linear_cross_entropy(rows, table, target, label_smoothing, ignore_index, z_loss)
        return losses.reshape(input.shape[:-1])
    loss = _linear_cross_entropy(rows, table, target, label_smoothing, ignore_index, with_grad, z_loss)
    return _reduced(loss, target, ignore_index, reduction)


def _torchs(input: Tensor, target: Tensor, ignore_index: int, reduction: str, label_smoothing: float) -> Tensor | None:
    """Return PyTorch's own loss, in float32 at least, 0 if no target counts; None for inputs that the pair refuses."""
    if not input.numel() or not 0 <= label_smoothing <= 1:
        return None
    wide, ids = input if input.dtype.itemsize >= 4 else input.float(), target.long()
    loss = partial(F.cross_entropy, wide, ids, ignore_index=ignore_index, label_smoothing=label_smoothing)
    try:
        if reduction == "mean" and not is_seen("cross_entropy", input) and not (mean := loss()).isnan():
            return mean
        losses = loss(reduction="none" if reduction == "none" else "sum")
    except IndexError:  # the pair's own error names the class
        return None
    return losses if reduction != "mean" else losses / _count(ids, ignore_index).clamp(min=1)


def _check_options(weight: object, reduction: str, known: tuple[str, ...]) -> None:
    if weight is not None:
        raise ValueError("weight is given, expected None: the kernels count all classes alike")
    if reduction not in known:
        raise ValueError(f"reduction is {reduction!r}, expected one of {', '.join(map(repr, known))}")


def _reduced(mean: Tensor, target: Tensor, ignore_index: int | None, reduction: str) -> Tensor:
    """Return the mean itself, or the sum of the losses."""
    if reduction == "mean":
        return mean
    if ignore_index is None:  # probabilities: every row counts
        return mean * math.prod(target.shape[:-1])
    return mean * _count(target, ignore_index)


def _count(target: Tensor, ignore_index: int) -> Tensor:
    """Return the number of targets that count."""
    return (target.long() != ignore_index).sum()  # as uint8, −100 would be class 156
