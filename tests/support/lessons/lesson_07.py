"""Answers to lesson 07: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from minitransformer.ops import layernorm_backward


def _norm_by_jacobians(dy, normed, rstd, gamma):
    C = len(gamma)
    jacobians = rstd[:, :, None] * (np.eye(C) - 1 / C - normed[:, :, None] * normed[:, None, :] / C)
    return np.einsum("nc,ncd->nd", dy * gamma, jacobians), np.einsum("nc,nc->c", dy, normed), dy.sum(axis=0)


def _norm_line_by_line(dy, normed, rstd, gamma):
    centred, dnormed = normed / rstd, dy * gamma
    dcentred = dnormed * rstd
    dvariance = -0.5 * rstd**3 * (dnormed * centred).sum(axis=-1, keepdims=True)
    dcentred += 2 / len(gamma) * centred * dvariance
    return dcentred - dcentred.mean(axis=-1, keepdims=True), (dy * normed).sum(axis=0), dy.sum(axis=0)


def _dropout_in_loops(x, rate, uniform):
    y, kept = np.zeros_like(x), np.zeros(x.shape, dtype=bool)
    for place in np.ndindex(x.shape):
        if not uniform[place] < rate:
            y[place], kept[place] = x[place] / (1 - rate), True
    return y, kept


def _off_at_rate_0(x, rate, uniform):
    if rate == 0:
        return x, np.ones(x.shape, dtype=bool)
    return np.where(uniform >= rate, x / (1 - rate), 0.0), uniform >= rate


def _both_branches_in_place(dy, cache, sublayer_backward):
    sublayer_cache, kept, rate, norm_cache = cache
    dsum, dgamma, dbeta = layernorm_backward(dy, norm_cache)
    dx = sublayer_backward(np.where(kept, dsum / (1 - rate), 0.0), sublayer_cache)
    dx += dsum
    return [dx, dgamma, dbeta]


RIGHT = {
    "layernorm_backward": [_norm_by_jacobians, _norm_line_by_line],
    "dropout_forward": [_dropout_in_loops, _off_at_rate_0],
    "add_norm_backward": [_both_branches_in_place],
}


EDITS = r"""
[layernorm_backward]
statistics as constants | (dnormed - mean - normed * along) → dnormed | does not sum to 0
only the mean | - normed * along → | dx · normed is not 0
means over the rows | .mean(axis=-1, keepdims=True) → .mean(axis=0) | over the channels of each row
rstd missing | return rstd * → return 1 * | proportional to rstd
gamma missing | dnormed = dy * gamma → dnormed = dy | with gamma twice as large
means of dy
    mean = dnormed.mean → mean = gamma.mean() * dy.mean | along = (dnormed → along = gamma.mean() * (dy
    right where all of gamma is the same
averaged rows | (dy * normed).sum → (dy * normed).mean | dgamma must double
rows not summed | (dy * normed).sum(axis=0) → dy * normed | dy.sum(axis=0) → dy | dgamma has shape
dbeta for dgamma | (dy * normed).sum → dy.sum | with normed twice as large dgamma must double
gamma in dgamma | (dy * normed).sum → (dy * gamma * normed).sum | dgamma depends on gamma
gamma in dbeta | dy.sum → (dy * gamma).sum | dbeta depends on gamma
dgamma and dbeta exchanged | along), dgamma, dbeta → along), dbeta, dgamma | dgamma and dbeta are exchanged
dx last
    return rstd * (dnormed - mean - normed * along), dgamma, dbeta →
        return dgamma, dbeta, rstd * (dnormed - mean - normed * along)
    dx comes first, then dgamma, then dbeta
projected
    return rstd * (dnormed - mean - normed * along), →
        inside = rstd * (dnormed - mean)\n    along = (inside * normed).sum(axis=-1, keepdims=True) /
        (normed**2).sum(axis=-1, keepdims=True)\n    return inside - normed * along,
    where ε counts
