"""Adam's update and the global norm, each in one pass over a model's flat arrays.

The number of passes of P elements through memory in a step of Adam:

    naive      the formulas as they are written, each operation a tensor (`adam_step_naive`): 39 passes, 156 bytes a
               parameter, 17 launches
    in place   PyTorch's in-place operations (`kernels.eager.adam`): about 24 passes, 10 launches
    here       data, grad, m and v are read once, data, m and v written once: 7 passes, 28 bytes, one launch. If there
               is a half precision copy for the next forward, it is written too, from the new data in registers: 2
               bytes instead of 6

The global norm is one pass of 4 bytes: a fixed number of programs sum squares, and one more adds up their sums. The
naive `grad.square().sum().sqrt()` takes 3 passes.

The step, the learning rate and grad_scale may be in device memory. So every program computes `1 − βᵗ` itself, while it
waits for its loads.

For a number in device memory Triton compiles another kernel than for one from the host, and both must give the same
bits. In `a·b + c·d` a compiler fuses one of the products with the sum, and may choose another one in each kernel:
`tl.fma` fixes here which product is rounded. No quotient is subtracted either, because NVIDIA's assembler turns it into
a product and fuses that.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .checks import check_shadow, kernel
from .launch import on
from .scalars import number, number_arguments

BLOCK = 1024
NORM_BLOCK = 2048
NORM_PROGRAMS = 1024
"""The most programs that sum squares: the same on every GPU, because the order of adding changes the last bits."""


@triton.jit
def one_minus_power(c, n):
    """`1 − (1 − c)ⁿ` by repeated squaring, but without computing `1 − c`, in which float32 would lose half of c.

    With `x = 1 − c` and `y = 1 − d`: `1 − xy = d + c(1 − d)`, and `1 − x² = c(2 − c)`.
    """
    result = tl.zeros((), tl.float32)
    while n > 0:
        if n & 1:
            result = tl.fma(c, 1.0 - result, result)
        c *= 2.0 - c
        n >>= 1
    return result


@triton.jit(do_not_specialize=["step"])
def adam_kernel(
    data_ptr, grad_ptr, m_ptr, v_ptr, shadow_ptr, size,
    step, step_ptr, lr, lr_ptr, grad_scale, grad_scale_ptr, beta1, beta2, one_minus_beta1, one_minus_beta2, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Update a block of parameters; as in the reference, the bias corrections are applied to scalars."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < size
    grad = tl.load(grad_ptr + index, mask, other=0.0)  # loads come first: they run while 1 − βᵗ is computed
    m = tl.load(m_ptr + index, mask, other=0.0)
    v = tl.load(v_ptr + index, mask, other=0.0)
    data = tl.load(data_ptr + index, mask, other=0.0)

    t = number(step, step_ptr, tl.int32)
    root_correction = tl.sqrt(one_minus_power(number(one_minus_beta2, None, tl.float32), t))
    correction = one_minus_power(number(one_minus_beta1, None, tl.float32), t)
    rate = number(lr, lr_ptr, tl.float32) * root_correction / correction

    grad *= number(grad_scale, grad_scale_ptr, tl.float32)
    m = tl.fma(m, beta1, one_minus_beta1 * grad)
    v = tl.fma(v, beta2, one_minus_beta2 * grad * grad)
    data = tl.fma(rate * m, -1.0 / tl.fma(root_correction, eps, tl.sqrt(v)), data)
    tl.store(m_ptr + index, m, mask)
    tl.store(v_ptr + index, v, mask)
    tl.store(data_ptr + index, data, mask)
    if shadow_ptr is not None:
        tl.store(shadow_ptr + index, data.to(shadow_ptr.dtype.element_ty), mask)


@triton.jit
def sum_squares_kernel(grad_ptr, sums_ptr, size, BLOCK: tl.constexpr):
    """Sum the squares of one program's blocks, which are spread over the whole array."""
    total = tl.zeros((BLOCK,), tl.float32)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for start in range(first, size, tl.num_programs(0) * BLOCK):
        index = start + tl.arange(0, BLOCK)
        grad = tl.load(grad_ptr + index, index < size, other=0.0).to(tl.float32)
        total = tl.fma(grad, grad, total)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def norm_kernel(sums_ptr, norm_ptr, num_sums, BLOCK: tl.constexpr):
    """Compute the root of the total of all sums, which are added in pairs."""
    index = tl.arange(0, BLOCK)
    tl.store(norm_ptr, tl.sqrt(tl.sum(tl.load(sums_ptr + index, index < num_sums, other=0.0), axis=0)))


