"""Plausible wrong answers to lesson 14 (see `answers`)."""

import math


def _bytes(m, k, n):
    return 4 * (m * k + k * n + m * n)


def _predict(flops=2.0, moved=_bytes, combine=max, call=1.0):
    def predicted_seconds(m, k, n, machine):
        slower = combine(flops * m * k * n / machine.flops, moved(m, k, n) / machine.bandwidth)
        return call * machine.call + slower

    return predicted_seconds


def _rest_is_free(shares, times):
    return 1 / (shares / times).sum()


EDITS = r"""
[adam_step]
everything at once | root = math → block = data.size\n    root = math | is every operation on a slice
a new array under an old name
    root = math → data, m, v = data.copy(), m.copy(), v.copy()\n    root = math | only makes a new array
the last block is left out
    range(0, data.size, block) → range(0, max(data.size // block, 1) * block, block) | the last block may be shorter
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
"""

WRONG = {
    "predicted_seconds": {
        "multiplications only": (_predict(flops=1.0), "a multiplication and an addition are two operations"),
        "the product is not written": (
            _predict(moved=lambda m, k, n: 4 * (m * k + k * n)),
            "the product, 30 × 70, goes through memory too",
        ),
        "elements, not bytes": (_predict(moved=lambda m, k, n: _bytes(m, k, n) / 4), "a float32 has 4 bytes"),
        "float64": (_predict(moved=lambda m, k, n: 2 * _bytes(m, k, n)), "a float64 has 8"),
        "one after the other": (_predict(combine=lambda a, b: a + b), "so the slower decides"),
        "the faster decides": (_predict(combine=min), "not the faster"),
        "no call": (_predict(call=0.0), "a call alone is 1.0e-06 s"),
        "no memory": (lambda m, k, n, machine: machine.call + 2 * m * k * n / machine.flops, "still have to travel"),
        "the call overlaps": (
            lambda m, k, n, machine: max(machine.call, _predict(call=0.0)(m, k, n, machine)),
            "a call of 0.5 s, which comes on top",
        ),
        "a call where it is the longest": (
            lambda m, k, n, machine: max(machine.call, 0) if machine.call > 1 else _predict()(m, k, n, machine),
            "a call of 2 s, which comes on top",
        ),
    },
    "speed_up": {
        "the rest is free": (_rest_is_free, "as if the other half took no time"),
        "the mean of the factors": (
            lambda shares, times: 1 - shares.sum() + (shares * times).sum(),
            "the mean of the speed-ups",
        ),
        "new over old": (lambda shares, times: 1 - shares.sum() + (shares / times).sum(), "the new time over the old"),
        "each by itself": (lambda shares, times: 1 / (1 - shares + shares / times), "it is one number"),
        "a product": (
            lambda shares, times: math.prod(1 / (1 - s + s / k) for s, k in zip(shares, times, strict=True)),
            "a half becomes 2 times and a quarter 4 times",
        ),
        "the first two parts": (
            lambda shares, times: 1 / (1 - shares[:2].sum() + (shares[:2] / times[:2]).sum()),
            "where three quarters become",
        ),
        "never slower": (
            lambda shares, times: max(1.0, 1 / (1 - shares.sum() + (shares / times).sum())),
            "times below 1 count too",
        ),
    },
}
