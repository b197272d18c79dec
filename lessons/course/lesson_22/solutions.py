"""Solutions of lesson 22."""

import numpy as np


def patches_backward(drows, channels, height, width, size):
    squares = drows.reshape(len(drows), height // size, width // size, channels, size, size)
    dimages = squares.transpose(0, 3, 1, 4, 2, 5)  # (B, channels, rows of patches, size, columns of patches, size)
    return dimages.reshape(len(drows), channels, height, width)


def sentence_backward(dx):
    return dx[:, 1:].copy(), dx[:, 0].sum(axis=0), dx.sum(axis=0)


def rollout(weights):
    time = weights.shape[-1]
    total = np.eye(time)
    for layer in weights.mean(axis=2):  # (B, T, T), from the first layer to the last
        total = (layer + np.eye(time)) / 2 @ total
    return total
