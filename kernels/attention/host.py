"""The host's side of attention: checks, layouts, and launches of one forward and two backward kernels."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minitransformer.ops import Dropout, Pattern
from minitransformer.ops.pattern import Window, pattern_of

from .._checks import check_gradient, kernel
from ..eager.attention import attention_backward as eager_backward
from ..eager.attention import attention_forward as eager_forward
from ..hashing import is_active, key_arguments
from ..launch import on
from ..tuning import Tile, Tuner, capability
from . import tiles
from .backward import attention_dkey_dvalue_kernel, attention_dquery_kernel
from .blocks import DROPOUT, Heads
from .forward import attention_forward_kernel

TUNED_FROM = 2**33
"""Multiplications, Tq · Tk · (D + Dv) in each head, from which tiles are tuned: about 50 µs of a large GPU. Smaller
problems use the default tile."""

TUNERS = {
    "forward": Tuner(attention_forward_kernel),
    "dquery": Tuner(attention_dquery_kernel),
    "dkey_dvalue": Tuner(attention_dkey_dvalue_kernel),
}


@dataclass(frozen=True)
class Problem:
    """The sizes and options that a forward and its backward share."""

    shape: tuple[int, int, int, int, int, int]  # B, H, Tq, Tk, D, Dv
    dtype: torch.dtype
    device: torch.device
    causal: bool
    key_mask: Tensor | None
    window: Window
    scale: float
    dropout: Dropout | None
    precision: str

    def arguments(self) -> dict[str, Any]:
        """The arguments of every kernel."""
        _, H, Tq, Tk, D, DV = self.shape
        everything = Tq + Tk
        block_d, block_dv = tiles.blocks_of(D, DV)
        sides = self.window if isinstance(self.window, tuple) else (self.window, self.window)
        below, above = (everything if side is None else min(side, everything) for side in sides)
        return {
            "key_mask": self.key_mask,
            "Tq": Tq, "Tk": Tk, "H": H,
            "below": below, "above": 0 if self.causal else above,
            "scale": self.scale,
            "D": tiles.whole(D), "DV": tiles.whole(DV), "BLOCK_D": block_d, "BLOCK_DV": block_dv,
            "PRECISION": self.precision,
            **_dropout_arguments(self.dropout),
        }  # fmt: skip

    def tuning_key(self) -> tuple:
        """Everything that the fastest tile may depend on, with lengths rounded up to a power of 2."""
        _, _, Tq, Tk, D, DV = self.shape
        band = "window" if self.window is not None else "causal" if self.causal else "full"
        lengths = f"{tiles.block_of(Tq)}×{tiles.block_of(Tk)}"
        padding = "no padding" if self.key_mask is None else "padding"
        dropout = "no dropout" if self.dropout is None else "dropout"
        return self.dtype, self.precision, f"D {D}×{DV}", f"T {lengths}", band, padding, dropout, self.device


@kernel
def attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    window: Window = None,
    pattern: Pattern | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout: Dropout | None = None,
    precision: str = "ieee",
) -> tuple[Tensor, tuple]:
    """`softmax(scale · query keyᵀ) value`, with `scale = 1/√D` unless it is given, in memory that grows as T.

    query `(B, H, Tq, D)`, key `(B, H, Tk, D)`, value `(B, H, Tk, Dv)` → `(B, H, Tq, Dv)`, D and Dv from 1 to 256;
    float32, float16 or bfloat16. The options are those of `minitransformer.ops.attention_forward`; `precision="tf32"`
    lets float32 products use tensor cores with 10 bits of mantissa, on NVIDIA's GPUs since the A100.
    Widths that are multiples of 16 need no copies: queries, keys and values are read where they are, and in memory the
    output is `(B, Tq, H, Dv)`, so that merging its heads is a view.
    Grouped heads, a bias, a softcap and the sparse parts of a pattern but its window have no kernel: such a call is
    computed in PyTorch's own arithmetic, `kernels.eager`.
    Keys and values that a mask hides must still be finite: they are multiplied by a weight of 0, and 0 · NaN is NaN.
    Only blocks that no query of a program sees are skipped, and the size of a block depends on the GPU.
    Raises `ValueError` for shapes that do not fit, `TypeError` for mixed or other dtypes.
    Source: Vaswani 2017, §3.2.1, eq. 1; Dao et al. 2022; Dao 2023.
    """
    whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
    sparse = whole.block is not None or whole.stride is not None or whole.global_tokens
    if query.shape[1] != key.shape[1] or bias is not None or softcap is not None or sparse:
        return eager_forward(query, key, value, bias, pattern=whole, scale=scale, softcap=softcap, dropout=dropout)
    problem = _problem(query, value, whole, scale, dropout, precision)
    B, H, Tq, _, _, DV = problem.shape
    out = _empty_heads(B, H, Tq, DV, query)
    lse = torch.empty((B, H, Tq), dtype=torch.float32, device=query.device)
    cache = (problem, _heads(query), _heads(key), _heads(value), _heads(out), lse)
    if out.numel():
        # The kernel finds the largest score before it applies the scale; a negative scale would make it the smallest.
        positive_query = _heads(-query) if problem.scale < 0 else cache[1]
        arguments = problem.arguments() | {"scale": abs(problem.scale)}
        _launch("forward", problem, Tq, positive_query, *cache[2:], **arguments)
    return out[..., :DV], cache


@kernel
def attention_backward(dout: Tensor, cache: tuple) -> tuple[Tensor, ...]:
    """Gradients `(dquery, dkey, dvalue)`, and dbias where a bias was given.

    What the kernels compute is `(B, T, H, width)` in memory, as the output is.
    """
    if not isinstance(cache[0], Problem):
        return eager_backward(dout, cache)
    problem, query, key, value, out, lse = cache
    B, H, Tq, Tk, D, DV = problem.shape
    check_gradient("dout", dout, (B, H, Tq, DV), problem.dtype, problem.device)
    dquery, dkey, dvalue = (_empty_heads(B, H, *shape, dout) for shape in ((Tq, D), (Tk, D), (Tk, DV)))
    delta = torch.empty_like(lse)
    hashes = None if problem.dropout is None else torch.empty(lse.shape, dtype=torch.int32, device=lse.device)
    arguments = problem.arguments()
    received = _heads(dout)
    if dquery.numel():
        _launch(
            "dquery", problem, Tq, query, key, value, out, received, _heads(dquery), lse, delta, hashes, **arguments
        )
    if dkey.numel():
        gradients = _heads(dkey), _heads(dvalue)
        _launch("dkey_dvalue", problem, Tk, query, key, value, received, *gradients, lse, delta, hashes, **arguments)
    return dquery[..., :D], dkey[..., :D], dvalue[..., :DV]


def _launch(name: str, problem: Problem, length: int, *operands: Any, **arguments: Any) -> None:
    """Launch a kernel in which each program owns a block of a sequence of `length`, with the best tile."""
    tuner = TUNERS[name]
    B, H, Tq, Tk, D, DV = problem.shape
    device = capability(problem.device)
    arguments["PRECISION"] = precision = tiles.usable(problem.precision, device, problem.dtype)

    def launch(tile: Tile) -> None:
        rows, columns, num_warps, num_stages = tile
        queries, keys = (columns, rows) if name == "dkey_dvalue" else (rows, columns)
        grid = (-(-length // rows) * B * H,)
        tuner.kernel[grid](
            *operands, **arguments, QUERIES=queries, KEYS=keys, num_warps=num_warps, num_stages=num_stages
        )

    family = tiles.family(device, problem.dtype, precision)
    dropout = problem.dropout is not None
    choices = tiles.candidates(name, family, D, DV, problem.dtype.itemsize, dropout, device.shared_memory)
    with on(operands[0].ptr):
        if B * H * Tq * Tk * (D + DV) < TUNED_FROM:
            launch(tiles.fitted(choices[0], family, length, Tq + Tk - length))
        else:
            launch(tuner(choices, problem.tuning_key(), launch))


# --- Layouts --------------------------------------------------------------------------------------------------


def _heads(x: Tensor) -> Heads:
    """x `(B, H, T, D)` as kernels take it: each row is a multiple of 16 numbers long, and starts at such a multiple.

    Only such rows are loaded 16 bytes at a time. Other rows would be loaded number by number, for which no tile has
    enough registers. So tensors with another layout are copied, with zeros behind each row.
    """
    B, H, T, D = x.shape
    width, steps = tiles.whole(D), x.stride()
    if width != D or steps[3] != 1 or any(step % tiles.SMALLEST for step in steps[:3]) or x.data_ptr() % 16:
        padded = _empty_heads(B, H, T, width, x)
        padded[..., :D], padded[..., D:] = x, 0
        x = padded
    return Heads(x, *x.stride()[:3])


def _empty_heads(B: int, H: int, T: int, width: int, like: Tensor) -> Tensor:
    """An empty `(B, H, T, width)`, the width rounded up to a multiple of 16, in which merging the heads is a view."""
    return torch.empty((B, T, H, tiles.whole(width)), dtype=like.dtype, device=like.device).transpose(1, 2)


def _dropout_arguments(dropout: Dropout | None) -> dict[str, Any]:
    if dropout is None:
        return dict.fromkeys(DROPOUT)
    key = key_arguments(dropout)
    key["dropout_scale"] = key.pop("scale")
    return key | {"sentence": int(dropout.sentence), "position": int(dropout.position)}


# --- The problem ----------------------------------------------------------------------------------------------


def _problem(
    query: Tensor, value: Tensor, pattern: Pattern, scale: float | None, dropout: Dropout | None, precision: str
) -> Problem:
    for name, tensor in (("query", query), ("value", value)):
        if tensor.shape[3] > tiles.WIDEST:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected a last axis from 1 to {tiles.WIDEST}")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"precision is {precision!r}, expected 'ieee' or 'tf32'")
    active = dropout if is_active(dropout) else None
    if active is not None and (np.ndim(active.sentence) or np.ndim(active.position)):
        raise ValueError("dropout numbers each row by arrays, expected the numbers of the first sentence and query")
    key_mask = None if pattern.key_mask is None else pattern.key_mask.contiguous()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    shape = (*query.shape[:3], value.shape[2], query.shape[3], value.shape[3])
    return Problem(shape, query.dtype, query.device, pattern.causal, key_mask, pattern.window, scale, active, precision)
