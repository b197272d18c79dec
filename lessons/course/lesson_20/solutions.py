"""Solutions of lesson 20."""

# pyright: reportInvalidTypeForm=false

import numpy as np

from course.gpu import tl, torch, triton


def rmsnorm_backward(dy, cache):
    normed, rstd, gamma = cache
    dgamma = (dy * normed).sum(axis=(0, 1))  # y = gamma * normed
    dnormed = dy * gamma
    along = (dnormed * normed).mean(axis=-1, keepdims=True)  # (B, T, 1)
    return rstd * (dnormed - normed * along), dgamma


def swiglu_backward(dy, cache):
    gate, up = cache
    sigmoid = (1 + np.tanh(gate / 2)) / 2
    silu = gate * sigmoid
    slope = sigmoid + silu * (1 - sigmoid)
    return dy * up * slope, dy * silu  # y = silu(gate) * up


def rope_forward(x, cos, sin):
    a, b = np.split(x, 2, axis=-1)  # (B, H, T, D/2)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1), (cos, sin)


def rope_backward(dy, cache):
    cos, sin = cache
    da, db = np.split(dy, 2, axis=-1)  # (B, H, T, D/2)
    return np.concatenate([da * cos + db * sin, db * cos - da * sin], axis=-1)


def repeat_heads_backward(dy, kv_heads):
    B, H, T, D = dy.shape
    return dy.reshape(B, kv_heads, H // kv_heads, T, D).sum(axis=2)


@triton.jit
def rmsnorm_kernel(x_ptr, gamma_ptr, y_ptr, rstd_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < n
    x = tl.load(x_ptr + row * n + column, mask, other=0.0)
    gamma = tl.load(gamma_ptr + column, mask, other=0.0)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + eps)
    tl.store(y_ptr + row * n + column, x * rstd * gamma, mask)
    tl.store(rstd_ptr + row, rstd)


def rmsnorm_rows(x, gamma, eps=1e-6):
    num_rows, n = x.shape
    y = torch.empty_like(x)
    rstd = torch.empty(num_rows, device=x.device)
    rmsnorm_kernel[(num_rows,)](x, gamma, y, rstd, n, eps, BLOCK=triton.next_power_of_2(n))
    return y, rstd
