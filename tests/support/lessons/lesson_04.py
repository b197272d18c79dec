"""Answers to lesson 04: right ones written in another way, and plausible wrong ones (see `answers`)."""

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


def _one_head_for_all(*args):
    return tuple(np.broadcast_to(g[:, :1], g.shape).copy() if g.ndim > 2 else g for g in _backward(*args))


def _plain_mean(dout, query, key, value, weights):
    dweights = dout @ value.swapaxes(-1, -2)
    dscores = weights * (dweights - dweights.mean(axis=-1, keepdims=True)) / math.sqrt(query.shape[-1])
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, weights.swapaxes(-1, -2) @ dout


def _in_the_weights(dout, query, key, value, weights):
    dvalue, dweights = weights.swapaxes(-1, -2) @ dout, dout @ value.swapaxes(-1, -2)
    weights *= dweights - (dweights * weights).sum(axis=-1, keepdims=True)
    return weights @ key / math.sqrt(8), weights.swapaxes(-1, -2) @ query / math.sqrt(8), dvalue


def _set_to(key_value, value_value):
    """Keys, or values, are set to a number; None: they get something else, as they should."""

    def change(key, value, j):
        key[j] = np.cos(np.arange(len(key[j]))) - key[j] if key_value is None else key_value
        value[j] = 1 - value[j] if value_value is None else value_value
        return key, value

    return _moved(change)


def _compared(differ):
    """By `differ(new, old)`, which says it for each row."""

    def moved_by(attend, query, key, value):
        out, columns = attend(query, key, value), []
        for j in range(len(key)):
            columns.append(differ(attend(query, *_both(key.copy(), value.copy(), j)), out))
        return np.stack(columns, axis=1)

    return moved_by


def _moved_back(attend, query, key, value):
    out, columns = attend(query, key, value), []
    for j in range(len(key)):
        key[j] += 0.7
        value[j] += 0.7
        columns.append(_moves(attend(query, key, value) - out))
        key[j] -= 0.7
        value[j] -= 0.7
    return np.stack(columns, axis=1)


def _shifted(scores, mask, shift):
    """Right, where `shift` is the largest allowed score of each row, or near it."""
    exponentials = np.where(mask, np.exp(np.where(mask, scores - shift, 0)), 0)
    totals = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(totals == 0, 1, totals)


def _largest(scores, mask, axis=None):
    largest = np.where(mask, scores, -np.inf).max(axis=axis, keepdims=True)
    return np.where(np.isfinite(largest), largest, 0)


def _mean(scores, mask):
    number = np.broadcast_to(mask, scores.shape).sum(axis=-1, keepdims=True)
    return np.where(mask, scores, 0).sum(axis=-1, keepdims=True) / np.maximum(number, 1)


def _along_axis_1(scores, mask):
    exponentials = np.where(mask, np.exp(scores - _largest(scores, mask, axis=-1)), 0)
    totals = exponentials.sum(axis=1, keepdims=True)
    return exponentials / np.where(totals == 0, 1, totals)


def _same_shape_only(scores, mask):
    scores = scores.copy()
    scores[~mask] = -np.inf
    return _shifted(scores, mask, _largest(scores, mask, axis=-1))


def _into_scores(scores, mask):
    scores[~np.broadcast_to(mask, scores.shape)] = -np.inf
    return _shifted(scores, mask, _largest(scores, mask, axis=-1))


def _scaled_by(width):
    """Right, but for what the scores are divided by, and so in every way where that is 8."""

    def attention_backward(dout, query, key, value, weights):
        dweights = dout @ value.swapaxes(-1, -2)
        dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
        dscores = dscores / math.sqrt(width(query, value))
        return dscores @ key, dscores.swapaxes(-1, -2) @ query, weights.swapaxes(-1, -2) @ dout

    return attention_backward


def _moved_of_three_and_five(attend, query, key, value):
    moved = np.zeros((3, 5), dtype=bool)
    out = attend(query, key, value)
    for j in range(min(5, len(key))):
        moved[: len(query), j] = _moves(attend(query, *_added(key.copy(), value.copy(), j)) - out)[:3]
    return moved


def _added(key, value, j):
    key[j] += 1
    value[j] += 1
    return key, value


