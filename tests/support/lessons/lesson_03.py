"""Answers to lesson 03: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _truncated(dhidden, hidden, recurrent, steps=3):
    dprojected = np.zeros_like(dhidden)
    for end in range(dhidden.shape[1]):
        dstate = dhidden[:, end]
        for t in range(end, max(-1, end - steps), -1):
            dsum = dstate * (1 - hidden[:, t + 1] ** 2)
            dprojected[:, t] += dsum
            dstate = dsum @ recurrent.T
    return dprojected, dprojected[:, 0] @ recurrent.T, np.einsum("bti,btj->ij", hidden[:, :-1], dprojected)


def _rnn(dhidden, hidden, recurrent):
    drecurrent, dprojected, dbefore = np.zeros_like(recurrent), np.zeros_like(dhidden), 0
    for t in range(dhidden.shape[1] - 1, -1, -1):
        dprojected[:, t] = (dhidden[:, t] + dbefore) * (1 - hidden[:, t + 1]) * (1 + hidden[:, t + 1])
        drecurrent += hidden[:, t].T @ dprojected[:, t]
        dbefore = np.einsum("bj,ij->bi", dprojected[:, t], recurrent)
    return [dprojected, dbefore, drecurrent]


def _scores_loops(dscores, features, score_weight):
    B, Tq, Tk, C = features.shape
    dquery, dkey = np.zeros((B, Tq, C), features.dtype), np.zeros((B, Tk, C), features.dtype)
    dscore_weight = np.zeros_like(score_weight)
    for b, i, j in np.ndindex(B, Tq, Tk):
        dsum = dscores[b, i, j] * score_weight * (1 - features[b, i, j] ** 2)
        dquery[b, i] += dsum
        dkey[b, j] += dsum
        dscore_weight += dscores[b, i, j] * features[b, i, j]
    return dquery, dkey, dscore_weight


def _scores_by_einsum(query, key, score_weight):
    e, f = np.expand_dims(query, 2), np.expand_dims(key, 1)
    features = np.tanh(np.repeat(e, key.shape[1], axis=2) + f)
    return [np.einsum("bqkc,c->bqk", features, score_weight), features]


RIGHT = {
    "additive_scores": [_scores_by_einsum],
    "rnn_backward": [_rnn],
    "additive_scores_backward": [_scores_loops],
}


MISTAKES = r"""
[additive_scores]
the logistic function
    np.tanh(query[:, :, None] + key[:, None]) → 1 / (1 + np.exp(-query[:, :, None] - key[:, None])) | is 1 / (1 + e^−x)
no new axes | query[:, :, None] + key[:, None] → query + key | could not be broadcast
no new axes, as many keys as there are queries
    query[:, :, None] + key[:, None] → query + key[:, : query.shape[1]] | every query of a sentence meets every key
the keys' axis first | query[:, :, None] + key[:, None] → query[:, None] + key[:, :, None] | a row for each key
no tanh | np.tanh(query[:, :, None] + key[:, None]) → query[:, :, None] + key[:, None] | is the tanh taken at all?
the product | query[:, :, None] + key → query[:, :, None] * key | is it the sum that goes into the tanh
the difference | query[:, :, None] + key → query[:, :, None] - key | as if the one were subtracted from the other
tanh of each
    np.tanh(query[:, :, None] + key[:, None]) → (np.tanh(query[:, :, None]) + np.tanh(key[:, None])) / 2
    the sum comes first, then one tanh of it
the key is forgotten | + key[:, None] → + 0 * key[:, None] | another key makes no other feature
not summed | features @ score_weight → features * score_weight | an axis of the C numbers
the mean | features @ score_weight → features @ score_weight / len(score_weight) | not their mean
the other order
    return features @ score_weight, features → return features, features @ score_weight | in the other order
