"""Solutions of lesson 07."""

import numpy as np


def feed_forward_forward(x, weight1, bias1, weight2, bias2):
    hidden = x @ weight1 + bias1  # (T, F): all questions to all positions
    active = np.maximum(0, hidden)
    return active @ weight2 + bias2, (x, active, weight1, weight2)


def layernorm_forward(x, gamma, beta, eps=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)  # (N, 1)
    normed = centred * rstd
    return gamma * normed + beta, (normed, rstd, gamma)


def layernorm_backward(dy, normed, rstd, gamma):
    dgamma = (dy * normed).sum(axis=0)  # y = gamma · normed + beta
    dbeta = dy.sum(axis=0)
    dnormed = dy * gamma  # (N, C)
    mean = dnormed.mean(axis=-1, keepdims=True)  # the part along (1, …, 1)
    along = (dnormed * normed).mean(axis=-1, keepdims=True)  # the part along normed
    return rstd * (dnormed - mean - normed * along), dgamma, dbeta


def dropout_forward(x, rate, uniform):
    kept = uniform >= rate
    return x * kept / (1 - rate), kept


def add_norm_backward(dy, cache, sublayer_backward):
    sublayer_cache, kept, rate, norm_cache = cache
    dsum, dgamma, dbeta = layernorm_backward(dy, *norm_cache)  # y = LayerNorm(x + dropped)
    dout = dsum * kept / (1 - rate)  # dropped = Dropout(out)
    return dsum + sublayer_backward(dout, sublayer_cache), dgamma, dbeta  # x + …: it was used twice
