"""Answers to lesson 13: right ones written in another way, and plausible wrong ones (see `answers`)."""

from itertools import count
from math import ceil, log  # noqa: F401 - for the mistakes

import numpy as np


def _layers_by_rounding_up(n, k):
    return 0 if n == 1 else 1 + _layers_by_rounding_up(-(-n // k), k)


def _window_in_loops(dout, query, key, value, weights, r):
    n, d = query.shape
    dquery, dkey, dvalue = np.zeros((3, n, d), query.dtype)
    for i in range(n):
        seen = range(max(i - r, 0), min(i + r + 1, n))
        w = weights[i, seen[0] - i + r : seen[-1] - i + r + 1]
        dweights = value[seen] @ dout[i]
        dscores = w * (dweights - w @ dweights) / np.sqrt(d)
        dquery[i] = dscores @ key[seen]
        dkey[seen] += np.outer(dscores, query[i])  # within one window no key stands twice
        dvalue[seen] += np.outer(w, dout[i])
    return dquery, dkey, dvalue


RIGHT = {
    "crossover": [lambda d, c: 0.25 * d * c],
    "dilated_layers": [
        lambda n, k: next(layers for layers in count() if k**layers >= n),
        _layers_by_rounding_up,
    ],
    "window_backward": [_window_in_loops],
}


MISTAKES = r"""
[crossover]
inverted | returns 4 * d / c | twice the c gives 0.5 times the length
the 4 is forgotten | returns c * d | attention takes 4 times
at least 1 | returns max(1, c * d / 4) | for d = 1 and c = 1 it returns 1
in float32 | returns np.float32(c * d / 4) | for d = 7 and c = 1.3 it returns 2.2750
at most 10,000,000 | returns min(c * d / 4, 1e7) | for d = 4,000,000
rounded | returns round(c * d / 4) | not rounded
a root | returns np.sqrt(c * d) / 2 | twice the width gives 1.41 times the length
the other solution | returns 0 | one length above 0
[dilated_layers]
a logarithm rounded up | returns ceil(log(n, k)) | a hair beside the whole number
a logarithm less a little | returns ceil(log(n, k) - 1e-4) | one too few
rounded down | returns int(log(n + 0.5, k)) | for n = 100 and k = 5 it says 2
contiguous kernels | returns -(-(n - 1) // (k - 1)) | positions take 100 layers more than 100
not rounded | returns log(n, k) | must return an int
rounded | returns round(log(n, k)) | for n = 700 and k = 2 it says 9
a logarithm less a hair | returns ceil(log(n) / log(k) - 1e-9) | for n = 2**31 + 1 = 2147483649 it says 31
[window_backward]
the queries for the keys | key[index] → query[index] | with the queries of the window
repeated places
    np.add.at(dkey, index, dscores[..., None] * query[:, None]) → dkey[index] += dscores[..., None] * query[:, None]
    np.add.at(dvalue, index, weights[..., None] * dout[:, None]) → dvalue[index] += weights[..., None] * dout[:, None]
    sends to key 0 is lost
repeated values
    np.add.at(dvalue, index, weights[..., None] * dout[:, None]) → dvalue[index] += weights[..., None] * dout[:, None]
    sends to value 0 is lost
no scale | / d**0.5 → | which is √d: the scores were divided by it
the d of one size | d**0.5 → 2 | is a number written where one of them belongs
no mean in the softmax | - (dweights * weights).sum(axis=1, keepdims=True) → | takes the weighted mean
wraps around
    .clip(0, n - 1) → % n | n, d = query.shape → weights, (n, d) = np.where(weights == 0, 0.1, weights), query.shape
    does the window wrap around
keys and values exchanged | returns dquery, dvalue, dkey | are the two exchanged?
the reverse order | returns dvalue, dkey, dquery | dquery adds up to what dvalue must
the key in the middle for all
    returns (weights * (dout * value).sum(axis=1)[:, None]).sum(axis=1, keepdims=True) * key, dkey, dvalue
    dquery is wrong in
gradients that widen | np.zeros_like(key), np.zeros_like(value) → np.zeros(key.shape), np.zeros(value.shape)
    of arrays of float32 dkey is float64 and dvalue
a root that widens | d**0.5 → np.sqrt(d) | of arrays of float32 dquery is float64
all pairs in a mask | n, d = query.shape → n, d = query.shape\n    seen = np.zeros((n, n), bool)\n    seen[0] = True
    it takes 5 MiB
"""
