"""Activations, alone and gated: relu, gelu, silu, and `gated`, which is `activation(gate) · up`.

They compute little for each number, so memory limits their speed. Passes over an array of gated:

    naive     `gated_naive`: PyTorch's activation, then its product with up: 2 reads and 1 write of the activation
              beside 1 + 1, 5 passes. For the backward autograd keeps gate, up and the activation
    fused     gate and up are read and y is written: 3 passes. The backward reads dy, gate and up, computes the
              activation again, and writes dgate and dup: 5 passes, and only gate and up are kept

Where gate and up are the halves of one projection's rows, dgate and dup are the halves of one array: the projection's
backward needs them joined, and a copy would be 4 passes more.

An activation alone is one pass each way: forward 1 + 1, backward 2 + 1. All are one kernel, since they differ only in a
line or two of arithmetic. Rows need not touch in memory.

One saving is left: in the epilogue of the product before it, relu's forward would cost no pass. That is 2.5 % of a
training step of the paper's base on an H200, by its machine code. But PyTorch's interface to that epilogue is private,
and linear and relu would have to be one op in every table.

gelu needs Φ(x). In float32 it is `½ + ½ erf(x/√2)`, which takes 37 instructions for each element (sm_90): they are
hidden while memory moves elements of 4 bytes, but not in half precision. There `normal_below` computes Φ: 21
instructions instead of 38, and in the backward, whose slope needs the same exponential, 26 instead of 50.

tanh is never computed: `(1 + tanh(u)) / 2 = σ(2u)`, so gelu's approximation is `x · σ(2u)`, as silu is `x · σ(x)`. σ is
computed from `e^−|x|`, which never overflows, and without a difference that would cancel.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .checks import check_gradient, kernel
from .eager.arrays import side_by_side
from .launch import blocks_of_rows, on_quietly, rows_of
from .rows import exp

ELEMENTS = 2048
"""Elements that a program works on: 16 for each of 128 threads."""


@triton.jit
def activated(x, ACTIVATION: tl.constexpr, NARROW: tl.constexpr):
    """Return the activation of a float32 x and its slope there. The compiler drops the one that is not used.

    NARROW: x was loaded in half precision, as y will be stored.
    """
    if ACTIVATION == "relu":
        y = tl.where(x < 0, 0.0, x)  # NaN stays NaN
        slope = tl.where(x > 0, 1.0, 0.0)
    elif ACTIVATION == "sigmoid":
        y = sigmoid(x)
        slope = y * (1 - y)
    elif ACTIVATION == "silu":
        below = sigmoid(x)
        y = x * below
        slope = below + y * (1 - below)
    elif ACTIVATION == "gelu":
        if NARROW:
            below = normal_below(x)
        else:
            below = 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)  # √½
        y = x * below
        slope = below + x * bell(x) * 0.3989422804014327  # 1/√(2π)
    else:
        tl.static_assert(ACTIVATION == "gelu_tanh")
        below = sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x))  # 2 √(2/π)
        y = x * below
        product = y * (1 - below)  # 0 for a large x: it comes first, so that x³ never overflows
        slope = below + 1.5957691216057308 * (product + 0.134145 * (product * x) * x)  # 3 · 0.044715
    return y, slope


@triton.jit
def normal_below(x):
    """Return Φ(x), the probability that a standard normal number is below x, for half precision: off by at most 1e-6.

    Below −3 it keeps more digits than `½ + ½ erf(x/√2)`, which cancels: at −5 its relative error is 1/600, not 1/20.
    Source: Hastings' formula (Abramowitz and Stegun 1964, 26.2.17).
    """
    root = tl.rsqrt(1 + 0.23164190 * tl.abs(x))
    t = root * root  # the quotient, without a branch for the largest divisors
    series = 0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
    above = t * series * bell(x)  # Φ(−|x|)
    return tl.where(x < 0, above, 1 - above)


@triton.jit
def bell(x):
    """`e^(−x²/2)`."""
    return tl.exp2(x * x * -0.7213475204444817)  # ½ log₂e


@triton.jit
def sigmoid(x):
    """`1 / (1 + e⁻ˣ)`, which is `e^x / (e^x + 1)`."""
    small = exp(-tl.abs(x))
    return tl.where(x < 0, small, 1.0) / (1 + small)


@triton.jit(do_not_specialize=["num_rows"])
def activation_forward_kernel(
    x_ptr, up_ptr, y_ptr, num_rows, width, stride_x, stride_up,
    ACTIVATION: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write `y = activation(x)`, times up if there is one, for a block of rows and channels `(N, C)`."""
    row, channel, mask = block_of_rows(num_rows, width, ROWS, BLOCK)
    x = load_block(x_ptr, stride_x, row, channel, mask)
    y, _ = activated(x, ACTIVATION, x_ptr.dtype.element_ty != tl.float32)
    if up_ptr is not None:
        y *= load_block(up_ptr, stride_up, row, channel, mask)
    store_block(y_ptr, width, row, channel, mask, y)


