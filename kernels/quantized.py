"""The affine map whose weight is in eight or four bits: see `minitransformer.ops.quantized`.

In decoding a few rows meet each weight once, so the bytes of the weight are the time. A weight in four bits with a
scale and a minimum for 32 moves, in bytes:

    naive      unpack the weight, then a product: 0.6 read, 2 written, 2 read
    bfloat16   a product alone: 2
    here       0.6: each program unpacks a block of the weight in registers, rounds it to x's type, and multiplies. So
               a weight in eight bits moves 1.1

In a prompt or a batch each block of the weight meets many rows, and the product is the time: unpacking is then what
this kernel does more than one on bfloat16. The smallest rows of a tensor core are 16 of x, and one token fills one of
them: the outputs stand in rows instead, `yᵀ = Wᵀ xᵀ`, of which there are always many, and so a Hopper's group of warps
takes what was unpacked from registers.

In four bits the byte j of a group holds weight j in its lower half and weight j + group/2 in its upper half. So the
lower halves of a block meet some columns of x and the upper halves others, in two products.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from minitransformer.ops.arguments import after_check
from minitransformer.ops.quantized import Quantized

from .checks import check_gradient, check_no_gradients
from .eager import quantized as eager
from .launch import on, rows_of
from .tuning import capability, lacks_tensor_cores

CHANGING = ["num_rows"]
"""Arguments that change from batch to batch: Triton must not compile another kernel for each."""


class Tile(NamedTuple):
    """The rows of x, outputs, and bytes of a group of weights that a program takes at a time, and its warps."""

    rows: int
    outputs: int
    bytes: int
    num_warps: int


DECODING, READING, EXACT = Tile(16, 64, 32, 4), Tile(64, 64, 32, 4), Tile(16, 32, 32, 4)
"""Tiles for few rows, for many, and for products without tensor cores: those of float32, and all on a T4."""


ONE_GROUP = 16, 32
"""Bytes of a group for which a program takes one group at a time: those of 32 weights, as GGUF has them."""


@triton.jit
def unpack(
    packed_ptr, scales_ptr, zeros_ptr, output, start, half, num_outputs, num_bytes,
    BITS: tl.constexpr, GROUP_BYTES: tl.constexpr, BYTES: tl.constexpr,
):  # fmt: skip
    """Return the weights `(N, K)` that bytes from `start` on of some outputs hold, in float32; of 4 bits one `half`.

    Zeros for outputs and bytes that are not there. Where the bytes are one group, each output's scale is loaded once.
    """
    row, byte = output.to(tl.int64)[:, None], start + tl.arange(0, BYTES)[None, :]
    there = (row < num_outputs) & (byte < num_bytes)
    number = tl.load(packed_ptr + row * num_bytes + byte, there, other=0)
    if BITS == 4:
        number = (number >> (4 * half)) & 15
    weight = number.to(tl.float32)
    if BITS == 4 and zeros_ptr is None:
        weight -= 8
    group = row * (num_bytes // GROUP_BYTES) + (start if BYTES == GROUP_BYTES else byte) // GROUP_BYTES
    if BYTES == GROUP_BYTES:
        there = row < num_outputs
    weight *= tl.load(scales_ptr + group, there, other=0.0).to(tl.float32)
    if zeros_ptr is not None:
        weight += tl.load(zeros_ptr + group, there, other=0.0).to(tl.float32)
    return weight


@triton.jit
def inputs_of(byte, half, BITS: tl.constexpr, GROUP_BYTES: tl.constexpr):
    """Return the inputs whose weights some bytes hold: in 4 bits those of one half, the upper one if `half` is 1."""
    if BITS == 8:
        return byte
    return byte // GROUP_BYTES * (2 * GROUP_BYTES) + half * GROUP_BYTES + byte % GROUP_BYTES


@triton.jit(do_not_specialize=CHANGING)
def quantized_forward_kernel(
    x_ptr, packed_ptr, scales_ptr, zeros_ptr, bias_ptr, y_ptr, num_rows, num_outputs, num_bytes, stride,
    BITS: tl.constexpr, GROUP_BYTES: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, BYTES: tl.constexpr,
):  # fmt: skip
    """Write a block of `y = x W + bias`."""
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    x_row = x_ptr + row.to(tl.int64)[None, :] * stride
    total = tl.zeros((OUTPUTS, ROWS), tl.float32)
    for start in tl.range(0, num_bytes, BYTES, loop_unroll_factor=4):
        byte = start + tl.arange(0, BYTES)
        there = (byte < num_bytes)[:, None] & (row < num_rows)[None, :]
        for half in tl.static_range(8 // BITS):
            weight = unpack(
                packed_ptr, scales_ptr, zeros_ptr, output, start, half, num_outputs, num_bytes, BITS, GROUP_BYTES, BYTES
            )
            x = tl.load(x_row + inputs_of(byte, half, BITS, GROUP_BYTES)[:, None], there, other=0.0)  # (K, M)
            total = tl.dot(weight.to(x.dtype), x, total, input_precision=PRECISION)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + output, output < num_outputs, other=0.0).to(tl.float32)[:, None]
    place = y_ptr + row.to(tl.int64)[None, :] * num_outputs + output[:, None]
    tl.store(place, total.to(y_ptr.dtype.element_ty), (output < num_outputs)[:, None] & (row < num_rows)[None, :])


@triton.jit(do_not_specialize=CHANGING)
def quantized_dx_kernel(
    dy_ptr, packed_ptr, scales_ptr, zeros_ptr, dx_ptr, num_rows, num_outputs, num_bytes, stride,
    BITS: tl.constexpr, GROUP_BYTES: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, BYTES: tl.constexpr,
):  # fmt: skip
    """Write a block of `dx = dy Wᵀ`, for the inputs whose weights stand in one half of some bytes."""
    half = tl.program_id(0) % (8 // BITS)
    first = tl.program_id(0) // (8 // BITS) * BYTES
    byte = first + tl.arange(0, BYTES)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    dy_row = dy_ptr + row.to(tl.int64)[:, None] * stride
    total = tl.zeros((ROWS, BYTES), tl.float32)
    for start in range(0, num_outputs, OUTPUTS):
        output = start + tl.arange(0, OUTPUTS)
        weight = unpack(
            packed_ptr, scales_ptr, zeros_ptr, output, first, half, num_outputs, num_bytes, BITS, GROUP_BYTES, BYTES
        )
        dy = tl.load(dy_row + output[None, :], (row < num_rows)[:, None] & (output < num_outputs)[None, :], other=0.0)
        total = tl.dot(dy, weight.to(dy.dtype), total, input_precision=PRECISION)  # y = x W
    inputs = inputs_of(byte, half, BITS, GROUP_BYTES)
    place = dx_ptr + row.to(tl.int64)[:, None] * (num_bytes * (8 // BITS)) + inputs[None, :]
    tl.store(place, total.to(dx_ptr.dtype.element_ty), (row < num_rows)[:, None] & (byte < num_bytes)[None, :])


def _check(given: Mapping[str, Any]) -> None:
    """Check a call as PyTorch's arithmetic does, for autograd, and against float64, which the kernels would narrow."""
    check_no_gradients(given)
    eager.check_call(given)
    if getattr(given.get("x"), "dtype", None) == torch.float64:
        raise TypeError("x is torch.float64, and the kernels compute in float32: use kernels.eager")


