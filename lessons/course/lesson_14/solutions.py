"""Solutions of lesson 14."""

import math

import numpy as np


def predicted_seconds(m, k, n, machine):
    arithmetic = 2 * m * k * n / machine.flops
    memory = 4 * (m * k + k * n + m * n) / machine.bandwidth
    return machine.call + max(arithmetic, memory)


def adam_step(data, grad, m, v, step, lr, block=1 << 16, beta1=0.9, beta2=0.98, eps=1e-9):
    root = math.sqrt(1 - beta2**step)
    rate, eps = lr * root / (1 - beta1**step), eps * root
    for start in range(0, data.size, block):
        part = slice(start, start + block)
        g = grad[part].copy()
        m[part] *= beta1
        m[part] += (1 - beta1) * g
        v[part] *= beta2
        g *= g
        g *= 1 - beta2
        v[part] += g
        np.sqrt(v[part], out=g)
        g += eps
        np.divide(m[part], g, out=g)
        g *= rate
        data[part] -= g


def speed_up(shares, times):
    return 1 / (1 - shares.sum() + (shares / times).sum())
