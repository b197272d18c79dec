"""Solutions of lesson 19."""

import numpy as np


def block_backward(layers, dx, cache):
    first_norm, self_attention, second_norm, feed_forward = cache
    dh = layers.feed_forward_backward(dx, feed_forward)  # x + f(norm(x)): dx is f's, and it passes by
    dx = dx + layers.norm_backward(dh, second_norm)
    dh = layers.self_attention_backward(dx, self_attention)
    return dx + layers.norm_backward(dh, first_norm)


def tied_backward(dlogits, hidden, table, positions, ids, stack_backward):
    V, C = table.shape
    dtable = dlogits.reshape(-1, V).T @ hidden.reshape(-1, C)  # logits = hidden @ tableᵀ
    dx = stack_backward(dlogits @ table)  # (B, T, C)
    np.add.at(dtable, ids, dx)  # x = table[ids] + …: a token may stand in many places
    dpositions = np.zeros_like(positions)
    dpositions[: ids.shape[1]] = dx.sum(axis=0)  # all rows of the batch have the same places
    return dtable, dpositions


def cached_attention(query, key, value, keys, values):
    t, n = keys.shape[2], query.shape[2]
    keys = np.concatenate([keys, key], axis=2)  # (B, H, t + n, D)
    values = np.concatenate([values, value], axis=2)  # (B, H, t + n, Dv)
    seen = np.tri(n, t + n, t, dtype=bool)  # row i is position t + i, and sees t + i + 1 keys
    scores = query @ keys.swapaxes(-1, -2) / query.shape[-1] ** 0.5  # (B, H, n, t + n); a float keeps float32
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ values, keys, values


def top_p(logits, p):
    order = np.argsort(-logits, axis=-1)  # (B, V), the best first
    best = np.take_along_axis(logits, order, axis=-1)
    probabilities = np.exp(best - best[:, :1])
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    before = np.cumsum(probabilities, axis=-1) - probabilities  # of all better tokens together
    kept = np.where(before < p, probabilities, 0)
    result = np.empty_like(kept)
    np.put_along_axis(result, order, kept / kept.sum(axis=-1, keepdims=True), axis=-1)
    return result
