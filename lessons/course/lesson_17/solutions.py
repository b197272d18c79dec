"""Solutions of lesson 17."""

# pyright: reportInvalidTypeForm=false

import math

from course.gpu import tl, torch, triton


def least_seconds(flops, moved, gpu):
    arithmetic, memory = flops / gpu.flops, moved / gpu.bandwidth
    return max(arithmetic, memory), "arithmetic" if arithmetic > memory else "memory"


def attention_work(T, D, fused):
    flops = 2 * (2 * T * T * D)  # query keyᵀ, and weights value
    numbers = 4 * T * D  # query, key, value and out
    if not fused:
        numbers += 4 * T * T  # scores written and read, weights written and read
    return flops, 2 * numbers


def enough_tokens(C_in, C_out, gpu):
    weights = 2 * C_in * C_out / gpu.bandwidth  # seconds to read them, once
    token_memory = 2 * (C_in + C_out) / gpu.bandwidth
    token_arithmetic = 2 * C_in * C_out / gpu.flops
    if token_arithmetic <= token_memory:
        return math.inf
    return math.ceil(weights / (token_arithmetic - token_memory))


@triton.jit
def running_sums_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = i < n
    place = y_ptr + tl.program_id(0) * n + i
    total = tl.load(x_ptr + tl.program_id(0) * n + i, mask)
    distance = 1
    while distance < n:
        tl.store(place, total, mask)
        tl.debug_barrier()  # all have stored, before any loads
        total += tl.load(place - distance, mask & (i >= distance), other=0.0)
        tl.debug_barrier()  # all have loaded, before any stores again
        distance *= 2
    tl.store(place, total, mask)


def running_sums(x):
    num_rows, n = x.shape
    y = torch.empty_like(x)
    running_sums_kernel[(num_rows,)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y
