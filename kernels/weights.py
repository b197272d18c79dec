"""Weights of the losses: their check, and what they are to the sums that use them.

They are checked apart from an op's other tensors, since they may be float32 beside narrower ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from minitransformer import ops as reference
from minitransformer.ops.arguments import Declaration, after_check

from .checks import check_kind, check_no_gradients, check_place, check_same, check_tensors

P = ParamSpec("P")
R = TypeVar("R")


def weighted(op: Callable[P, R]) -> Callable[P, R]:
    """Check the tensors of an `op` with weights, one for each row of its first tensor, as `declared` does."""
    declaration: Declaration = getattr(reference, op.__name__).declaration
    others = replace(declaration, arrays=tuple(each for each in declaration.arrays if each.name != "weights"))

    def check(given: Mapping[str, Any]) -> None:
        check_tensors(others, given)
        if (weights := given.get("weights")) is not None:
            first = others.arrays[0].name
            if check_kind("weights", weights).dtype != torch.float32:
                check_same("weights", weights, first, given[first])
            check_place("weights", weights, given[first].shape[:-1], first, given[first].device)

    return after_check(check, op)


def weighted_kernel(op: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of an `op` with weights that launches kernels, as `kernel` does."""

    def check(given: Mapping[str, Any]) -> None:
        check_no_gradients(given)
        for name, tensor in given.items():
            if isinstance(tensor, Tensor) and tensor.dtype == torch.float64:
                raise TypeError(f"{name} is torch.float64, and the kernels compute in float32: use torch_ops")

    return after_check(check, weighted(op))


def flat_weights(
    weights: Tensor | None, targets: Tensor, ignore_index: int | None, dtype: torch.dtype
) -> Tensor | None:
    """Return weights as `(N,)`, 0 where a target does not count: NaN may stand there."""
    if weights is None:
        return None
    flat = weights.detach().reshape(-1).to(dtype)
    # In int64: as uint8, −100 would be class 156.
    return flat if ignore_index is None else torch.where(targets.reshape(-1).long() != ignore_index, flat, 0)


def balanced(x: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return x `(N, C)` with each row times `weight / largest weight`, in its dtype, and the largest; x alone without.

    No weight is so large or so small that this is not a number of float16. `dtable = Σ_i weight_i · dlogits_i · x_i` is
    added up with these rows and then multiplied by the largest.
    """
    if weights is None:
        return x, None
    largest = F.pad(weights.abs(), (0, 1), value=torch.finfo(weights.dtype).tiny).amax()  # of no rows too
    return (x.detach() * (weights / largest)[:, None]).to(x.dtype), largest
