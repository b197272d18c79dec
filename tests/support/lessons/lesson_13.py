"""Plausible wrong answers to lesson 13 (see `answers`)."""

import math

import numpy as np

from course.lesson_13.solutions import window_backward


def _all_pairs(dout, query, key, value, weights, r):
    """Right, by way of (n, n) arrays."""
    n, d = query.shape
    full = np.zeros((n, n))
    index = np.arange(n)[:, None] + np.arange(-r, r + 1)
    np.add.at(full, (np.arange(n)[:, None], index.clip(0, n - 1)), weights)
    dweights = dout @ value.T
    dscores = full * (dweights - (dweights * full).sum(axis=1, keepdims=True)) / np.sqrt(d)
    return dscores @ key, dscores.T @ query, full.T @ dout


def _own_key(dout, query, key, value, weights, r):
    """As if every key of a window were the one in its middle."""
    _, dkey, dvalue = window_backward(dout, query, key, value, weights, r)
    dscores = weights * np.einsum("id,id->i", dout, value)[:, None]
    return dscores.sum(axis=1, keepdims=True) * key, dkey, dvalue


EDITS = r"""
[window_backward]
repeated places
    np.add.at(dkey, index, dscores[..., None] * query[:, None]) → dkey[index] += dscores[..., None] * query[:, None]
    np.add.at(dvalue, index, weights[..., None] * dout[:, None]) → dvalue[index] += weights[..., None] * dout[:, None]
    sends to key 0 is lost
repeated values
    np.add.at(dvalue, index, weights[..., None] * dout[:, None]) → dvalue[index] += weights[..., None] * dout[:, None]
    sends to value 0 is lost
no scale | / np.sqrt(d) → | 2 times the true gradient
the d of one size | np.sqrt(d) → np.sqrt(4) | is a number written where one of them belongs
in float32
    return dquery, dkey, dvalue → return [np.float32(gradient) for gradient in (dquery, dkey, dvalue)]
    a gradient is float32, and all that it is made of is float64
no mean in the softmax | - (dweights * weights).sum(axis=1, keepdims=True) → | takes the weighted mean
wraps around
    .clip(0, n - 1) → % n | n, d = query.shape → weights, (n, d) = np.where(weights == 0, 0.1, weights), query.shape
    does the window wrap around
keys and values exchanged | return dquery, dkey, dvalue → return dquery, dvalue, dkey | are the two exchanged?
the reverse order | return dquery, dkey, dvalue → return dvalue, dkey, dquery | dquery adds up to what dvalue must
two arrays | return dquery, dkey, dvalue → return dquery, dkey | must return 3 arrays
"""

WRONG = {
    "crossover": {
        "n = d whatever the other is": (lambda d, c: d, "twice the c gives 1 times the length"),
        "inverted": (lambda d, c: 4 * d / c, "twice the c gives 0.5 times the length"),
        "the 4 is forgotten": (lambda d, c: c * d, "attention takes 4 times"),
        "rounded": (lambda d, c: round(c * d / 4), "not rounded"),
        "a root": (lambda d, c: math.sqrt(c * d) / 2, "twice the width gives 1.41 times the length"),
        "the other solution": (lambda d, c: 0, "one length above 0"),
    },
    "dilated_layers": {
        "a logarithm rounded up": (lambda n, k: math.ceil(math.log(n, k)), "a hair beside the whole number"),
        "a logarithm less a little": (lambda n, k: math.ceil(math.log(n, k) - 1e-4), "one too few"),
        "rounded down": (lambda n, k: int(math.log(n + 0.5, k)), "for n = 100 and k = 5 it says 2"),
        "contiguous kernels": (lambda n, k: -(-(n - 1) // (k - 1)), "positions take 100 layers more than 100"),
        "not rounded": (lambda n, k: math.log(n, k), "must return an int"),
        "one too many": (lambda n, k: 1 + math.ceil(math.log(n, k) - 1e-9), "for n = 100 and k = 5 it says 4"),
        "rounded": (lambda n, k: round(math.log(n, k)), "for n = 700 and k = 2 it says 9"),
        "a logarithm less a hair": (
            lambda n, k: math.ceil(math.log(n) / math.log(k) - 1e-9),
            "for n = 2**31 + 1 = 2147483649 it says 31",
        ),
    },
    "window_backward": {
        "the key in the middle for all": (_own_key, "the gradient of query is wrong"),
        "all pairs": (_all_pairs, "gather the keys of each window instead"),
    },
}
