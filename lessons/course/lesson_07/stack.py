"""Lesson 07: a stack of feed-forward networks, with and without residual connections and norms."""

import numpy as np


def run_stack(stack, functions, x, dy, residual, norm):
    """The size of x after each sub-layer and of the gradient before each, (n + 1,) both, and the gradient of x.

    functions: the learner's forward and backward of a feed-forward network and of layer normalisation.
    """
    forward, backward, norm_forward, norm_backward = functions
    ones = np.ones(x.shape[-1])
    sizes, caches = [np.sqrt((x**2).mean())], []
    for weights in stack:
        out, cache = forward(x, *weights)
        x = x + out if residual else out
        x, norm_cache = norm_forward(x, ones, 0 * ones) if norm else (x, None)
        caches.append((cache, norm_cache))
        sizes.append(np.sqrt((x**2).mean()))
    dx, lengths = dy, [np.linalg.norm(dy)]
    for cache, norm_cache in reversed(caches):
        dsum = norm_backward(dx, *norm_cache)[0] if norm else dx
        dx = backward(dsum, cache)[0] + (dsum if residual else 0)
        lengths.append(np.linalg.norm(dx))
    return sizes, lengths[::-1], dx
