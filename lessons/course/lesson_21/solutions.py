"""Solutions of lesson 21."""

import numpy as np

from minitransformer.models import IGNORED
from minitransformer.ops import cross_entropy_backward, cross_entropy_forward


def mask_batch(ids, mask_id, rng):
    hidden, targets = ids.copy(), np.full_like(ids, IGNORED)
    for row, tokens in enumerate(ids):
        words = np.flatnonzero((tokens > 2) & (tokens < mask_id))  # the places that may be chosen
        count = max(1, round(0.15 * len(words)))
        for place in rng.choice(words, count, replace=False):
            targets[row, place] = tokens[place]
            dice = rng.random()
            if dice < 0.8:
                hidden[row, place] = mask_id
            elif dice < 0.9:
                hidden[row, place] = rng.integers(3, mask_id)
    return hidden, targets


def masked_loss_backward(dloss, hidden, table, targets):
    chosen = targets != IGNORED  # (B, T)
    rows = hidden[chosen]  # (N, C)
    _, cache = cross_entropy_forward(rows @ table.T, targets[chosen])
    dlogits = cross_entropy_backward(dloss, cache)  # (N, V): softmax minus one-hot, divided by N
    dhidden = np.zeros_like(hidden)
    dhidden[chosen] = dlogits @ table
    return dhidden, dlogits.T @ rows


def class_head_backward(dlogits, hidden, w_pool, b_pool, w_class):
    first = hidden[:, 0]  # (B, C)
    pooled = np.tanh(first @ w_pool + b_pool)
    dw_class, db_class = pooled.T @ dlogits, dlogits.sum(axis=0)
    dpooled = dlogits @ w_class.T
    dz = dpooled * (1 - pooled**2)  # tanh' = 1 − tanh²
    dw_pool, db_pool = first.T @ dz, dz.sum(axis=0)
    dhidden = np.zeros_like(hidden)
    dhidden[:, 0] = dz @ w_pool.T
    return dhidden, dw_pool, db_pool, dw_class, db_class
