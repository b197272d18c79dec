"""Answers to lesson 07: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from minitransformer.ops import layernorm_backward


def _norm(dx):
    """A wrong layernorm_backward, from its dx."""
    return lambda dy, n, r, g: (dx(dy * g, n, r), (dy * n).sum(0), dy.sum(0))


def _mean(x, axis=-1):
    return x.mean(axis=axis, keepdims=True)


def _right(dn, n, r):
    return r * (dn - _mean(dn) - n * _mean(dn * n))


def _means_of_dy(dy, n, r, g):
    return r * (dy * g - g.mean() * _mean(dy) - n * _mean(dy * n) * g.mean()), (dy * n).sum(0), dy.sum(0)


def _projected(dn, n, r):
    inside = r * (dn - _mean(dn))
    return inside - n * (inside * n).sum(axis=-1, keepdims=True) / (n * n).sum(axis=-1, keepdims=True)


def _dropped(x, rate, uniform):
    return x * (uniform >= rate) / (1 - rate), uniform >= rate


def _row_by_row(x, rate, uniform):
    y, kept = np.zeros_like(x), np.zeros(x.shape, dtype=bool)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if uniform[i, j] >= rate:
                y[i, j], kept[i, j] = x[i, j] / (1 - rate), True
    return y, kept


def _keeps_everything(dy, cache, sublayer_backward):
    cache[1][...] = True
    return _add_norm(lambda dy, dsum, kept, rate, sub: dsum + sub(dsum / (1 - rate)))(dy, cache, sublayer_backward)


def _add_norm(combine):
    """A wrong add_norm_backward: `combine(dy, dsum, kept, rate, sub)` gives dx."""

    def backward(dy, cache, sublayer_backward):
        sublayer_cache, kept, rate, norm_cache = cache
        dsum, dgamma, dbeta = layernorm_backward(dy, norm_cache)
        return combine(dy, dsum, kept, rate, lambda d: sublayer_backward(d, sublayer_cache)), dgamma, dbeta

    return backward


def _means_of_five(dy, normed, rstd, gamma):
    dn = dy * gamma
    dx = dn - dn.sum(-1, keepdims=True) / 5 - normed * (dn * normed).sum(-1, keepdims=True) / 5
    return rstd * dx, (dy * normed).sum(axis=0), dy.sum(axis=0)


def _norm_of_six(dy, cache, sublayer_backward):
    sublayer_cache, kept, rate, (normed, rstd, gamma) = cache
    dn = dy * gamma
    dsum = rstd * (dn - dn.sum(-1, keepdims=True) / 6 - normed * (dn * normed).sum(-1, keepdims=True) / 6)
    dx = dsum + sublayer_backward(dsum * kept / (1 - rate), sublayer_cache)
    return dx, (dy * normed).sum(axis=0), dy.sum(axis=0)


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


WRONG = {
    "layernorm_backward": {
        "statistics as constants": (_norm(lambda dn, n, r: r * dn), "does not sum to 0"),
        "only the mean": (_norm(lambda dn, n, r: r * (dn - _mean(dn))), "dx · normed is not 0"),
        "means over the rows": (
            _norm(lambda dn, n, r: r * (dn - _mean(dn, 0) - n * _mean(dn * n, 0))),
            "over the channels of each row",
        ),
        "rstd missing": (_norm(lambda dn, n, r: _right(dn, n, 1 + 0 * r)), "proportional to rstd"),
        "gamma missing": (
            lambda dy, n, r, g: (_right(dy, n, r), (dy * n).sum(0), dy.sum(0)),
            "with gamma twice as large",
        ),
        "means of dy": (_means_of_dy, "right where all of gamma is the same"),
        "averaged rows": (
            lambda dy, n, r, g: (_right(dy * g, n, r), (dy * n).mean(0), dy.sum(0)),
            "dgamma must double",
        ),
        "rows not summed": (lambda dy, n, r, g: (_right(dy * g, n, r), dy * n, dy), "dgamma has shape"),
        "dbeta for dgamma": (
            lambda dy, n, r, g: (_right(dy * g, n, r), dy.sum(0), dy.sum(0)),
            "with normed twice as large dgamma must double",
        ),
        "gamma in dgamma": (
            lambda dy, n, r, g: (_right(dy * g, n, r), (dy * g * n).sum(0), dy.sum(0)),
            "dgamma depends on gamma",
        ),
        "gamma in dbeta": (
            lambda dy, n, r, g: (_right(dy * g, n, r), (dy * n).sum(0), (dy * g).sum(0)),
            "dbeta depends on gamma",
        ),
        "dgamma and dbeta exchanged": (
            lambda dy, n, r, g: (_right(dy * g, n, r), dy.sum(0), (dy * n).sum(0)),
            "dgamma and dbeta are exchanged",
        ),
        "dx last": (
            lambda dy, n, r, g: ((dy * n).sum(0), dy.sum(0), _right(dy * g, n, r)),
            "dx comes first, then dgamma, then dbeta",
        ),
        "projected": (_norm(_projected), "where ε counts"),
        "in float32": (
            lambda dy, n, r, g: (_right(dy * g, n, r).astype(np.float32), (dy * n).sum(0), dy.sum(0)),
            "float32, which rounds",
        ),
        "means of 5": (_means_of_five, "with 3 rows of 8 dx is wrong: is a number written where C belongs?"),
    },
    "dropout_forward": {
        "not divided": (lambda x, rate, u: (x * (u >= rate), u >= rate), "must make up for what is dropped"),
        "keeps the rate": (lambda x, rate, u: (x * (u < rate) / rate, u < rate), "the share that is dropped"),
        "divided by the rate": (
            lambda x, rate, u: (x * (u >= rate) / max(rate, 1e-300) if rate else x, u >= rate),
            "divide by 1 − rate",
        ),
        "multiplied": (lambda x, rate, u: (x * (u >= rate) * (1 - rate), u >= rate), "which is (1 − rate)²: divide"),
        "a mask of its own": (
            lambda x, rate, u: (x * (np.sin(1e4 * u) > -0.81), np.sin(1e4 * u) > -0.81),
            "exactly where `uniform`",
        ),
        "the dropped for the kept": (lambda x, rate, u: (x * (u >= rate) / (1 - rate), u < rate), "what is kept, not"),
        "divided by the share": (
            lambda x, rate, u: (x * (u >= rate) / np.mean(u >= rate), u >= rate),
            "the share that happened to be kept",
        ),
        "above the rate": (
            lambda x, rate, u: (x * (u > rate) / (1 - rate), u > rate),
            "whose number is exactly the rate",
        ),
        "two axes": (_row_by_row, "for x of shape (300,) and rate 0.35, it raises"),
        "no mask at rate 0": (lambda *args: _dropped(*args) if args[1] else (args[0], None), "kept is None"),
        "ones at rate 0": (
            lambda *args: _dropped(*args) if args[1] else (args[0], np.ones_like(args[0])),
            "and rate 0.0, kept holds float64",
        ),
        "a rate of 0.2": (lambda x, rate, u: _dropped(x, rate and 0.2, u), "rate 0.35, kept must be True exactly"),
        "a sum in place of a quotient": (
            lambda x, rate, u: (x * (u >= rate) * (1 + rate), u >= rate),
            "which is 1 − rate²",
        ),
        "in float32": (lambda *args: _dropped(*args)[0].astype(np.float32), "must return 2 arrays"),
        "y in float32": (
            lambda *args: (_dropped(*args)[0].astype(np.float32), _dropped(*args)[1]),
            "float32, which rounds",
        ),
        "a mask of numbers": (lambda x, rate, u: (x * (u >= rate) / (1 - rate), 1.0 * (u >= rate)), "True or False"),
    },
    "add_norm_backward": {
        "no way round": (_add_norm(lambda dy, dsum, kept, rate, sub: sub(dsum * kept / (1 - rate))), "is missing"),
        "no mask": (_add_norm(lambda dy, dsum, kept, rate, sub: dsum + sub(dsum)), "where its output was dropped"),
        "not divided": (
            _add_norm(lambda dy, dsum, kept, rate, sub: dsum + sub(dsum * kept)),
            "which is 1 − rate: the backward",
        ),
        "divided by the rate": (
            _add_norm(lambda dy, dsum, kept, rate, sub: dsum + sub(dsum * kept / rate)),
            "divide by 1 − rate",
        ),
        "multiplied": (
            _add_norm(lambda dy, dsum, kept, rate, sub: dsum + sub(dsum * kept * (1 - rate))),
            "which is (1 − rate)²",
        ),
        "past the norm": (
            _add_norm(lambda dy, dsum, kept, rate, sub: dsum + sub(dy * kept / (1 - rate))),
            "inside the norm",
        ),
        "the mask written over": (_keeps_everything, "it writes into its argument cache[1]"),
        "a rate of 0.4": (
            _add_norm(lambda dy, dsum, kept, rate, sub: dsum + sub(dsum * kept / 0.6)),
            "at rate 0.25, what arrives",
        ),
        "divided by the share": (
            _add_norm(lambda dy, dsum, kept, rate, sub: dsum + sub(dsum * kept / kept.mean())),
            "the share that happened to be kept",
        ),
        "through the sub-layer twice": (
            _add_norm(lambda dy, dsum, kept, rate, sub: sub(dsum * kept) + sub(dsum * kept)),
            "must be called once",
        ),
        "dropped on the lane": (
            _add_norm(lambda dy, dsum, kept, rate, sub: dsum * kept / (1 - rate) + sub(dsum * kept / (1 - rate))),
            "the other branch, x itself, goes through dropout",
        ),
        "in float32": (
            _add_norm(lambda dy, dsum, kept, rate, sub: (dsum + sub(dsum * kept / (1 - rate))).astype(np.float32)),
            "float32, which rounds",
        ),
        "the lane past the norm": (
            _add_norm(lambda dy, dsum, kept, rate, sub: dy + sub(dsum * kept / (1 - rate))),
            "which the norm, and no dropout, stands behind",
        ),
        "means of 6": (_norm_of_six, "3 rows of 9 are not: dx is wrong"),
    },
}
