"""Solutions of lesson 15."""

# pyright: reportInvalidTypeForm=false

import numpy as np

from course.gpu import tl, torch, triton

LOWEST = tl.constexpr(-3.4028234663852886e38)


def round_to(x, bits):
    fraction, exponent = np.frexp(x)  # x = fraction · 2^exponent, ½ ≤ |fraction| < 1
    return np.ldexp(np.rint(np.ldexp(fraction, bits + 1)), exponent - bits - 1)


@triton.jit
def softmax_rows_kernel(x_ptr, y_ptr, n, stride_x, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < n
    x = tl.load(x_ptr + row * stride_x + column, mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.maximum(tl.max(x, axis=0), LOWEST))
    total = tl.sum(e, axis=0)
    y = e / tl.where(total == 0, 1.0, total)
    tl.store(y_ptr + row * n + column, y.to(y_ptr.dtype.element_ty), mask)


def softmax_rows(x):
    num_rows, n = x.shape
    y = torch.empty((num_rows, n), dtype=x.dtype, device=x.device)
    softmax_rows_kernel[(num_rows,)](x, y, n, x.stride(0), BLOCK=triton.next_power_of_2(n))
    return y


@triton.jit
def layernorm_backward_kernel(
    dy_ptr, x_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, dgamma_ptr, dbeta_ptr, num_rows, n, BLOCK: tl.constexpr
):
    column = tl.arange(0, BLOCK)
    mask = column < n
    gamma = tl.load(gamma_ptr + column, mask, other=0.0)
    dgamma = tl.zeros((BLOCK,), tl.float32)
    dbeta = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0), num_rows, tl.num_programs(0)):
        mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
        dy = tl.load(dy_ptr + row * n + column, mask, other=0.0)
        x = tl.load(x_ptr + row * n + column, mask, other=0.0)
        normed = tl.where(mask, (x - mean) * rstd, 0.0)
        dgamma += dy * normed
        dbeta += dy
        dnormed = dy * gamma
        mean_dnormed = tl.sum(dnormed, axis=0) / n
        along_normed = tl.sum(dnormed * normed, axis=0) / n
        tl.store(dx_ptr + row * n + column, rstd * (dnormed - mean_dnormed - normed * along_normed), mask)
    tl.store(dgamma_ptr + tl.program_id(0) * n + column, dgamma, mask)
    tl.store(dbeta_ptr + tl.program_id(0) * n + column, dbeta, mask)


def layernorm_backward_rows(dy, x, gamma, mean, rstd, programs):
    num_rows, n = x.shape
    dx = torch.empty_like(x)
    dgammas, dbetas = (torch.empty((programs, n), device=x.device) for _ in range(2))
    layernorm_backward_kernel[(programs,)](
        dy, x, gamma, mean, rstd, dx, dgammas, dbetas, num_rows, n, BLOCK=triton.next_power_of_2(n)
    )
    return dx, dgammas.sum(dim=0), dbetas.sum(dim=0)