the score weight is forgotten | features @ score_weight → features.sum(axis=-1) | twice the score_weight
the first sentence's keys | + key[:, None]) → + key[:1, None]) | each sentence stands for itself
divided by √C | features @ score_weight → features @ score_weight / len(score_weight) ** 0.5 | scores are not scaled
a list
    return features @ score_weight, features → return (features @ score_weight).tolist(), features
    and returns lists
no axis of length 1 | @ score_weight, features → @ score_weight, features.squeeze() | an axis of length 1 lost
always float64 | np.tanh(query → np.tanh(np.float64(query) | np.zeros makes float64
[rnn_backward]
the last gradient twice | np.zeros((B, C), dhidden.dtype) → dhidden[:, -1].copy() | counts its dhidden twice
the future is forgotten | + dbefore → | does not reach every position before it
the loop runs forward | reversed(range(T)) → range(T) | does the loop run from the last
U is not transposed | recurrent.T → recurrent | dfirst is not dprojected_1 Uᵀ
the slope of the state before | 1 - hidden[:, t + 1] → 1 - hidden[:, t] | with U = 0
no slope of tanh | dstate * (1 - hidden[:, t + 1] ** 2) → dstate | where every state is 1 or −1
the state after instead of before | hidden[:, :-1] → hidden[:, 1:] | U multiplied the state before
averaged over sentences | returns dprojected, dbefore, drecurrent / B | drecurrent must double
drecurrent of the last step alone
    hidden[:, :-1].reshape(-1, C).T @ dprojected.reshape(-1, C) → hidden[:, -2].T @ dprojected[:, -1]
    the gradient of recurrent is wrong
h_0 left out of drecurrent
    hidden[:, :-1].reshape(-1, C).T @ dprojected.reshape(-1, C) →
        hidden[:, 1:-1].reshape(-1, C).T @ dprojected[:, 1:].reshape(-1, C)
    h_0 went through U as every other state did
always float64 | np.empty_like(dhidden) → np.zeros(dhidden.shape) | np.zeros makes float64
drecurrent transposed | returns dprojected, dbefore, drecurrent.T | drecurrent is transposed
drecurrent averaged over time | returns dprojected, dbefore, drecurrent / T | 0.2 times the true gradient
clipped
    returns dprojected, dbefore, drecurrent.clip(-5, 5) | 1000 times the dhidden must give 1000 times the drecurrent
dfirst without U | returns dprojected, dprojected[:, 0], drecurrent | as if h_0 had been added without going through U
cut off after 6 steps | + dbefore → + (dbefore if t >= T - 6 else 0) | or the way back cut off after some steps?
truncated | is _truncated | reaches 3 of the 5 positions and must reach all
[additive_scores_backward]
dscore_weight with score_weight
    returns dsum.sum(axis=2), dsum.sum(axis=1), dscore_weight * score_weight | changes with score_weight
swapped | returns dsum.sum(axis=1), dsum.sum(axis=2), dscore_weight | what is summed over is the key's axis
tanh twice | 1 - features**2 → 1 - np.tanh(features) ** 2 | tanh is flat
without score_weight | dscores[..., None] * → dscores[..., None] + 0 * | so it is a factor of their gradient
averaged over queries | dsum.sum(axis=1) → dsum.mean(axis=1) | query and key enter only as their sum
dscore_weight averaged
    returns dsum.sum(axis=2), dsum.sum(axis=1), dscore_weight / len(dscores) | dscore_weight must double
dscore_weight through tanh's slope
    (dscores, features, axes → (dscores, 1 - features**2, axes | the gradient of score_weight is wrong
1 − |features| | features**2 → abs(features) | is not dscore · score_weight · (1 − features²)
clipped | dfeatures = dscores → dfeatures = dscores.clip(-5, 5) | must give 1000 times the dquery
always float64 | dfeatures = dscores → dfeatures = np.float64(dscores) | np.zeros makes float64
a score_weight for each sentence
    tensordot(dscores, features, axes=3) → einsum("bqk,bqkc->bc", dscores, features) | dscore_weight has shape (2, 4)
"""