@partial(after_check, _check)
def quantized_linear_forward(x: Tensor, weight: Quantized, bias: Tensor | None) -> tuple[Tensor, tuple]:
    """`y = x @ dequantize(weight) + bias`, where the weight is unpacked in registers.

    x `(..., C_in)`, weight a `Quantized` of tensors (`kernels.eager.quantized.on_device`), bias `(C_out,)` or `None`;
    y has x's type. The weights are rounded to x's type, and sums are float32. The weight is frozen: the cache holds no
    x. Raises `TypeError` for float64. Source: Dettmers et al. 2023, eq. 5.
    """
    rows, (_, width) = rows_of(x), weight.shape
    y = torch.empty((len(rows), width), dtype=x.dtype, device=x.device)
    bias_ptr = None if bias is None else bias.contiguous()
    _launch(quantized_forward_kernel, rows, weight, y, y_ptr=y, bias_ptr=bias_ptr)
    return y.reshape(*x.shape[:-1], width), (weight, bias is not None, x.shape, x.dtype)


@partial(after_check, check_no_gradients)
def quantized_linear_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor | None]:
    """Gradients `(dx, dbias)`: `dx = dy @ dequantize(weight)ᵀ`, `dbias = Σ dy`. The weight has none."""
    weight, has_bias, shape, dtype = cache
    check_gradient("dy", dy, (*shape[:-1], weight.shape[1]), dtype, weight.packed.device)
    rows = rows_of(dy)
    dx = torch.empty((len(rows), shape[-1]), dtype=dtype, device=dy.device)
    _launch(quantized_dx_kernel, rows, weight, dx, dx_ptr=dx)
    return dx.reshape(shape), rows.sum(0) if has_bias else None


def _launch(kernel: Any, rows: Tensor, weight: Quantized, result: Tensor, **options: Any) -> None:
    """Launch one program for each block of the result."""
    tile = DECODING if len(rows) <= DECODING.rows else READING
    if rows.dtype == torch.float32 or lacks_tensor_cores(capability(rows.device)):
        tile = EXACT
    if weight.packed.shape[2] in ONE_GROUP:
        tile = tile._replace(bytes=weight.packed.shape[2])
    zeros = None if weight.zeros is None else weight.zeros.contiguous()
    num_bytes, num_outputs = weight.packed[:1].numel(), weight.shape[1]
    blocks = triton.cdiv(num_outputs, tile.outputs)
    if kernel is quantized_dx_kernel:
        blocks = triton.cdiv(num_bytes, tile.bytes) * (8 // weight.bits)
    if result.numel():
        with on(rows):
            kernel[(blocks, triton.cdiv(len(rows), tile.rows))](
                rows, weight.packed.contiguous(), weight.scales.contiguous(), zeros, **options,
                num_rows=len(rows), num_outputs=num_outputs, num_bytes=num_bytes, stride=rows.stride(0),
                BITS=weight.bits, GROUP_BYTES=weight.packed.shape[2], PRECISION="ieee",
                ROWS=tile.rows, OUTPUTS=tile.outputs, BYTES=tile.bytes, num_warps=tile.num_warps,
            )  # fmt: skip
