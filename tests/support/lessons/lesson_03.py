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


RIGHT = {"rnn_backward": [_rnn], "additive_scores_backward": [_scores_loops]}


EDITS = r"""
[rnn_backward]
the future is forgotten | + dbefore → | does not reach every position before it
the loop runs forward | reversed(range(T)) → range(T) | does the loop run from the last
U is not transposed | recurrent.T → recurrent | dfirst is not dprojected_1 Uᵀ
the slope of the state before | 1 - hidden[:, t + 1] → 1 - hidden[:, t] | with U = 0
no slope of tanh | dstate * (1 - hidden[:, t + 1] ** 2) → dstate | where every state is 1 or −1
the state after instead of before | hidden[:, :-1] → hidden[:, 1:] | U multiplied the state before
averaged over sentences
    return dprojected, dbefore, drecurrent → return dprojected, dbefore, drecurrent / B | drecurrent must double
drecurrent of the last step alone
    hidden[:, :-1].reshape(-1, C).T @ dprojected.reshape(-1, C) → hidden[:, -2].T @ dprojected[:, -1]
    the gradient of recurrent is wrong
two arrays | return dprojected, dbefore, drecurrent → return dprojected, dbefore | must return 3 arrays
always float64 | np.empty_like(dhidden) → np.zeros(dhidden.shape) | np.zeros makes float64
drecurrent transposed
    return dprojected, dbefore, drecurrent → return dprojected, dbefore, drecurrent.T | drecurrent is transposed
drecurrent averaged over time
    return dprojected, dbefore, drecurrent → return dprojected, dbefore, drecurrent / T | 0.2 times the true gradient
clipped
    return dprojected, dbefore, drecurrent → return dprojected, dbefore, drecurrent.clip(-5, 5)
    1000 times the dhidden must give 1000 times the drecurrent
float32
    return dprojected, dbefore, drecurrent →
        return [np.float32(gradient) for gradient in (dprojected, dbefore, drecurrent)]
    a gradient is float32
adds into dhidden | recurrent.T → recurrent.T\n        dhidden[:, t - 1] += dbefore | writes into its argument dhidden
dfirst without U
    return dprojected, dbefore → return dprojected, dprojected[:, 0] | as if h_0 had been added without going through U
cut off after 6 steps | + dbefore → + (dbefore if t >= T - 6 else 0) | or the way back cut off after some steps?
[additive_scores_backward]
swapped
    dsum.sum(axis=2), dsum.sum(axis=1) → dsum.sum(axis=1), dsum.sum(axis=2) | what is summed over is the key's axis
tanh twice | 1 - features**2 → 1 - np.tanh(features) ** 2 | tanh is flat
without score_weight
    dscores[..., None] * score_weight → dscores[..., None] + 0 * score_weight | so it is a factor of their gradient
averaged over queries | dsum.sum(axis=1) → dsum.mean(axis=1) | query and key enter only as their sum
dscore_weight averaged
    dsum.sum(axis=2), dsum.sum(axis=1), dscore_weight →
        dsum.sum(axis=2), dsum.sum(axis=1), dscore_weight / len(dscores)
    dscore_weight must double
dscore_weight through tanh's slope
    (dscores, features, axes → (dscores, 1 - features**2, axes | the gradient of score_weight is wrong
1 − |features| | features**2 → abs(features) | is not dscore · score_weight · (1 − features²)
float32
    return dsum.sum(axis=2), dsum.sum(axis=1), dscore_weight →
        return [np.float32(g) for g in (dsum.sum(axis=2), dsum.sum(axis=1), dscore_weight)]
    a gradient is float32
always float64 | dfeatures = dscores → dfeatures = np.float64(dscores) | np.zeros makes float64
a score_weight for each sentence
    np.tensordot(dscores, features, axes=3) → np.einsum("bqk,bqkc->bc", dscores, features)
    dscore_weight has shape (2, 4)
"""

WRONG = {"rnn_backward": {"truncated": (_truncated, "reaches 3 of the 5 positions and must reach all")}}
