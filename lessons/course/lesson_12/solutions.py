"""Solutions of lesson 12."""

import numpy as np


def looks_at(weights, lengths, offset):
    total, pairs = np.zeros(weights.shape[1]), 0
    for sentence, length in zip(weights, lengths, strict=True):
        real = sentence[:, :length, :length]  # (H, length, length)
        diagonal = np.diagonal(real, offset, axis1=1, axis2=2)  # (H, pairs): key = query + offset
        total += diagonal.sum(axis=1)
        pairs += diagonal.shape[1]
    return total / pairs


def without_head(weight, head, num_heads):
    blocks = weight.copy().reshape(num_heads, -1, weight.shape[1])  # (H, Dv, C)
    blocks[head] = 0
    return blocks.reshape(weight.shape)