def _attention_loops(dout, query, key, value, weights):
    dquery, dkey, dvalue = np.zeros_like(query), np.zeros_like(key), np.zeros_like(value)
    for n in np.ndindex(query.shape[:-2]):
        for i, w in enumerate(weights[n]):
            jacobian = (np.diag(w) - np.outer(w, w)) / math.sqrt(query.shape[-1])
            dscores = jacobian @ (value[n] @ dout[n][i])
            dquery[n][i] += dscores @ key[n]
            dkey[n][...] += np.outer(dscores, query[n][i])
            dvalue[n][...] += np.outer(w, dout[n][i])
    return dquery, dkey, dvalue


def _attention_through_out(dout, query, key, value, weights):
    towards = np.einsum("...ie,...je->...ij", dout, value) - (dout * (weights @ value)).sum(axis=-1)[..., None]
    dscores = weights * towards * query.shape[-1] ** -0.5
    return (
        np.einsum("...ij,...jd->...id", dscores, key),
        np.einsum("...ij,...id->...jd", dscores, query),
        np.einsum("...ij,...ie->...je", weights, dout),
    )


def _moved_in_place(attend, query, key, value):
    out, moved = attend(query, key, value), np.empty((len(query), len(key)), bool)
    for j in range(len(key)):
        own = key[j].copy(), value[j].copy()
        key[j], value[j] = np.arange(len(own[0])) - 3.3, own[1] + 7
        moved[:, j] = np.linalg.norm(attend(query, key, value) - out, axis=1) > 1e-9
        key[j], value[j] = own
    return moved


def _moved_at_random(attend, query, key, value):
    rng, columns = np.random.default_rng(1), []
    for j in range(len(key)):
        here = (np.arange(len(key)) == j)[:, None]
        other = attend(query, key + here * rng.random(key.shape), value - here * rng.random(value.shape))
        columns.append(~np.isclose(other, attend(query, key, value), rtol=0, atol=1e-9).all(axis=1))
    return np.array(columns).T


def _masked_loops(scores, mask):
    mask, weights = np.broadcast_to(mask, scores.shape), np.zeros_like(scores)
    for row in np.ndindex(scores.shape[:-1]):
        if mask[row].any():
            e = np.exp(scores[row][mask[row]] - scores[row][mask[row]].max())
            weights[row][mask[row]] = e / e.sum()
    return weights


def _masked_nan_to_num(scores, mask):
    scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.nan_to_num(e / e.sum(axis=-1, keepdims=True))


