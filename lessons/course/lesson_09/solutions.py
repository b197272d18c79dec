"""Solutions of lesson 09."""

import copy

import numpy as np


def adam_step(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    m_hat = m / (1 - beta1**step)  # both means began at 0
    v_hat = v / (1 - beta2**step)
    return theta - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


def accumulate(parts, gradient):
    results = [gradient(part) for part in parts]
    n = sum(num_targets for _, _, num_targets in results)
    loss = sum(num_targets / n * part_loss for part_loss, _, num_targets in results)
    grad = sum(num_targets / n * part_grad for _, part_grad, num_targets in results)
    return loss, grad


def save(run):
    return {name: copy.deepcopy(getattr(run, name)) for name in ("theta", "m", "v", "step", "rng")}
