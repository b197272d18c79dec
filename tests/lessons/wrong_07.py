"""Plausible wrong answers to lesson 07, each with words of the hint it must get."""

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


def _add_norm(combine):
    """A wrong add_norm_backward: `combine(dy, dsum, kept, rate, sub)` gives dx."""

    def backward(dy, cache, sublayer_backward):
        sublayer_cache, kept, rate, norm_cache = cache
        dsum, dgamma, dbeta = layernorm_backward(dy, norm_cache)
        return combine(dy, dsum, kept, rate, lambda d: sublayer_backward(d, sublayer_cache)), dgamma, dbeta

    return backward


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
    },
    "dropout_forward": {
        "not divided": (lambda x, rate, u: (x * (u >= rate), u >= rate), "must make up for what is dropped"),
        "keeps the rate": (lambda x, rate, u: (x * (u < rate) / rate, u < rate), "the share that is dropped"),
        "divided by the rate": (
            lambda x, rate, u: (x * (u >= rate) / max(rate, 1e-300) if rate else x, u >= rate),
            "divide by 1 − rate",
        ),
        "multiplied": (lambda x, rate, u: (x * (u >= rate) * (1 - rate), u >= rate), "1 − rate twice over"),
        "a mask of its own": (
            lambda x, rate, u: (x * (np.sin(1e4 * u) > -0.81), np.sin(1e4 * u) > -0.81),
            "exactly where `uniform`",
        ),
        "the dropped for the kept": (lambda x, rate, u: (x * (u >= rate) / (1 - rate), u < rate), "what is kept, not"),
        "divided by the share": (
            lambda x, rate, u: (x * (u >= rate) / np.mean(u >= rate), u >= rate),
            "the share that happened to be kept",
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
        "the lane past the norm": (
            _add_norm(lambda dy, dsum, kept, rate, sub: dy + sub(dsum * kept / (1 - rate))),
            "which the norm, and no dropout, stands behind",
        ),
    },
}
