"""Plausible wrong answers to lesson 13 (see `answers`)."""

import math

import numpy as np


def _window(
    dout, query, key, value, weights, r, *, add=np.add.at, add_keys=None, scaled=True, mean=True, wraps=False, d=None
):
    """Right as it stands; each option makes one mistake."""
    n, d = len(query), d or query.shape[1]
    index = np.arange(n)[:, None] + np.arange(-r, r + 1)
    if wraps:
        weights = np.where(weights == 0, 0.1, weights)
    index = index % n if wraps else index.clip(0, n - 1)
    dweights = np.einsum("id,iwd->iw", dout, value[index])
    dscores = weights * (dweights - ((dweights * weights).sum(axis=1, keepdims=True) if mean else 0))
    dscores = dscores / np.sqrt(d) if scaled else dscores
    dkey, dvalue = np.zeros_like(key), np.zeros_like(value)
    (add_keys or add)(dkey, index, dscores[..., None] * query[:, None])
    add(dvalue, index, weights[..., None] * dout[:, None])
    return np.einsum("iw,iwd->id", dscores, key[index]), dkey, dvalue


def _buffered(array, index, part):
    array[index] += part


def _in_float32(*args):
    return tuple(gradient.astype(np.float32) for gradient in _window(*args))


def _all_pairs(dout, query, key, value, weights, r):
    """Right, by way of (n, n) arrays."""
    n, d = query.shape
    full = np.zeros((n, n))
    index = np.arange(n)[:, None] + np.arange(-r, r + 1)
    np.add.at(full, (np.arange(n)[:, None], index.clip(0, n - 1)), weights)
    dweights = dout @ value.T
    dscores = full * (dweights - (dweights * full).sum(axis=1, keepdims=True)) / np.sqrt(d)
    return dscores @ key, dscores.T @ query, full.T @ dout


def _exchanged(*args):
    dquery, dkey, dvalue = _window(*args)
    return dquery, dvalue, dkey


def _own_key(dout, query, key, value, weights, r):
    """As if every key of a window were the one in its middle."""
    _, dkey, dvalue = _window(dout, query, key, value, weights, r)
    dscores = weights * np.einsum("id,id->i", dout, value)[:, None]
    return dscores.sum(axis=1, keepdims=True) * key, dkey, dvalue


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
        "repeated places": (lambda *a: _window(*a, add=_buffered), "sends to key 0 is lost"),
        "repeated values": (lambda *a: _window(*a, add=_buffered, add_keys=np.add.at), "sends to value 0 is lost"),
        "no scale": (lambda *a: _window(*a, scaled=False), "2 times the true gradient"),
        "the d of one size": (lambda *a: _window(*a, d=4), "is a number written where one of them belongs"),
        "in float32": (_in_float32, "a gradient is float32, and all that it is made of is float64"),
        "no mean in the softmax": (lambda *a: _window(*a, mean=False), "takes the weighted mean"),
        "wraps around": (lambda *a: _window(*a, wraps=True), "does the window wrap around"),
        "the key in the middle for all": (_own_key, "the gradient of query is wrong"),
        "all pairs": (_all_pairs, "gather the keys of each window instead"),
        "keys and values exchanged": (_exchanged, "are the two exchanged?"),
        "the reverse order": (lambda *a: _window(*a)[::-1], "dquery adds up to what dvalue must"),
        "two arrays": (lambda *a: _window(*a)[:2], "must return 3 arrays"),
    },
}