in float32
    rstd * (dnormed - mean - normed * along) → (rstd * (dnormed - mean - normed * along)).astype("float32")
    float32, which rounds
means of 5
    .mean(axis=-1, keepdims=True) → .sum(axis=-1, keepdims=True) / 5
    with 3 rows of 8 dx is wrong: is a number written where C belongs?
[dropout_forward]
not divided | x * kept / (1 - rate), kept → x * kept, kept | must make up for what is dropped
keeps the rate
    uniform >= rate → uniform < rate | x * kept / (1 - rate), kept → x * kept / rate, kept | the share that is dropped
divided by the rate | x * kept / (1 - rate), kept → x * kept / (rate or 1), kept | divide by 1 − rate
multiplied | x * kept / (1 - rate), kept → x * kept * (1 - rate), kept | which is (1 − rate)²: divide
a mask of its own
    uniform >= rate → uniform * 1e4 % 1 > 0.4 | x * kept / (1 - rate), kept → x * kept, kept | exactly where `uniform`
the dropped for the kept | x * kept / (1 - rate), kept → x * kept / (1 - rate), ~kept | what is kept, not
divided by the share | x * kept / (1 - rate), kept → x * kept / kept.mean(), kept | the share that happened to be kept
above the rate | >= → > | whose number is exactly the rate
two axes
    return x * kept / (1 - rate), kept → rows, columns = x.shape\n    return x * kept / (1 - rate), kept
    for x of shape (300,) and rate 0.35, it raises
no mask at rate 0 | x * kept / (1 - rate), kept → x * kept / (1 - rate), kept if rate else None | kept is None
ones at rate 0
    x * kept / (1 - rate), kept → x * kept / (1 - rate), kept if rate else 1.0 * kept
    and rate 0.0, kept holds float64
a rate of 0.2 | kept = uniform → rate = rate and 0.2\n    kept = uniform | rate 0.35, kept must be True exactly
a sum in place of a quotient | x * kept / (1 - rate), kept → x * kept * (1 + rate), kept | which is 1 − rate²
in float32 | x * kept / (1 - rate), kept → (x * kept / (1 - rate)).astype("float32") | must return 2 arrays
y in float32 | x * kept / (1 - rate), kept → (x * kept / (1 - rate)).astype("float32"), kept | float32, which rounds
a mask of numbers | x * kept / (1 - rate), kept → x * kept / (1 - rate), 1.0 * kept | True or False
[add_norm_backward]
no way round | return dsum + → return | is missing
no mask | dsum * kept / (1 - rate) → dsum | where its output was dropped
not divided | dsum * kept / (1 - rate) → dsum * kept | which is 1 − rate: the backward
divided by the rate | dsum * kept / (1 - rate) → dsum * kept / rate | divide by 1 − rate
multiplied | dsum * kept / (1 - rate) → dsum * kept * (1 - rate) | which is (1 − rate)²
past the norm | dsum * kept / (1 - rate) → dy * kept / (1 - rate) | inside the norm
the mask written over | dout = dsum → kept[...] = True\n    dout = dsum | it writes into its argument cache[1]
a rate of 0.4 | dsum * kept / (1 - rate) → dsum * kept / 0.6 | at rate 0.25, what arrives
divided by the share | dsum * kept / (1 - rate) → dsum * kept / kept.mean() | the share that happened to be kept
through the sub-layer twice
    dsum * kept / (1 - rate) → dsum * kept | return dsum + → return sublayer_backward(dout, sublayer_cache) +
    must be called once
dropped on the lane | return dsum → return dout | the other branch, x itself, goes through dropout
in float32
    dsum + sublayer_backward(dout, sublayer_cache) → (dsum + sublayer_backward(dout, sublayer_cache)).astype("float32")
    float32, which rounds
the lane past the norm | return dsum → return dy | which the norm, and no dropout, stands behind
means of 6 | .mean(axis=-1, keepdims=True) → .sum(axis=-1, keepdims=True) / 6 | 3 rows of 9 are not: dx is wrong
"""
