"""Solutions of lesson 09."""

import copy

import numpy as np


def adam_step(theta, grad, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    m_hat = m / (1 - beta1**step)  # both means began at 0
    v_hat = v / (1 - beta2**step)
    return theta - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


def schedule(step, d_model, warmup_steps):
    return d_model**-0.5 * np.minimum(step**-0.5, step * warmup_steps**-1.5)


def train(model, batch_of, rate, steps, update, clip_norm=None, validate=None, every=100):
    theta, losses, perplexities = model.parameters.data, [], []
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    for step in range(1, steps + 1):
        batch = batch_of(step)
        model.parameters.zero_grad()  # backwards add
        loss, cache = model.loss(batch.source, batch.target_in, batch.target_out)
        model.loss_backward(1.0, cache)
        grad = model.parameters.grad
        norm = np.linalg.norm(grad)
        if clip_norm is not None and norm > clip_norm:
            grad = grad * (clip_norm / norm)
        theta[:], m, v = update(theta, grad, m, v, step, rate(step))
        losses.append(float(loss))
        if validate is not None and step % every == 0:
            perplexities.append(float(np.exp(validate())))
    return losses, perplexities


def accumulate(parts, gradient):
    results = [gradient(part) for part in parts]
    n = sum(num_targets for _, _, num_targets in results)
    loss = sum(num_targets / n * part_loss for part_loss, _, num_targets in results)
    grad = sum(num_targets / n * part_grad for _, part_grad, num_targets in results)
    return loss, grad


def save(run):
    return {name: copy.deepcopy(getattr(run, name)) for name in ("theta", "m", "v", "step", "rng")}
