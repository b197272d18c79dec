"""Right answers to lesson 17 written in another way, and plausible wrong ones (see `answers`)."""

# pyright: reportInvalidTypeForm=false

import math

from course.gpu import tl, torch, triton


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


@triton.jit
def _two_buffers_kernel(x_ptr, y_ptr, other_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = i < n
    row = tl.program_id(0) * n
    total = tl.load(x_ptr + row + i, mask)
    for step in tl.static_range(ROUNDS):  # who is slow still reads the buffer that the next round leaves alone
        place = (y_ptr if step % 2 else other_ptr) + row + i
        tl.store(place, total, mask)
        tl.debug_barrier()
        total += tl.load(place - (1 << step), mask & (i >= 1 << step), other=0.0)
    tl.debug_barrier()
    tl.store(y_ptr + row + i, total, mask)


def _two_buffers(x):
    y, other = torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    _two_buffers_kernel[(len(x),)](x, y, other, x.shape[1], ROUNDS=block.bit_length() - 1, BLOCK=block)
    return y


@triton.jit
def _cumsum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    x = tl.load(x_ptr + row + i, i < n, other=0.0)
    tl.store(y_ptr + row + i, tl.cumsum(x, axis=0), i < n)


def _cumsum(x):
    y = torch.empty_like(x)
    _cumsum_kernel[(len(x),)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _list_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = i < n
    place = y_ptr + tl.program_id(0) * n + i
    total = tl.load(x_ptr + tl.program_id(0) * n + i, mask)
    for distance in [1, 2, 4, 8, 16, 32, 64, 128]:
        tl.store(place, total, mask)
        tl.debug_barrier()
        total += tl.load(place - distance, mask & (i >= distance), other=0.0)
        tl.debug_barrier()
    tl.store(place, total, mask)


def _list(x):
    y = torch.empty_like(x)
    _list_kernel[(len(x),)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


RIGHT = {
    "least_seconds": [_sorted],
    "attention_work": [_one_by_one],
    "enough_tokens": [_searched],
    "running_sums": [_two_buffers],
}

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
[running_sums]
no barrier | tl.debug_barrier() → pass | nothing makes the waves wait for each other
the first barrier alone
    tl.debug_barrier()  # all have loaded, before any stores again → pass
    must have loaded before any of them stores
the second barrier alone
    tl.debug_barrier()  # all have stored, before any loads → pass
    must have stored before any of them loads
a barrier in the first round alone
    tl.debug_barrier()  # all have stored → if distance == 1:\n            tl.debug_barrier()  # all have stored
    byte 120 of y_ptr: all waves must have stored
a wave alone | triton.next_power_of_2(n) → triton.next_power_of_2(n), num_warps=1 | there is no other wave to race with
tl.cumsum | is _cumsum | no thread reads what another has stored
what only Python loops over | is _list | it does not compile
no round at all | while distance < n: → while distance < 1: | nothing is added up
one round | distance *= 2 → distance = n | left neighbour added, and no more
the last round is missing | while distance < n: → while distance < n // 2: | the last round is missing
every distance | distance *= 2 → distance += 1 | terms are added many times
all in one place | tl.program_id(0) * n + i → i | only row 0 is written
reads before the row | mask & (i >= distance), other → mask, other | what lies there in memory is the row before
"""
