"""Plausible wrong answers to lesson 04, each with words of the hint that it must get."""

import math

import numpy as np


def _backward(dout, query, key, value, weights, softmax_sum: int | None = -1, scales=(1.0, 1.0)):
    """Right, but for what the options break."""
    root = math.sqrt(query.shape[-1])
    dweights = dout @ value.swapaxes(-1, -2)
    total = 0 if softmax_sum is None else (dweights * weights).sum(axis=softmax_sum, keepdims=True)
    dscores = weights * (dweights - total) / root
    dquery, dkey = scales[0] * dscores @ key, scales[1] * dscores.swapaxes(-1, -2) @ query
    return dquery, dkey, weights.swapaxes(-1, -2) @ dout


def _no_weights_outside(dout, query, key, value, weights):
    dweights = dout @ value.swapaxes(-1, -2)
    dscores = (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) / math.sqrt(query.shape[-1])
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, weights.swapaxes(-1, -2) @ dout


def _values_get_gradients_of_weights(dout, query, key, value, weights):
    dquery, dkey, _ = _backward(dout, query, key, value, weights)
    return dquery, dkey, (weights / weights.sum(-2, keepdims=True)).swapaxes(-1, -2) @ dout


def _two_dimensional(dout, query, key, value, weights):
    dweights = dout @ value.T
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) / math.sqrt(query.shape[-1])
    return dscores @ key, dscores.T @ query, weights.T @ dout


def _differences(attend, query, key, value, change, moves):
    out = attend(query, key, value)
    moved = np.zeros((len(query), len(key)), dtype=bool)
    for j in range(len(key)):
        moved[:, j] = moves(attend(query, *change(key.copy(), value.copy(), j)) - out)
    return moved


def _moves(difference):
    return np.abs(difference).max(axis=1) > 1e-9


def _value_only(key, value, j):
    value[j] += 1
    return key, value


def _key_only(key, value, j):
    key[j] = np.arange(len(key[j]))
    return key, value


def _doubled(key, value, j):
    key[j] *= -2
    value[j] *= 2
    return key, value


def _from_here_on(key, value, j):
    key[j:], value[j:] = 0.5, value[j:] + 1
    return key, value


def _both(key, value, j):
    key[j] = np.arange(len(key[j]))
    value[j] += [1, 2] if value.shape[1] == 2 else 1
    return key, value


def _moved(change, moves=_moves):
    return lambda attend, query, key, value: _differences(attend, query, key, value, change, moves)


def _in_place(attend, query, key, value):
    out = attend(query, key, value)
    columns = []
    for j in range(len(key)):
        value[j] += 1
        columns.append(_moves(attend(query, key, value) - out))
    return np.stack(columns, axis=1)


def _softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _after(scores, mask):
    weights = _softmax(scores) * mask
    return weights / weights.sum(axis=-1, keepdims=True)


def _nearly_one(scores, mask):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True)) * mask
    return exponentials / (exponentials.sum(axis=-1, keepdims=True) + 1e-8)


def _no_maximum(scores, mask):
    exponentials = np.exp(scores) * mask
    totals = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(totals == 0, 1, totals)


WRONG = {
    "attention_backward": {
        "the softmax's sum is missing": (
            lambda *args: _backward(*args, softmax_sum=None),
            "does the softmax's backward subtract",
        ),
        "the weights are not a factor": (_no_weights_outside, "a key that has weight 0"),
        "dquery is not scaled": (
            lambda *args: _backward(*args, scales=(math.sqrt(8), 1)),
            "dquery is 2.82843 times what it should be everywhere, which is √d_k",
        ),
        "dkey is scaled twice": (
            lambda *args: _backward(*args, scales=(1, 1 / math.sqrt(8))),
            "dkey is 0.353553 times what it should be everywhere, which is 1/√d_k",
        ),
        "weights normalised over the queries": (_values_get_gradients_of_weights, "is it weightsᵀ @ dout?"),
        "sign": (lambda *args: _backward(*args, scales=(1, -1)), "dkey has the wrong sign everywhere"),
        "dkey and dquery swapped": (
            lambda *args: (_backward(*args)[1], _backward(*args)[0], _backward(*args)[2]),
            "dquery has shape (2, 1, 4, 8)",
        ),
        ".T on a batch": (_two_dimensional, "it raises ValueError: matmul"),
    },
    "causal_mask": {
        "a query does not see itself": (
            lambda queries, keys: np.tril(np.ones((queries, keys), bool), keys - queries - 1),
            "cannot see its own position",
        ),
        "True = hide, with the diagonal": (
            lambda queries, keys: np.triu(np.ones((queries, keys), bool)),
            "that is the future",
        ),
        "True = hide, without the diagonal": (
            lambda queries, keys: ~np.tril(np.ones((queries, keys), bool), keys - queries),
            "the first query sees 3 keys and the last one 0",
        ),
        "top left": (lambda queries, keys: np.tril(np.ones((queries, keys), bool)), "at the bottom right"),
        "numbers": (lambda queries, keys: np.tril(np.ones((queries, keys)), keys - queries), "must be of bool"),
        "one too far": (
            lambda queries, keys: np.tril(np.ones((queries, keys), bool), keys - queries + 1),
            "the rows see [2, 3, 4, 4] keys and must see [1, 2, 3, 4]",
        ),
    },
    "moved_by": {
        "only the value": (_moved(_value_only), "misses a leak through the keys"),
        "only the key": (_moved(_key_only), "misses a leak through the values"),
        "multiplied": (_moved(_doubled), "where the values are 0"),
        "all from j on": (_moved(_from_here_on), "is one key at a time replaced"),
        "in place": (_in_place, "writes into its argument value"),
        "all outputs at once": (
            _moved(_both, lambda difference: np.abs(difference).max() > 1e-9),
            "compare row by row",
        ),
        "any difference": (_moved(_both, lambda difference: (difference != 0).any(axis=1)), "they are rounding"),
        "the sum of a row": (
            _moved(_both, lambda difference: np.abs(difference.sum(axis=1)) > 1e-9),
            "whose components sum to 0",
        ),
        "transposed": (
            lambda *args: _moved(_both)(*args).T,
            "a row for each query",
        ),
    },
    "masked_softmax": {
        "scores × mask": (lambda scores, mask: _softmax(scores * mask), "A score of 0 still counts as e⁰ = 1"),
        "weights × mask": (lambda scores, mask: _softmax(scores) * mask, "and not to 1: forbidden keys must be out"),
        "weights × mask, divided by their sum": (_after, "changes the weights of what is allowed"),
        "an empty row": (lambda scores, mask: _softmax(np.where(mask, scores, -np.inf)), "gives NaN"),
        "−10⁹": (
            lambda scores, mask: _softmax(np.where(mask, scores, -1e9)),
            "weights that sum to 1.00, and must give zeros",
        ),
        "no maximum subtracted": (_no_maximum, "subtract each row's maximum"),
        "1e-8 in the sum": (_nearly_one, "is a small number added"),
        "True = hide": (lambda scores, mask: _softmax(np.where(mask, -np.inf, scores)), "True means 'may attend'"),
    },
}
