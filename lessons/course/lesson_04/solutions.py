"""Solutions of lesson 04."""

import math

import numpy as np

from minitransformer.ops import softmax_forward


def attention(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])  # (..., Tq, Tk)
    weights, _ = softmax_forward(scores)  # each row sums to 1
    return weights @ value, weights


def attention_backward(dout, query, key, value, weights):
    dvalue = weights.swapaxes(-1, -2) @ dout  # out = weights @ value
    dweights = dout @ value.swapaxes(-1, -2)  # (..., Tq, Tk)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) / math.sqrt(query.shape[-1])
    dquery = dscores @ key  # scores = query @ keyᵀ / √D
    dkey = dscores.swapaxes(-1, -2) @ query
    return dquery, dkey, dvalue


def causal_mask(num_queries, num_keys):
    positions = np.arange(num_keys - num_queries, num_keys)  # of the queries
    return np.arange(num_keys) <= positions[:, None]


def moved_by(attend, query, key, value):
    out = attend(query, key, value)
    moved = np.zeros((len(query), len(key)), dtype=bool)
    for j in range(len(key)):
        other_key, other_value = key.copy(), value.copy()
        other_key[j] += 1
        other_value[j] += 1
        moved[:, j] = np.abs(attend(query, other_key, other_value) - out).max(axis=1) > 1e-9
    return moved


def masked_softmax(scores, mask):
    scores = np.where(mask, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - np.where(np.isneginf(largest), 0, largest))  # an empty row: e^(−∞ − 0) = 0
    totals = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(totals == 0, 1, totals)
