"""Solutions of lesson 25."""

import numpy as np


def distillation_backward(dloss, logits, teacher_logits, targets, temperature, share):
    def softmax(x):
        exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    N = len(logits)
    hard = softmax(logits)  # (N, V)
    hard[np.arange(N), targets] -= 1
    soft = softmax(logits / temperature) - softmax(teacher_logits / temperature)  # (N, V)
    return dloss / N * ((1 - share) * hard + share * temperature * soft)  # T² of the loss, 1/T of the chain rule


def compute_optimal(theta, operations):
    a, alpha, b, beta, _ = theta
    products = operations / 6  # N · D
    log_n = (np.log(alpha) + a - np.log(beta) - b + beta * np.log(products)) / (alpha + beta)
    n = np.exp(log_n)
    return n, products / n


def objective_backward(dloss, theta, log_n, log_d, log_loss, delta):
    a, alpha, b, beta, e = theta
    terms = np.stack([a - alpha * log_n, b - beta * log_d, e + 0 * log_n])  # (3, n)
    exponentials = np.exp(terms - terms.max(axis=0))
    total = exponentials.sum(axis=0)
    near, far, floor = exponentials / total  # (n,) each: the softmax of the terms
    residuals = terms.max(axis=0) + np.log(total) - log_loss  # (n,)
    pulls = dloss * np.clip(residuals, -delta, delta)  # Huber's slope
    slopes = np.stack([near, -near * log_n, far, -far * log_d, floor])  # (5, n)
    return slopes @ pulls


def damped_step(residuals, slopes, damping, delta):
    size = np.abs(residuals)
    weights = np.where(size > delta, delta / np.maximum(size, delta), 1)  # (n,)
    gradient = slopes.T @ (weights * residuals)  # (5,)
    curvature = slopes.T @ (weights[:, None] * slopes)  # (5, 5)
    return -np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), gradient)
