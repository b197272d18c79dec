"""Rotary positions: pairs of channels of queries and keys turn by the angles of their positions.

Memory limits their speed. Passes over x `(B, H, T, D)`, the heads of queries and keys, of which every channel turns:

    naive     `rope_naive`: the formula in PyTorch's operations. Four products of a half with an angle, 2 reads and 2
              writes; a difference and a sum, 2 reads and 1 write; both halves put together, 1 read and 1 write: 9
    fused     x is read and y is written: 2 passes, which is the least. Channels beyond the first R are copied on the
              way. The backward is the rotation by the opposite angle, the same kernel on dy: 2 passes; x is not kept

x is read where it lies, so that queries and keys may be a part of a projection's rows; in memory y is `(B, T, H, D)`:
attention takes its heads where they are, and merging them is a view. So neither the split of the projection nor the
merge costs a pass. A program turns several heads of several positions, and loads each angle once for all its heads.
Two halves are two loads; neighbours are loaded side by side, as they lie, and taken apart in registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from minitransformer.ops.rope import check_angles, pairs_of

from .checks import check_gradient, kernel
from .launch import on, row_block, row_warps
from .rows import TILE

WIDEST = TILE // 2
"""The most pairs, or channels that stay, of a block; wider heads are taken block by block."""


@triton.jit(do_not_specialize=["T"])
def rope_kernel(
    x_ptr, cos_ptr, sin_ptr, y_ptr, T, H, stride_b, stride_h, stride_t, stride_d, cos_t, cos_pair, sin_t, sin_pair,
    D: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr, BACKWARD: tl.constexpr,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_REST: tl.constexpr,
):  # fmt: skip
    """Turn some heads of some positions of a sentence: x `(B, H, T, D)` of any strides to y `(B, T, H, D)`."""
    blocks, groups = tl.cdiv(T, TOKENS), H // HEADS
    place = tl.program_id(0) // groups
    sentence = (place // blocks).to(tl.int64)
    t = place % blocks * TOKENS + tl.arange(0, TOKENS)[:, None, None]  # (T, 1, 1)
    here = t < T
    t = t.to(tl.int64)
    head = (tl.program_id(0) % groups).to(tl.int64) * HEADS + tl.arange(0, HEADS)[None, :, None]  # (1, H, 1)
    x_ptr += sentence * stride_b + head * stride_h + t * stride_t  # (T, H, 1)
    y_ptr += ((sentence * T + t) * H + head) * D
    for start in range(0, PAIRS, BLOCK):
        pair = channels(start, BLOCK)
        mask = here if PAIRS % BLOCK == 0 else here & (pair < PAIRS)
        cos = load(cos_ptr + t * cos_t + pair * cos_pair, mask)  # (T, 1, R/2)
        sin = load(sin_ptr + t * sin_t + pair * sin_pair, mask)
        if BACKWARD:
            sin = -sin
        if INTERLEAVED:
            channel = channels(2 * start, 2 * BLOCK)
            mask = here if PAIRS % BLOCK == 0 else here & (channel < 2 * PAIRS)
            neighbours = load(x_ptr + channel * stride_d, mask)  # (T, H, R)
            a, b = tl.split(neighbours.reshape(TOKENS, HEADS, BLOCK, 2))  # (T, H, R/2)
            turned = tl.join(a * cos - b * sin, b * cos + a * sin)
            store(y_ptr + channel, turned.reshape(TOKENS, HEADS, 2 * BLOCK), mask)
        else:
            a = load(x_ptr + pair * stride_d, mask)  # (T, H, R/2)
            b = load(x_ptr + (PAIRS + pair) * stride_d, mask)
            store(y_ptr + pair, a * cos - b * sin, mask)
            store(y_ptr + PAIRS + pair, b * cos + a * sin, mask)
    for start in range(2 * PAIRS, D, BLOCK_REST):
        channel = channels(start, BLOCK_REST)
        mask = here if (D - 2 * PAIRS) % BLOCK_REST == 0 else here & (channel < D)
        tl.store(y_ptr + channel, tl.load(x_ptr + channel * stride_d, mask), mask)


@triton.jit
def channels(start, BLOCK: tl.constexpr):
    """Return the numbers of a block of channels or of pairs, in 64 bits: `(1, 1, C)`."""
    return (start + tl.arange(0, BLOCK)[None, None, :]).to(tl.int64)


@triton.jit
def load(pointers, mask):
    """Load numbers in float32."""
    return tl.load(pointers, mask, other=0.0).to(tl.float32)


@triton.jit
def store(pointers, values, mask):
    """Write values in the array's own dtype."""
    tl.store(pointers, values.to(pointers.dtype.element_ty), mask)


@kernel
def rope_forward(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> tuple[Tensor, tuple]:
    """Turn each pair of the first R channels, `(a, b) → (a·cos − b·sin, b·cos + a·sin)`; the others stay.

    x `(B, H, T, D)`, cos and sin `(T, R/2)` with R ≤ D, in x's dtype or in float32. Pairs are channels i and i + R/2
    (halves) or, `interleaved`, 2i and 2i + 1 (neighbours). All may have any strides; in memory y is `(B, T, H, D)`, so
    that merging its heads is a view. Raises `ValueError` for shapes that do not fit and for R > D, `TypeError` for
    float64 and for mixed dtypes. Source: Su et al. 2021, eq. 34.
    """
    check_angles(tuple(cos.shape), tuple(x.shape))
    return _turned(x, cos, sin, interleaved), (cos, sin, interleaved, x.shape, x.dtype)


@kernel
def rope_backward(dy: Tensor, cache: tuple) -> Tensor:
    """Return the gradient dx: dy turned back. A rotation's transpose is the rotation by the opposite angle."""
    cos, sin, interleaved, shape, dtype = cache
    check_gradient("dy", dy, shape, dtype, cos.device)
    return _turned(dy, cos, sin, interleaved, backward=True)


def rope_naive(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Compute the rotation in PyTorch's operations: the first step."""
    first, second = pairs_of(cos.shape[1], interleaved)
    a, b = x[..., first], x[..., second]  # (B, H, T, R/2)
    halves = [a * cos - b * sin, b * cos + a * sin]  # each time: two products, then a difference or a sum
    turned = torch.stack(halves, dim=-1).flatten(-2) if interleaved else torch.cat(halves, dim=-1)  # (B, H, T, R)
    rest = x[..., turned.shape[-1] :]
    return (torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned).to(x.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, backward: bool = False) -> Tensor:
    (B, H, T, D), pairs = x.shape, cos.shape[1]
    y = torch.empty((B, T, H, D), dtype=x.dtype, device=x.device).transpose(1, 2)
    if y.numel():
        block, block_rest = row_block(pairs, WIDEST), row_block(D - 2 * pairs, WIDEST)
        row = max(2 * block, block_rest)
        heads = min(H & -H, TILE // row)  # a power of two that divides H, so that no head needs a mask
        tokens = min(TILE // (row * heads), row_block(T, TILE))
        sizes = {"TOKENS": tokens, "HEADS": heads, "BLOCK": block, "BLOCK_REST": block_rest}
        grid = (B * triton.cdiv(T, tokens) * (H // heads),)
        with on(x):
            rope_kernel[grid](
                x, cos, sin, y, T, H, *x.stride(), *cos.stride(), *sin.stride(), D=D, PAIRS=pairs,
                INTERLEAVED=interleaved, BACKWARD=backward, **sizes, num_warps=row_warps(tokens * heads * row),
            )  # fmt: skip
    return y
