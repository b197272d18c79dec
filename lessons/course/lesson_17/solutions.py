"""Solutions of lesson 17."""

import math


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
