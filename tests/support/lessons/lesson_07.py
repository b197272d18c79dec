"""Answers to lesson 07: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from minitransformer.ops import layernorm_backward


def _feed_forward_in_loops(x, weight1, bias1, weight2, bias2):
    active = np.array([[max(0.0, row @ weight1[:, f] + bias1[f]) for f in range(len(bias1))] for row in x])
    return [active @ weight2 + bias2, [x, active, weight1, weight2]]


def _norm_by_std(x, gamma, beta, eps=1e-5):
    rstd = (x.var(axis=1) + eps)[:, None] ** -0.5
    normed = (x - x.mean(axis=1)[:, None]) * rstd
    return normed * gamma + beta, (normed, rstd, gamma)


def _norm_by_jacobians(dy, normed, rstd, gamma):
    C = len(gamma)
    jacobians = rstd[:, :, None] * (np.eye(C) - 1 / C - normed[:, :, None] * normed[:, None, :] / C)
    return np.einsum("nc,ncd->nd", dy * gamma, jacobians), np.einsum("nc,nc->c", dy, normed), dy.sum(axis=0)


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
    "feed_forward_forward": [_feed_forward_in_loops],
    "layernorm_forward": [_norm_by_std],
    "layernorm_backward": [_norm_by_jacobians],
    "dropout_forward": [_dropout_in_loops, _off_at_rate_0],
    "add_norm_backward": [_both_branches_in_place],
}


MISTAKES = r"""
[feed_forward_forward]
the logistic function | np.maximum(0, hidden) → 1 / (1 + np.exp(-hidden)) | with +100 on all of bias1
a leak | np.maximum(0, hidden) → np.where(hidden > 0, hidden, 0.01 * hidden) | with -100 on all of bias1
no relu | np.maximum(0, hidden) → 1 * hidden | gives without the relu
a second relu | return active @ weight2 + bias2 → return np.maximum(0, active @ weight2 + bias2) | with a second relu
no first bias | x @ weight1 + bias1 → x @ weight1 | without bias1
the bias late | @ weight1 + bias1 → @ weight1 | np.maximum(0, hidden) → np.maximum(0, hidden) + bias1 | after the relu
no second bias | active @ weight2 + bias2 → active @ weight2 | without bias2
the size of the answer | np.maximum(0, hidden) → np.abs(hidden) | the absolute value
the residual connection | return active → return x + active | the residual connection comes later
before the relu | (x, active, weight1 → (x, hidden, weight1 | what stands before the relu
no cache | bias2, (x, active, weight1, weight2) → bias2 | must return two things, y and cache
a cache of two | (x, active, weight1, weight2) → (x, active) | cache must be a tuple of 4
weights first | (x, active, weight1, weight2) → (weight1, active, weight2, x) | the order is x, active
a smooth relu | np.maximum(0, hidden) → np.log1p(np.exp(hidden)) | has a corner there, no curve
in float32 | np.maximum(0, hidden) → np.maximum(0, hidden).astype("float32") | or a number float32?
no axis of length 1
    return active @ weight2 + bias2 → return (active @ weight2 + bias2).squeeze()
    for T = 1, C = 5, F = 2, y has shape (5,)
where the relu is open | (x, active, weight1 → (x, hidden > 0, weight1 | the cache has where the relu is open
[layernorm_forward]
no gamma | gamma * normed + beta → normed + beta | gamma is not used
the root mean square | centred = x - x.mean(axis=-1, keepdims=True) → centred = x | neither in the variance
over the rows | axis=-1, keepdims → axis=0, keepdims | normed over the rows
Bessel's correction | (centred**2).mean(axis=-1, keepdims=True) → x.var(axis=-1, ddof=1, keepdims=True) | by C − 1
ε outside
    np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps) →
        (np.sqrt((centred**2).mean(axis=-1, keepdims=True)) + eps)
    it stands under it
no root | 1 / np.sqrt( → 1 / ( | the root is missing
no ε | + eps → | eps is not used
its own ε
    np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps) →
        np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 0.1)
    channels, y is wrong in
the mean left | centred * rstd → x * rstd | the mean is not subtracted
the mean of squares | (centred**2).mean → (x**2).mean | and not of x²
gamma and beta forgotten | return gamma * normed + beta → return normed | gamma and beta are not used
beta forgotten | return gamma * normed + beta → return gamma * normed | beta is not added
gamma and beta exchanged | gamma * normed + beta → beta * normed + gamma | gamma and beta are exchanged
all rows at once
    x.mean(axis=-1, keepdims=True) → x.mean() | (centred**2).mean(axis=-1, keepdims=True) → (centred**2).mean()
    mean and variance are of all numbers
the variance of all rows | (centred**2).mean(axis=-1, keepdims=True) → (centred**2).mean() | the variance is of all rows
a sum for the variance | (centred**2).mean( → (centred**2).sum( | the variance is a sum
no axis of length 1 | return gamma * normed + beta → return (gamma * normed + beta).squeeze() | y has shape (40,)
cut off
    centred * rstd → np.clip(centred * rstd, -3, 3)
    for 1 row of 40 channels, y is wrong
beta inside | gamma * normed + beta → gamma * (normed + beta) | beta is scaled by gamma
multiplied | normed = centred * rstd → normed = centred / rstd | multiplies by the standard deviation
a flat rstd | (normed, rstd, gamma) → (normed, rstd[:, 0], gamma) | the axis stays
the standard deviation kept | (normed, rstd, gamma) → (normed, 1 / rstd, gamma) | is the standard deviation
y kept | (normed, rstd, gamma) → (gamma * normed + beta, rstd, gamma) | the cache has y where normed
x − mean kept | (normed, rstd, gamma) → (centred, rstd, gamma) | x − mean where normed
beta kept | (normed, rstd, gamma) → (normed, rstd, beta) | the third part of the cache must be gamma
no cache | , (normed, rstd, gamma) → | must return two things
cancellation
    (centred**2).mean(axis=-1, keepdims=True) → (x**2).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2
    lose their digits
another default | eps=1e-5 → eps=1e-3 | it must be 1e-5
[layernorm_backward]
statistics as constants | returns rstd * dnormed, dgamma, dbeta | does not sum to 0
only the mean | - normed * along → | dx · normed is not 0
means over the rows | .mean(axis=-1, keepdims=True) → .mean(axis=0) | over the channels of each row
rstd missing | return rstd * → return 1 * | dx lacks the factor rstd
rstd twice | return rstd * → return rstd**2 * | dx is not proportional to rstd
dn without rstd
    return rstd * (dnormed - mean - normed * along) → return dnormed - mean - rstd * normed * along
    dx has dn where rstd · dn belongs
a = normed · rstd
    return rstd * (dnormed - mean - normed * along) → return rstd * (dnormed - mean) - rstd**5 * normed * along
    so a is normed / rstd
a = normed · rstd, and dn without rstd
    return rstd * (dnormed - mean - normed * along) → return dnormed - mean - rstd**5 * normed * along
    and has dn where rstd · dn belongs
gamma missing | dnormed = dy * gamma → dnormed = dy | with gamma twice as large
means of dy | dnormed. → gamma.mean() * dy. | = (dnormed → = gamma.mean() * (dy | right where all of gamma is the same
averaged rows | (dy * normed).sum → (dy * normed).mean | dgamma must double
rows not summed | (dy * normed).sum(axis=0) → dy * normed | dy.sum(axis=0) → dy | dgamma has shape
dbeta for dgamma | (dy * normed).sum → dy.sum | with normed twice as large dgamma must double
gamma in dgamma | (dy * normed).sum → (dy * gamma * normed).sum | dgamma depends on gamma
gamma in dbeta | dy.sum → (dy * gamma).sum | dbeta depends on gamma
dgamma and dbeta exchanged | along), dgamma, dbeta → along), dbeta, dgamma | dgamma and dbeta are exchanged
dx last | returns dgamma, dbeta, rstd * (dnormed - mean - normed * along) | dx comes first, then dgamma, then dbeta
projected
    return rstd * (dnormed - mean - normed * along), →
        inside = rstd * (dnormed - mean)\n    along = (inside * normed).sum(axis=-1, keepdims=True) /
        (normed**2).sum(axis=-1, keepdims=True)\n    return inside - normed * along,
    where ε counts
means of 5
    .mean(axis=-1, keepdims=True) → .sum(axis=-1, keepdims=True) / 5
    with 3 rows of 8 dx is wrong: is a number written where C belongs?
[dropout_forward]
not divided | returns x * kept, kept | must make up for what is dropped
keeps the rate | uniform >= rate → uniform < rate | x * kept / (1 - rate) → x * kept / rate | the share that is dropped
divided by the rate | returns x * kept / (rate or 1), kept | divide by 1 − rate
multiplied | returns x * kept * (1 - rate), kept | which is (1 − rate)²: divide
a mask of its own | uniform >= rate → uniform * 1e4 % 1 > 0.4 | * kept / (1 - rate), → * kept, | exactly where `uniform`
what is not 0 is kept | returns x * kept / (1 - rate), x * kept != 0 | kept is False where x is 0: it
what is positive is kept | returns x * kept / (1 - rate), x * kept > 0 | kept is False where x is 0 or below
nothing negative | returns np.maximum(x, 0) * kept / (1 - rate), kept | y is wrong in
the dropped for the kept | returns x * kept / (1 - rate), ~kept | what is kept, not
divided by the share | returns x * kept / kept.mean(), kept | the share that happened to be kept
above the rate | >= → > | whose number is exactly the rate
two axes | return x * → rows, columns = x.shape\n    return x * | for x of shape (300,) and rate 0.35, it raises
no mask at rate 0 | returns x * kept / (1 - rate), kept if rate else None | kept is None
ones at rate 0 | returns x * kept / (1 - rate), kept if rate else 1.0 * kept | and rate 0.0, kept holds float64
a rate of 0.2 | kept = uniform → rate = rate and 0.2\n    kept = uniform | rate 0.35, kept must be True exactly
a sum in place of a quotient | returns x * kept * (1 + rate), kept | which is 1 − rate²
a mask of numbers | returns x * kept / (1 - rate), 1.0 * kept | True or False
[add_norm_backward]
the other way alone missing
    return dsum + sublayer_backward(dout, sublayer_cache) → sublayer_backward(dout, sublayer_cache)\n    return 1 * dsum
    is the gradient of the sum alone
no way round | return dsum + → return | x also goes round it
no mask | dsum * kept / (1 - rate) → dsum | where its output was dropped
not divided | dsum * kept / (1 - rate) → dsum * kept | which is 1 − rate: the backward
divided by the rate | dsum * kept / (1 - rate) → dsum * kept / rate | divide by 1 − rate
multiplied | dsum * kept / (1 - rate) → dsum * kept * (1 - rate) | which is (1 − rate)²
past the norm | dsum * kept / (1 - rate) → dy * kept / (1 - rate) | inside the norm
a rate of 0.4 | dsum * kept / (1 - rate) → dsum * kept / 0.6 | at rate 0.25, what arrives
divided by the share | dsum * kept / (1 - rate) → dsum * kept / kept.mean() | the share that happened to be kept
through the sub-layer twice
    dsum * kept / (1 - rate) → dsum * kept | dsum + → sublayer_backward(dout, sublayer_cache) + | must be called once
dropped on the lane | return dsum → return dout | the other branch, x itself, goes through dropout
the lane past the norm | return dsum → return dy | which the norm, and no dropout, stands behind
means of 6 | .mean(axis=-1, keepdims=True) → .sum(axis=-1, keepdims=True) / 6 | 3 rows of 9 are not: dx is wrong
"""
