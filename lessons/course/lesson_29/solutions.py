"""Solutions of lesson 29."""

import numpy as np


def induction_score(weights, ids):
    B, T = ids.shape
    total, count = np.zeros(weights.shape[1]), 0
    for b in range(B):
        for t in range(T):
            same = [s for s in range(t) if ids[b, s] == ids[b, t]]
            if same:
                total += weights[b, :, t, same[-1] + 1]
                count += 1
    return total / count


def logit_terms(terms, gamma, beta, direction, eps):
    x = terms.sum(axis=0)  # (T, C): the stream at the end
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)  # (T, 1): frozen
    parts = (terms - terms.mean(axis=-1, keepdims=True)) * scale * gamma  # (N, T, C)
    return parts @ direction, beta @ direction


def patch_shares(after, own, other):
    before, wanted = after(own), after(other)
    values = np.zeros(len(own))
    for t in range(len(own)):
        patched = own.copy()
        patched[t] = other[t]
        values[t] = after(patched)
    return (values - before) / (wanted - before)


def circuits(query, key, value, output, num_heads):
    D = query.shape[1] // num_heads
    qk, ov = [], []
    for h in range(num_heads):
        part = slice(h * D, (h + 1) * D)
        qk.append(query[:, part] @ key[:, part].T / np.sqrt(D))
        ov.append(value[:, part] @ output[part])
    return np.stack(qk), np.stack(ov)


def key_composition(qk, ov):
    scores = np.zeros((len(qk), len(ov)))
    for later, reads in enumerate(qk):
        for earlier, writes in enumerate(ov):
            product = reads @ writes.T
            scores[later, earlier] = np.linalg.norm(product) / (np.linalg.norm(reads) * np.linalg.norm(writes))
    return scores
