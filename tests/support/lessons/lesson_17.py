"""Right answers to lesson 17 written in another way, and plausible wrong ones (see `answers`)."""

import math


def _sorted(flops, moved, gpu):
    return sorted([(moved / gpu.bandwidth, "memory"), (flops / gpu.flops, "arithmetic")])[-1]


def _one_by_one(T, D, fused):
    moved = 4 * [T * D] + ([] if fused else 2 * [T * T, T * T])
    return sum(2 * T * T * D for _ in ("scores", "out")), sum(2 * numbers for numbers in moved)


def _searched(C_in, C_out, gpu):
    for N in range(1, 20_000):
        if 2 * N * C_in * C_out / gpu.flops >= 2 * (N * C_in + C_in * C_out + N * C_out) / gpu.bandwidth:
            return N
    return math.inf


RIGHT = {"least_seconds": [_sorted], "attention_work": [_one_by_one], "enough_tokens": [_searched]}

MISTAKES = r"""
[least_seconds]
one after the other | returns arithmetic + memory, answer[1] | they overlap
the quicker | returns min(arithmetic, memory), answer[1] | cannot end before the slower
the names are swapped | "arithmetic" if arithmetic > → "arithmetic" if arithmetic < | the names are swapped
operations against bytes | if arithmetic > memory → if flops > moved | compare seconds, not operations with bytes
one gpu's operations | flops / gpu.flops → flops / 8e9 | another gpu
whole seconds | returns int(answer[0]), answer[1] | 0.3e9 bytes
other words | "arithmetic" if → "compute" if | and it is 'compute'
the time alone | returns arithmetic | must return 2 arrays
[attention_work]
one product | 2 * (2 * T → (2 * T | there are two products
the softmax's operations | returns flops + 5 * T * T, answer[1] | count the products alone
exchanged | returns answer[::-1] | (operations, bytes)
no output | 4 * T * D → 3 * T * D | query, key, value and out are four
float32 | returns flops, 4 * numbers | half precision has 2 bytes
the width of one head only | 2 * (2 * T * T * D) → 40 * T * T | where T or D belongs
written and read once | 4 * T * T → 2 * T * T | unfused, 2 arrays of T × T
fused writes the weights | returns flops, answer[1] + 2 * T * T * fused | no T × T array leaves the chip
[enough_tokens]
the weights alone
    token_arithmetic <= token_memory → False | returns math.ceil(gpu.flops / gpu.bandwidth) | no number is enough
the weights alone, and a guard | returns math.ceil(gpu.flops / gpu.bandwidth) | if only the weights moved
float32
    2 * C_in * C_out / gpu.b → 4 * C_in * C_out / gpu.b | 2 * (C_in → 4 * (C_in | a half-precision number has 2 bytes
rounded down | math.ceil → math.floor | memory still decides
one too many | returns answer + 1 | would be enough
rounded up once more | math.ceil → 1 + math.floor | it says 129, and 128 would be enough
exactly as long | token_arithmetic <= token_memory → token_arithmetic < token_memory | it raises ZeroDivisionError
exactly as long, and a guard
    token_arithmetic <= token_memory → token_arithmetic < token_memory
    / (token_arithmetic - token_memory) → / max(token_arithmetic - token_memory, 1e-300)
    the weights come on top
a negative number | token_arithmetic <= token_memory → False | for 100 → 100 it says -
"""
