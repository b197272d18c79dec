"""Solutions of lesson 15."""

# pyright: reportInvalidTypeForm=false

import numpy as np

from course.gpu import tl, torch, triton

LOWEST = tl.constexpr(-3.4028234663852886e38)


# --- The ladder -----------------------------------------------------------------------------------------------


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(out_ptr + i, x + y)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(x.numel() // 8,)](x, y, out, BLOCK=8)
    return out


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask)


def relu(x):
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 8),)](x, y, x.numel(), BLOCK=8)
    return y


@triton.jit
def copy_kernel(x_ptr, y_ptr, num_rows, n, stride_row, stride_column, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # (R,)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # (B,)
    mask = (row < num_rows)[:, None] & (column < n)[None, :]  # (R, B)
    x = tl.load(x_ptr + row[:, None] * stride_row + column[None, :] * stride_column, mask)
    tl.store(y_ptr + row[:, None] * n + column[None, :], x, mask)


def contiguous(x):
    num_rows, n = x.shape
    y = torch.empty((num_rows, n), device=x.device)
    grid = triton.cdiv(num_rows, 2), triton.cdiv(n, 8)
    copy_kernel[grid](x, y, num_rows, n, x.stride(0), x.stride(1), ROWS=2, BLOCK=8)
    return y


@triton.jit
def row_sums_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + column, column < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


def row_sums(x):
    num_rows, n = x.shape
    out = torch.empty(num_rows, device=x.device)
    row_sums_kernel[(num_rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
    return out


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, K, N, TILE: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)  # of a and of c
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)  # of b and of c
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, K, TILE):
        k = first + tl.arange(0, TILE)  # columns of a, rows of b
        a = tl.load(a_ptr + row[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + column[None, :])
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + row[:, None] * N + column[None, :], total)


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device)
    matmul_kernel[(M // 16, N // 16)](a, b, c, K, N, TILE=16)
    return c


@triton.jit
def max_and_sum_kernel(x_ptr, m_ptr, l_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m, l = float("-inf"), 0.0
    for first in range(0, n, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + column, column < n, other=float("-inf"))
        new_m = tl.maximum(m, tl.max(x, axis=0))
        l = l * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0)
        m = new_m
    tl.store(m_ptr + row, m)
    tl.store(l_ptr + row, l)


def max_and_sum(x):
    num_rows, n = x.shape
    m, l = (torch.empty(num_rows, device=x.device) for _ in range(2))
    max_and_sum_kernel[(num_rows,)](x, m, l, n, BLOCK=64)
    return m, l


# --- Rows -----------------------------------------------------------------------------------------------------


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


# --- Number formats -------------------------------------------------------------------------------------------


def round_to(x, bits):
    fraction, exponent = np.frexp(x)  # x = fraction · 2^exponent, ½ ≤ |fraction| < 1
    return np.ldexp(np.rint(np.ldexp(fraction, bits + 1)), exponent - bits - 1)
