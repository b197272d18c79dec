"""The rectifier: `y = max(0, x)`, and its gradient `dx = dy · [x > 0]`.

Each is one pass: the forward reads x and writes y; the backward reads dy and y, which the next layer keeps anyway, and
not a mask. Both only move memory. To fuse them with the products beside them would save more, but cuBLAS's products
can't be changed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._checks import check_gradient, kernel
from .launch import on

BLOCK = 2048


@triton.jit
def relu_forward_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    """`y = max(0, x)`; NaN stays NaN."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, index < size, other=0.0)
    tl.store(y_ptr + index, tl.where(x < 0, 0.0, x).to(x.dtype), index < size)


@triton.jit
def relu_backward_kernel(dy_ptr, y_ptr, dx_ptr, size, BLOCK: tl.constexpr):
    """`dx = dy · [y > 0]`."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + index, index < size, other=0.0)
    y = tl.load(y_ptr + index, index < size, other=0.0)
    tl.store(dx_ptr + index, tl.where(y > 0, dy, 0.0).to(dy.dtype), index < size)


@kernel
def relu_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = max(0, x)`, element-wise, for any shape. Source: Vaswani 2017, §3.3, eq. 2."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        with on(x):
            relu_forward_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y, y


@kernel
def relu_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · [x > 0]`; the subgradient at 0 is 0."""
    y = cache
    check_gradient("dy", dy, y.shape, y.dtype, y.device)
    dy = dy.contiguous()
    dx = torch.empty_like(dy)
    if dy.numel():
        with on(dy):
            relu_backward_kernel[(triton.cdiv(dy.numel(), BLOCK),)](dy, y, dx, dy.numel(), BLOCK=BLOCK)
    return dx