@triton.jit(do_not_specialize=["num_rows"])
def activation_backward_kernel(
    dy_ptr, x_ptr, up_ptr, dx_ptr, dup_ptr, num_rows, width, stride_dy, stride_x, stride_up, stride_dx, stride_dup,
    ACTIVATION: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write dx, and dup if there is an up, for a block of rows and channels `(N, C)`."""
    row, channel, mask = block_of_rows(num_rows, width, ROWS, BLOCK)
    x = load_block(x_ptr, stride_x, row, channel, mask)
    y, slope = activated(x, ACTIVATION, x_ptr.dtype.element_ty != tl.float32)
    dy = load_block(dy_ptr, stride_dy, row, channel, mask)
    if up_ptr is not None:
        store_block(dup_ptr, stride_dup, row, channel, mask, dy * y)
        dy *= load_block(up_ptr, stride_up, row, channel, mask)
    store_block(dx_ptr, stride_dx, row, channel, mask, dy * slope)


@triton.jit
def block_of_rows(num_rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return this program's rows `(R, 1)` and channels `(1, C)`, in 64 bits, and their mask `(R, C)`."""
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    channel = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    return row, channel, (row < num_rows) & (channel < width)


@triton.jit
def load_block(ptr, stride, row, channel, mask):
    """Load a block of an `(N, C)` array in float32."""
    return tl.load(ptr + row * stride + channel, mask, other=0.0).to(tl.float32)


@triton.jit
def store_block(ptr, stride, row, channel, mask, values):
    """Write a block in the array's own dtype."""
    tl.store(ptr + row * stride + channel, values.to(ptr.dtype.element_ty), mask)


@kernel
def relu_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = max(0, x)`, element-wise, for any shape. Source: Vaswani 2017, §3.3, eq. 2."""
    y = _forward("relu", x)
    return y, y


@kernel
def relu_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · [x > 0]`; the subgradient at 0 is 0. It needs only y, which the next layer keeps anyway."""
    return _backward("relu", dy, cache)[0]


@kernel
def gelu_forward(x: Tensor, approximate: str = "none") -> tuple[Tensor, tuple]:
    """`y = x · Φ(x)`, element-wise: Φ(x) is the probability that a standard normal number is below x.

        approximate="none"    Φ(x) = (1 + erf(x / √2)) / 2
        approximate="tanh"    Φ(x) ≈ (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2

    Raises `ValueError` for another `approximate`, `TypeError` for float64 and for integers.
    Source: Hendrycks & Gimpel 2016, §2.
    """
    activation = "gelu_tanh" if approximate == "tanh" else "gelu"
    return _forward(activation, x), (activation, x)


@kernel
def gelu_backward(dy: Tensor, cache: tuple) -> Tensor:
    """`dx = dy · (Φ(x) + x Φ′(x))`, with Φ computed again."""
    activation, x = cache
    return _backward(activation, dy, x)[0]


@kernel
def silu_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """`y = x · σ(x)`, element-wise, with `σ(x) = 1 / (1 + e⁻ˣ)`. Source: Hendrycks & Gimpel 2016, §2."""
    return _forward("silu", x), x


@kernel
def silu_backward(dy: Tensor, cache: Tensor) -> Tensor:
    """`dx = dy · (σ(x) + x σ(x) (1 − σ(x)))`, with σ computed again."""
    return _backward("silu", dy, cache)[0]


@kernel
def gated_forward(gate: Tensor, up: Tensor, activation: str = "silu") -> tuple[Tensor, tuple]:
    """`y = activation(gate) · up`, element-wise; gate and up `(..., F)`, which may be halves of one projection.

    `activation`: `"silu"` (SwiGLU), `"gelu"` or `"gelu_tanh"` (GEGLU), `"relu"` (ReGLU), `"sigmoid"` (GLU). Raises
    `ValueError` for another one or for shapes that differ, `TypeError` for float64 and for integers.
    Source: Shazeer 2020, eqs. 5 and 6; Dauphin et al. 2017 (GLU).
    """
    halves = side_by_side([gate, up]) is not None
    return _forward(activation, gate, up), (activation, gate, up, halves)


@kernel
def gated_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor]:
    """Gradients `(dgate, dup)`: `dy · up · activation′(gate)` and `dy · activation(gate)`, computed again.

    They are halves of one array where gate and up are.
    """
    dgate, dup = _backward(cache[0], dy, *cache[1:])
    assert dup is not None
    return dgate, dup


def gated_naive(gate: Tensor, up: Tensor) -> Tensor:
    """Compute SwiGLU in PyTorch's operations: the first step."""
    activation = torch.nn.functional.silu(gate)  # reads gate, writes
    return activation * up  # reads both, writes


def _forward(activation: str, x: Tensor, up: Tensor | None = None) -> Tensor:
    """`activation(x)`, times up if there is one."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        (x_rows, up_rows), strides, (num_rows, width) = _as_rows(x, up)
        (tall, wide), options = blocks_of_rows(num_rows, width, ELEMENTS)
        with on_quietly(x):
            activation_forward_kernel[(tall * wide,)](
                x_rows, up_rows, y, num_rows, width, *strides, ACTIVATION=activation, **options
            )
    return y


def _backward(
    activation: str, dy: Tensor, x: Tensor, up: Tensor | None = None, halves: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of x and of up, in memory of their own or as halves of one array."""
    check_gradient("dy", dy, x.shape, x.dtype, x.device)
    if halves:
        dx, dup = x.new_empty((*x.shape[:-1], 2 * x.shape[-1])).tensor_split(2, -1)
    else:
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        dup = None if up is None else torch.empty_like(dx)
    if x.numel():
        rows, strides, (num_rows, width) = _as_rows(dy, x, up, dx, dup)
        (tall, wide), options = blocks_of_rows(num_rows, width, ELEMENTS)
        with on_quietly(x):
            activation_backward_kernel[(tall * wide,)](
                *rows, num_rows, width, *strides, ACTIVATION=activation, **options
            )
    return dx, dup


def _as_rows(*tensors: Tensor | None) -> tuple[list[Tensor | None], list[int], tuple[int, int]]:
    """Return tensors of one shape as `(N, C)`, their rows' strides, and N and C; dense tensors become one row."""
    dense = all(each is None or each.is_contiguous() for each in tensors)
    rows = [each if each is None else each.reshape(1, -1) if dense else rows_of(each) for each in tensors]
    first = next(each for each in rows if each is not None)
    return rows, [0 if each is None else each.stride(0) for each in rows], (first.shape[0], first.shape[1])