@kernel
def adam_step(
    data: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    *,
    step: int | Tensor,
    lr: float | Tensor,
    beta1: float = 0.9,
    beta2: float = 0.98,
    eps: float = 1e-9,
    grad_scale: float | Tensor = 1.0,
    shadow: Tensor | None = None,
) -> None:
    """Update the flat float32 arrays `data`, `m` and `v` in place by one step of Adam; `grad` is only read.

    `g = grad_scale · grad`; `m ← β₁ m + (1 − β₁) g`; `v ← β₂ v + (1 − β₂) g²`;
    `data ← data − lr · m̂ / (√v̂ + ε)` with `m̂ = m / (1 − β₁^step)`, `v̂ = v / (1 − β₂^step)`. Steps count from 1.
    step, lr and grad_scale are numbers or one-element tensors, which may be in device memory; `shadow` receives a copy
    of the new data in its own dtype. The kernel is fastest for a multiple of 16 parameters. Raises `ValueError` for a
    step below 1 (unless it is in device memory), and for arrays that are not flat and contiguous.
    Source: Kingma & Ba 2015, algorithm 1; Vaswani 2017, §5.3.
    """
    if data.dtype != torch.float32:
        raise TypeError(f"data is {data.dtype}, expected torch.float32: a step of Adam is too small for narrower types")
    check_shadow(shadow, data)
    for name, tensor in (("data", data), ("m", m), ("v", v), ("shadow", shadow)):
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} has stride {tensor.stride(0)}, expected a contiguous array to update in place")
    numbers = number_arguments("step", step, int, data)
    if numbers["step_ptr"] is None and numbers["step"] < 1:
        raise ValueError(f"step is {step}, expected 1 or more: Adam's bias correction divides by 1 − β^step")
    numbers |= number_arguments("lr", lr, float, data) | number_arguments("grad_scale", grad_scale, float, data)
    if not data.numel():
        return
    with on(data):
        adam_kernel[(triton.cdiv(data.numel(), BLOCK),)](
            data, grad.contiguous(), m, v, shadow, data.numel(), **numbers, beta1=float(beta1), beta2=float(beta2),
            one_minus_beta1=float(1 - beta1), one_minus_beta2=float(1 - beta2), eps=float(eps), BLOCK=BLOCK,
        )  # fmt: skip


@kernel
def global_norm(grad: Tensor) -> Tensor:
    """`√Σ grad²`, any shape: a float32 scalar on grad's device. Source: Pascanu, Mikolov, Bengio 2013, §3.2."""
    grad = grad.contiguous()
    if not grad.numel():
        return torch.zeros((), dtype=torch.float32, device=grad.device)
    programs = min(NORM_PROGRAMS, triton.cdiv(grad.numel(), NORM_BLOCK))
    sums = torch.empty(programs, dtype=torch.float32, device=grad.device)
    norm = torch.empty((), dtype=torch.float32, device=grad.device)
    with on(grad):
        sum_squares_kernel[(programs,)](grad, sums, grad.numel(), BLOCK=NORM_BLOCK)
        norm_kernel[(1,)](sums, norm, programs, BLOCK=NORM_PROGRAMS)
    return norm


def adam_step_naive(
    data: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    *,
    step: int | Tensor,
    lr: float | Tensor,
    beta1: float = 0.9,
    beta2: float = 0.98,
    eps: float = 1e-9,
    grad_scale: float | Tensor = 1.0,
) -> None:
    """Compute Adam's formulas as written, with a tensor for every operation. Comments count passes over P elements."""
    g = grad * grad_scale  # 2
    m.copy_(beta1 * m + (1 - beta1) * g)  # 2 + 2 for the products, 3 for the sum, 2
    v.copy_(beta2 * v + (1 - beta2) * g * g)  # 2 + 2 + 3, 3, 2
    m_hat = m / (1 - beta1**step)  # 2
    v_hat = v / (1 - beta2**step)  # 2
    data -= lr * m_hat / (v_hat.sqrt() + eps)  # 2 + 3, 2 + 2, 3
