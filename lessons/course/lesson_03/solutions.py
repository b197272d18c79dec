"""Solutions of lesson 03."""

import numpy as np


def additive_scores(query, key, score_weight):
    features = np.tanh(query[:, :, None] + key[:, None])  # (B, Tq, Tk, C)
    return features @ score_weight, features


def rnn_backward(dhidden, hidden, recurrent):
    B, T, C = dhidden.shape
    dprojected = np.empty_like(dhidden)
    dbefore = np.zeros((B, C), dhidden.dtype)  # what the state after sends back; after the last there is none
    for t in reversed(range(T)):
        dstate = dhidden[:, t] + dbefore  # h_t was used twice
        dprojected[:, t] = dstate * (1 - hidden[:, t + 1] ** 2)  # hidden[:, t + 1] = tanh(...)
        dbefore = dprojected[:, t] @ recurrent.T  # ... + hidden[:, t] @ recurrent
    drecurrent = hidden[:, :-1].reshape(-1, C).T @ dprojected.reshape(-1, C)  # Σ_t h_{t−1}ᵀ da_t
    return dprojected, dbefore, drecurrent


def additive_scores_backward(dscores, features, score_weight):
    dfeatures = dscores[..., None] * score_weight  # (B, Tq, Tk, C)
    dscore_weight = np.tensordot(dscores, features, axes=3)  # (C,)
    dsum = dfeatures * (1 - features**2)  # features = tanh(query + key)
    return dsum.sum(axis=2), dsum.sum(axis=1), dscore_weight
