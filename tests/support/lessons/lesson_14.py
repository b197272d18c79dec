"""Plausible wrong answers to lesson 14 (see `answers`)."""

import math

import numpy as np


def _bytes(m, k, n):
    return 4 * (m * k + k * n + m * n)


def _predict(flops=2.0, moved=_bytes, combine=max, call=1.0):
    def predicted_seconds(m, k, n, machine):
        slower = combine(flops * m * k * n / machine.flops, moved(m, k, n) / machine.bandwidth)
        return call * machine.call + slower

    return predicted_seconds


def _plain_adam(data, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    m[...] = beta1 * m + (1 - beta1) * grad
    v[...] = beta2 * v + (1 - beta2) * grad**2
    data -= lr * (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + eps)


def _one_block(data, grad, m, v, step, lr, block=1 << 16, **options):
    _plain_adam(data, grad, m, v, step, lr, **options)


def _forgets_the_rest(data, grad, m, v, step, lr, block=1 << 16):
    for start in range(0, max(data.size // block, data.size <= block) * block, block):
        part = slice(start, start + block)
        _plain_adam(data[part], grad[part], m[part], v[part], step, lr)


def _not_in_place(data, grad, m, v, step, lr, block=1 << 16):
    m = 0.9 * m + 0.1 * grad
    v = 0.98 * v + 0.02 * grad**2
    data = data - lr * m / np.sqrt(v)


def _writes_into_grad(data, grad, m, v, step, lr, block=1 << 16):
    for start in range(0, data.size, block):
        part = slice(start, start + block)
        _plain_adam(data[part], grad[part], m[part], v[part], step, lr)
        grad[part] *= grad[part]


def _no_correction(data, grad, m, v, step, lr, block=1 << 16):
    for start in range(0, data.size, block):
        part = slice(start, start + block)
        _plain_adam(data[part], grad[part], m[part], v[part], 10**6, lr)


def _widens(data, grad, m, v, step, lr, block=1 << 16, beta1=0.9, beta2=0.98, eps=1e-9):
    root = np.sqrt(np.float64(1 - beta2**step))
    for start in range(0, data.size, block):
        part = slice(start, start + block)
        g = grad[part] * np.float64(1.0)
        m[part] = beta1 * m[part] + (1 - beta1) * g
        v[part] = beta2 * v[part] + (1 - beta2) * g * g
        data[part] -= lr * root / (1 - beta1**step) * m[part] / (np.sqrt(v[part]) + eps * root)


def _adam(eps_in="the sum", always=None, **fixed):
    """Adam in blocks, with eps in another place, a block that is always so long, or arguments that are numbers."""

    def adam_step(data, grad, m, v, step, lr, block=1 << 16, beta1=0.9, beta2=0.98, eps=1e-9):
        given = {"step": step, "lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps} | fixed
        step, lr, beta1, beta2, eps = given.values()
        block = always or block
        for start in range(0, data.size, block):
            part = slice(start, start + block)
            m[part] = beta1 * m[part] + (1 - beta1) * grad[part]
            v[part] = beta2 * v[part] + (1 - beta2) * grad[part] ** 2
            corrected = v[part] / (1 - beta2**step)
            root = np.sqrt(corrected + eps) if eps_in == "the root" else np.sqrt(corrected) + eps
            data[part] -= lr * (m[part] / (1 - beta1**step)) / root

    return adam_step


def _rest_is_free(shares, times):
    return 1 / (shares / times).sum()


def _no_eps(data, grad, m, v, step, lr, block=1 << 16, beta1=0.9, beta2=0.98, eps=0.0):
    _adam()(data, grad, m, v, step, lr, block, beta1, beta2, eps)


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
    "adam_step": {
        "everything at once": (_one_block, "is every operation on a slice"),
        "a new array under an old name": (_not_in_place, "only makes a new array"),
        "the last block is left out": (_forgets_the_rest, "the last block may be shorter"),
        "grad is overwritten": (_writes_into_grad, "it writes into grad"),
        "no bias correction": (_no_correction, "the sum without 1 − beta1^step"),
        "a wide scalar": (_widens, "a scalar of type np.float64"),
        "beta1 is a number": (_adam(beta1=0.9), "with beta1 = 0.8"),
        "beta2 is a number": (_adam(beta2=0.98), "with beta2 = 0.95"),
        "lr is a number": (_adam(lr=0.1), "with lr = 0.01"),
        "step is a number": (_adam(step=3), "with step = 7"),
        "eps inside the root": (_adam("the root"), "outside the root"),
        "block is a number": (_adam(always=4096), "is `block` ignored"),
        "eps is 0 by default": (_no_eps, "the contract's default is eps=1e-9"),
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
