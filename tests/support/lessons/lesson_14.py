"""Answers to lesson 14: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _adam_over_views(data, grad, m, v, step, lr, block=1 << 16, beta1=0.9, beta2=0.98, eps=1e-9):
    cuts = range(block, data.size, block)
    for d, g, mean, square in zip(*(np.split(array, cuts) for array in (data, grad, m, v)), strict=True):
        mean += (1 - beta1) * (g - mean)
        square += (1 - beta2) * (g * g - square)
        d -= lr * (mean / (1 - beta1**step)) / (np.sqrt(square / (1 - beta2**step)) + eps)


def _slower_of_two(m, k, n, machine):
    arithmetic, floats = m * n * (k + k), m * k + k * n + m * n
    seconds = arithmetic / machine.flops
    if seconds < floats * 4 / machine.bandwidth:
        seconds = floats * 4 / machine.bandwidth
    return seconds + machine.call


def _saved(shares, times):
    time = 1.0
    for share, faster in zip(shares, times, strict=True):
        time -= share * (1 - 1 / faster)
    return 1 / time


RIGHT = {"predicted_seconds": [_slower_of_two], "adam_step": [_adam_over_views], "speed_up": [_saved]}


MISTAKES = r"""
[predicted_seconds]
half precision | = 4 * → = 2 * | a float16 has 2
multiplications only | = 2 * m → = m | a multiplication and an addition are two operations
the product is not written | (m * k + k * n + m * n) → (m * k + k * n) | the product, 30 × 70, goes through memory too
elements, not bytes | = 4 * → = | a float32 has 4 bytes
float64 | = 4 * → = 8 * | a float64 has 8
one after the other | returns machine.call + arithmetic + memory | so the slower decides
the faster decides | returns machine.call + min(arithmetic, memory) | not the faster
no call | returns max(arithmetic, memory) | a call alone is 1.0e-06 s
no memory | returns machine.call + arithmetic | still have to travel
the call overlaps | returns max(machine.call, arithmetic, memory) | a call of 0.5 s, which comes on top
a call where it is the longest
    returns machine.call if machine.call > 1 else answer | a call of 2 s, which comes on top
[adam_step]
no root | np.sqrt(v[part], out=g) → g[...] = v[part] | by the root of v̂
from the second on | range(0, data → range(1, data | blocks begin at 0
everything at once | root = math → block = data.size\n    root = math | is every operation on a slice
a new array under an old name
    root = math → data, m, v = data.copy(), m.copy(), v.copy()\n    root = math | only makes a new array
no last block | data.size, block → max(data.size // block, 1) * block, block | the last block may be shorter
grad is overwritten | grad[part].copy() → grad[part] | it writes into grad
no bias correction | root = math → step = 10**6\n    root = math | the sum without 1 − beta1^step
a wide scalar | grad[part].copy() → grad[part] * np.float64(1) | a scalar of type np.float64
beta1 is a number | root = math → beta1 = 0.9\n    root = math | with beta1 = 0.8
beta2 is a number | root = math → beta2 = 0.98\n    root = math | with beta2 = 0.95
lr is a number | root = math → lr = 0.1\n    root = math | with lr = 0.01
step is a number | root = math → step = 3\n    root = math | with step = 7
eps inside the root | np.sqrt(v[part], out=g)\n        g += eps → np.sqrt(v[part] + eps, out=g) | outside the root
block is a number | root = math → block = 4096\n    root = math | is `block` ignored
eps is 0 by default | eps=1e-9 → eps=0.0 | the contract's default is eps=1e-9
[speed_up]
shares times times | returns (shares * times).sum() | no gain: that is
the rest is free | returns 1 / (shares / times).sum() | as if the other half took no time
the mean of the factors | returns 1 - shares.sum() + (shares * times).sum() | the mean of the speed-ups
new over old | returns 1 / answer | the new time over the old
each by itself | returns 1 / (1 - shares + shares / times) | it is one number
a product | returns np.prod(1 / (1 - shares + shares / times)) | a half becomes 2 times and a quarter 4 times
the first two parts | returns solution(shares[:2], times[:2]) | where three quarters become
never slower | returns max(1.0, answer) | times below 1 count too
"""