RIGHT = {
    "attention_backward": [_attention_loops, _attention_through_out],
    "causal_mask": [
        lambda queries, keys: np.tri(queries, keys, keys - queries, dtype=bool),
        lambda queries, keys: ~np.triu(np.ones((queries, keys), bool), keys - queries + 1),
        lambda queries, keys: np.array(
            [[j - keys <= i - queries for j in range(keys)] for i in range(queries)], bool
        ).reshape(queries, keys),
    ],
    "moved_by": [_moved_in_place, _moved_at_random],
    "masked_softmax": [_masked_loops, _masked_nan_to_num],
}


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
            "dquery has shape (2, 3, 4, 8)",
        ),
        ".T on a batch": (_two_dimensional, "`dweights = dout @ value.T`, where dout is (2, 3, 5, 3), value is"),
        "√d_v": (lambda *a: _backward(*a, scales=(math.sqrt(8 / 3),) * 2), "which is √(d_k/d_v)"),
        "√T_k": (lambda *a: _backward(*a, scales=(math.sqrt(8 / 4),) * 2), "which is √(d_k/T_k)"),
        "one head for all": (_one_head_for_all, "whose own dout does"),
        "a mean that is not weighted": (_plain_mean, "dkey does not sum to 0 over the keys"),
        "float32": (lambda *a: tuple(np.float32(gradient) for gradient in _backward(*a)), "dquery is float32"),
        "in the weights": (_in_the_weights, "writes into its argument weights"),
        "the scale of D = 8": (_scaled_by(lambda query, value: 8), "which is √(D/8)"),
        "the scale of Tq + Dv": (
            _scaled_by(lambda query, value: query.shape[-2] + value.shape[-1]),
            "with 3, 6, 11, 2 dquery is 1.4",
        ),
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
        "top left where there are more queries": (
            lambda queries, keys: np.tri(queries, keys, max(0, keys - queries), dtype=bool),
            "the rows see [1, 2, 2, 2, 2] keys and must see [0, 0, 0, 1, 2]",
        ),
        "at least one key": (
            lambda queries, keys: np.tri(queries, keys, keys - queries, dtype=bool) | (np.arange(keys) == 0),
            "the rows see [1, 1, 1, 1, 2] keys",
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
        "np.isclose": (
            _compared(lambda new, old: (~np.isclose(new, old)).any(axis=1)),
            "misses a move of 5·10⁻⁹: only what is below 1e-9 is rounding",
        ),
        "np.isclose to 1e-9": (
            _compared(lambda new, old: (~np.isclose(new, old, atol=1e-9)).any(axis=1)),
            "misses a move of 10⁻⁴ in outputs of 1000",
        ),
        "all components": (
            _compared(lambda new, old: (abs(new - old) > 1e-9).all(axis=1)),
            "misses a move of one component",
        ),
        "the second component": (_compared(lambda new, old: abs(new - old)[:, 1] > 1e-9), "an output's first"),
        "without abs": (_compared(lambda new, old: (new - old).max(axis=1) > 1e-9), "misses a move downwards"),
        "the lengths": (
            _compared(lambda new, old: abs(np.linalg.norm(new, axis=1) - np.linalg.norm(old, axis=1)) > 1e-9),
            "compare the outputs, not their lengths",
        ),
        "down to 1e-12": (_compared(lambda new, old: abs(new - old).max(axis=1) > 1e-12), "2·10⁻¹⁰ count as moves"),
        "keys set to 0": (_set_to(0, None), "misses a leak where the keys are 0"),
        "keys set to 1": (_set_to(1, None), "misses a leak where the keys are 1"),
        "values set to 1": (_set_to(None, 1), "misses a leak where the values are 1"),
        "moved and moved back": (_moved_back, "it moves its argument key and moves it back"),
        "numbers": (_compared(lambda new, old: _moves(new - old).astype(int)), "must be of bool, not int64"),
        "3 queries and 5 keys": (_moved_of_three_and_five, "with 4 queries and 2 keys it is wrong"),
    },
    "masked_softmax": {
        "scores × mask": (lambda scores, mask: _softmax(scores * mask), "A score of 0 still counts as e⁰ = 1"),
        "weights × mask": (lambda scores, mask: _softmax(scores) * mask, "and not to 1: forbidden keys must be out"),
        "weights × mask, divided by their sum": (_after, "changes the weights of what is allowed"),
        "an empty row": (lambda scores, mask: _softmax(np.where(mask, scores, -np.inf)), "gives NaN"),
        "−10⁹": (
            lambda scores, mask: _softmax(np.where(mask, scores, -1e9)),
            "weights that sum to 1, and must give zeros",
        ),
        "no maximum subtracted": (_no_maximum, "subtract each row's maximum"),
        "1e-8 in the sum": (_nearly_one, "is a small number added"),
        "True = hide": (lambda scores, mask: _softmax(np.where(mask, -np.inf, scores)), "True means 'may attend'"),
        "one maximum for all rows": (lambda s, m: _shifted(s, m, _largest(s, m)), "each row's own maximum"),
        "the mean for the maximum": (lambda s, m: _shifted(s, m, _mean(s, m)), "not the mean or one of the scores"),
        "axis 1": (_along_axis_1, "axis=1 only of a matrix"),
        "−10⁹, then × mask": (
            lambda scores, mask: _softmax(np.where(mask, scores, -1e9)) * mask,
            "−10⁹ is a score like another",
        ),
        "a mask of the scores' shape only": (_same_shape_only, "`scores[~mask] = -np.inf`, where scores is"),
        "in the scores": (_into_scores, "writes into its argument scores"),
        "float32": (
            lambda s, m: _shifted(s, m, _largest(s, m, axis=-1)).astype(np.float32),
            "weights is float32, and all that it is made of is float64",
        ),
    },
}
