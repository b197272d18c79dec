"""Answers to lesson 22: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from course.lesson_22 import solutions


def _by_numbers(drows, channels, height, width, size):
    numbers = np.arange(channels * height * width).reshape(channels, height // size, size, width // size, size)
    order = numbers.transpose(1, 3, 0, 2, 4).ravel()  # where each number of the rows stood in its image
    dimages = np.empty((len(drows), channels * height * width))
    dimages[:, order] = drows.reshape(len(drows), -1)
    return dimages.reshape(-1, channels, height, width)


def _sentence_by_einsum(dx):
    dpositions = np.einsum("btc->tc", dx)
    return np.split(dx, [1], axis=1)[1], dpositions[0].copy(), dpositions


def _rollout_without_the_identity(weights):
    half = weights.mean(2) / 2
    total = half[0] + np.eye(weights.shape[-1]) / 2
    for layer in half[1:]:
        total = np.einsum("bqk,bkj->bqj", layer, total) + total / 2
    return total


RIGHT = {
    "patches_backward": [_by_numbers],
    "sentence_backward": [_sentence_by_einsum],
    "rollout": [_rollout_without_the_identity],
}


def _without_the_last_row(drows, channels, height, width, size):
    dimages = solutions.patches_backward(drows, channels, height, width, size)
    dimages[:, :, height - size :] = np.nan
    return dimages


def _each_head_by_itself(weights):
    heads = [solutions.rollout(weights[:, :, [head]]) for head in range(weights.shape[2])]
    return np.mean(heads, axis=0)


MISTAKES = r"""
[patches_backward]
reshaped only
    is lambda drows, channels, height, width, size: drows.reshape(-1, channels, height, width)
    reshape keeps
patches turned over | transpose(0, 3, 1, 4, 2, 5) → transpose(0, 3, 1, 5, 2, 4) | rows for columns
column by column
    height // size, width // size, channels → width // size, height // size, channels
    transpose(0, 3, 1, 4, 2, 5) → transpose(0, 3, 2, 4, 1, 5)
    column by column
channels last
    channels, size, size) → size, size, channels)
    transpose(0, 3, 1, 4, 2, 5) → transpose(0, 5, 1, 3, 2, 4)
    channels are taken for the last
rows of pixels before rows of patches | transpose(0, 3, 1, 4, 2, 5) → transpose(0, 3, 4, 1, 5, 2) | the wrong way round
the shape of rows | returns squares | it returns shape (2, 2, 2, 1, 2, 2)
divided by the pixels of a patch | returns answer / size**2 | 0.25 times
upside down | returns answer[:, :, ::-1] | pixels do not come back to their places
height for width
    height // size, width // size, channels → width // size, height // size, channels
    with B = 1, 2 channels of 6 × 9 pixels
always one channel | channels, size, size) → 1, -1, size) | with B = 2, 3 channels of 4 × 4 pixels and patches of 2 × 2,
zeros | returns np.zeros_like(answer) | is 0
the last row of patches never comes
    is _without_the_last_row
    it holds NaN or infinity
computed in float32 | returns answer.astype(np.float32).astype(np.float64) | computed in float32, on the way
[sentence_backward]
the class token too | dx[:, 1:].copy() → dx.copy() | the first place is the class token's
not added over the batch | dx[:, 0].sum(axis=0) → dx[:, 0].copy() | all images share one class token
positions for each image | dx.sum(axis=0) → dx.copy() | all images share the positions
the mean over the batch | dx[:, 0].sum(axis=0) → dx[:, 0].mean(axis=0) | dclass_token is 0.5 times
positions by their mean | , dx.sum(axis=0) → , dx.mean(axis=0) | dpositions is 0.5 times
the last place | dx[:, 0].sum(axis=0) → dx[:, -1].sum(axis=0) | the class token stands first
all places | dx[:, 0].sum(axis=0) → dx.sum(axis=(0, 1)) | stands at the first alone
no position for the class token
    returns answer[0], answer[1], answer[2] * (np.arange(dx.shape[1]) > 0)[:, None]
    the class token has a position, too
tokens averaged | dx[:, 1:].copy() → dx[:, 1:] / len(dx) | dtokens is 0.5 times
the first token of the first image | dx[:, 0].sum(axis=0) → dx[0, 0].copy() | is that of the first image alone
one position for all | , dx.sum(axis=0) → , dx.sum(axis=(0, 1)) | dpositions has shape
the last token left out | dx[:, 1:].copy() → dx[:, :-1].copy() | dtokens has the first place and lacks the last
another order | returns (answer[0], answer[2], answer[1]) | in another order than dtokens, dclass_token, dpositions
an axis of length 1 is left | dx[:, 0].sum(axis=0) → dx[:, :1].sum(axis=0) | a gradient has the shape of what it is
positions of the tokens alone | , dx.sum(axis=0) → , dx[:, 1:].sum(axis=0) | (4, 4): the class token has a position, too
positions added over the places | , dx.sum(axis=0) → , dx.sum(axis=1) | dpositions has shape (2, 4) and must have (4, 4)
[rollout]
the first head | weights.mean(axis=2) → weights[:, :, 0] | the first head alone is taken
no residual connection | (layer + np.eye(time)) / 2 @ total → layer @ total | the residual connection is left out
not halved | (layer + np.eye(time)) / 2 → (layer + np.eye(time)) | is not halved
the other order | (layer + np.eye(time)) / 2 @ total → total @ ((layer + np.eye(time)) / 2) | in the other order
the last layer alone | / 2 @ total → / 2 | the last layer's alone
the last layer's attention alone | returns weights[-1].mean(axis=1) | the last layer's attention, and no more
the first layer alone | weights.mean(axis=2) → weights.mean(axis=2)[:1] | the first layer's alone
one residual connection for all layers
    (layer + np.eye(time)) / 2 @ total → layer @ total
    return total → return (total + np.eye(time)) / 2
    the residual connection is counted once
each head by itself | is _each_head_by_itself | each head is rolled out by itself
heads added up | weights.mean(axis=2) → weights.sum(axis=2) | the heads are added up
the largest head | weights.mean(axis=2) → weights.max(axis=2) | the largest weight of all heads
layers averaged | is lambda weights: (weights.mean(2) + np.eye(weights.shape[-1])).mean(0) / 2 | layers are averaged
number by number | is lambda weights: ((weights.mean(2) + np.eye(weights.shape[-1])) / 2).prod(0) | number by number
rows are keys | returns total.swapaxes(1, 2) | the rows of the result are keys
the class token's row alone | returns total[:, 0] | a matrix for each image
nearly one
    returns 1.0001 * total
    a row of it sums to 1.0001,
"""
