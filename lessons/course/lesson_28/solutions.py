"""Solutions of lesson 28."""

import numpy as np


def quantize(weight, group):
    C_in, C_out = weight.shape
    groups = weight.T.reshape(C_out, C_in // group, group)
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    steps = (high - low) / 15  # sixteen levels have fifteen steps between them
    scales, minima = steps.astype(np.float16), low.astype(np.float16)
    steps = np.where(scales == 0, 1, steps)  # all weights alike, or nearly: they become 0
    nearest = np.floor((groups - low[..., None]) / steps[..., None] + 0.5)
    numbers = np.clip(nearest, 0, 15).astype(np.uint8)
    return numbers, scales, minima


def pack(numbers):
    half = numbers.shape[-1] // 2
    return numbers[..., :half] | numbers[..., half:] << 4


def unpack(packed):
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def columns(weight, count=64):
    for start in range(0, len(weight.packed), count):
        part = slice(start, start + count)
        numbers = unpack(weight.packed[part]).astype(np.float32)
        groups = weight.scales[part, :, None] * numbers + weight.minima[part, :, None]
        yield part, groups.reshape(len(groups), -1)


def quantized_linear_backward(dy, weight):
    C_out, groups, half = weight.packed.shape
    rows = dy.reshape(-1, C_out)  # (N, C_out)
    dx = np.zeros((len(rows), groups * 2 * half), dy.dtype)
    for part, block in columns(weight):  # (columns, C_in)
        dx += rows[:, part] @ block  # y[:, part] = x @ block.T
    return dx.reshape(*dy.shape[:-1], dx.shape[1]), rows.sum(axis=0)


def draw(probabilities, number):
    return int(np.searchsorted(np.cumsum(probabilities), number, side="right"))


def accept(drafted, p, q, numbers):
    k = len(drafted)
    for i, token in enumerate(drafted):
        if numbers[i] * q[i, token] >= p[i, token]:  # refused
            left = np.maximum(p[i] - q[i], 0)
            return [*drafted[:i], draw(left / left.sum(), numbers[k])]
    return [*drafted, draw(p[k], numbers[k])]
