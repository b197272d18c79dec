"""Right answers that look unlike the solutions: loops where they are allowed, einsum, other orders. All must pass."""

import math
from itertools import pairwise

import numpy as np


def _put_back(f, x, eps=1e-5):
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        begin = x[index]
        x[index] = begin + eps
        above = f(x)
        x[index] = begin - eps
        slopes[index] = (above - f(x)) / (2 * eps)
        x[index] = begin
    return slopes


def _directions(f, x, eps=1e-5):
    steps = [eps * unit.reshape(x.shape) for unit in np.eye(x.size)]
    return np.array([f(x + step) - f(x - step) for step in steps]).reshape(x.shape) / (2 * eps)


def _two_halves(f, x, eps=1e-5):
    slopes, here = np.zeros_like(x), f(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += eps
        down[index] -= eps
        slopes[index] = ((f(up) - here) / eps + (here - f(down)) / eps) / 2
    return slopes


def _softmax_of_lists(x):
    rows = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        e = [math.exp(score - max(row)) for score in row]
        rows.append([each / sum(e) for each in e])
    return np.array(rows).reshape(x.shape)


def _softmax_backward_loops(dy, y):
    dx = np.zeros_like(y)
    for row in np.ndindex(y.shape[:-1]):
        mean = sum(dy[row] * y[row])
        for i in range(y.shape[-1]):
            dx[(*row, i)] = y[(*row, i)] * (dy[(*row, i)] - mean)
    return dx


def _cross_entropy_loops(logits, targets, label_smoothing=0.0):
    (N, V), loss, dlogits = logits.shape, 0.0, np.zeros_like(logits)
    for n in range(N):
        log_total = max(logits[n]) + math.log(sum(math.exp(score - max(logits[n])) for score in logits[n]))
        for v in range(V):
            q = label_smoothing / V + (1 - label_smoothing) * (v == targets[n])
            loss -= q * (logits[n, v] - log_total)
            dlogits[n, v] = (math.exp(logits[n, v] - log_total) - q) / N
    return loss / N, dlogits


def _cross_entropy_of_two_means(logits, targets, label_smoothing=0.0):
    N, V = logits.shape
    log_y = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    dlogits = np.exp(log_y) - label_smoothing / V
    dlogits[np.arange(N), targets] -= 1 - label_smoothing
    truth = log_y[np.arange(N), targets].mean()
    return float(-(1 - label_smoothing) * truth - label_smoothing * log_y.mean()), dlogits / N


def _merge_recursively(symbols, pair, new):
    if len(symbols) < 2:
        return list(symbols)
    if (symbols[0], symbols[1]) == tuple(pair):
        return [new, *_merge_recursively(symbols[2:], pair, new)]
    return [symbols[0], *_merge_recursively(symbols[1:], pair, new)]


def _merge_by_skipping(symbols, pair, new):
    merged, skip = [], False
    for two in zip(symbols, [*symbols[1:], None], strict=False):
        if skip:
            skip = False
        elif two == pair:
            merged.append(new)
            skip = True
        else:
            merged.append(two[0])
    return merged


def _spelled(word, characters):
    return [id for c in word for id in ([characters[c]] if c in characters else [3 + byte for byte in c.encode()])]


def _encode_in_one_pass_by_age(word, characters, merges):
    ids = _spelled(word, characters)
    for pair in sorted(merges, key=merges.get):
        ids = _merge_by_skipping(ids, pair, merges[pair])
    return ids


def _encode_one_place_at_a_time(word, characters, merges):
    ids = _spelled(word, characters)
    while places := [(merges[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in merges]:
        new, i = min(places)
        ids[i : i + 2] = [new]
    return ids


def _sorted_and_summed(dy, ids, num_rows):
    rows, order = dy.reshape(-1, dy.shape[-1]), np.argsort(ids, axis=None, kind="stable")
    found, begins = np.unique(ids.ravel()[order], return_index=True)
    dtable = np.zeros((num_rows, rows.shape[1]))
    dtable[found] = np.add.reduceat(rows[order], begins)
    return dtable


def _counted(dy, ids, num_rows):
    channels = [np.bincount(ids.ravel(), channel.ravel(), num_rows) for channel in np.moveaxis(dy, -1, 0)]
    return np.stack(channels, axis=1)


def _rnn(dhidden, hidden, recurrent):
    drecurrent, dprojected, dbefore = np.zeros_like(recurrent), np.zeros_like(dhidden), 0
    for t in range(dhidden.shape[1] - 1, -1, -1):
        dprojected[:, t] = (dhidden[:, t] + dbefore) * (1 - hidden[:, t + 1]) * (1 + hidden[:, t + 1])
        drecurrent += hidden[:, t].T @ dprojected[:, t]
        dbefore = np.einsum("bj,ij->bi", dprojected[:, t], recurrent)
    return [dprojected, dbefore, drecurrent]


def _scores_loops(dscores, features, score_weight):
    B, Tq, Tk, C = features.shape
    dquery, dkey = np.zeros((B, Tq, C), features.dtype), np.zeros((B, Tk, C), features.dtype)
    dscore_weight = np.zeros_like(score_weight)
    for b, i, j in np.ndindex(B, Tq, Tk):
        dsum = dscores[b, i, j] * score_weight * (1 - features[b, i, j] ** 2)
        dquery[b, i] += dsum
        dkey[b, j] += dsum
        dscore_weight += dscores[b, i, j] * features[b, i, j]
    return dquery, dkey, dscore_weight


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
    "00": {
        "linear_backward": [
            lambda dy, x, weight: [np.dot(dy, weight.T), np.dot(dy.T, x).T, np.ones(len(dy)) @ dy],
            lambda dy, x, weight: (
                np.einsum("no,io->ni", dy, weight),
                np.einsum("ni,no->io", x, dy),
                np.add.reduce(dy),
            ),
        ],
        "numerical_gradient": [_put_back, _directions, _two_halves],
    },
    "01": {
        "softmax": [
            _softmax_of_lists,
            lambda x: np.exp(x - np.logaddexp.reduce(x, axis=-1)[..., None]),
            lambda x: np.apply_along_axis(_softmax_of_lists, -1, x),
        ],
        "softmax_backward": [
            _softmax_backward_loops,
            lambda dy, y: y * dy - y * np.einsum("...i,...i->...", y, dy)[..., None],
            lambda dy, y: y * (dy - (dy[..., None, :] @ y[..., :, None])[..., 0]),
        ],
        "cross_entropy": [_cross_entropy_loops, _cross_entropy_of_two_means],
    },
    "02": {
        "merge": [_merge_recursively, _merge_by_skipping],
        "encode": [_encode_in_one_pass_by_age, _encode_one_place_at_a_time],
        "embedding_backward": [
            _sorted_and_summed,
            _counted,
            lambda dy, ids, num_rows: np.eye(num_rows)[ids.ravel()].T @ dy.reshape(-1, dy.shape[-1]),
        ],
    },
    "03": {"rnn_backward": [_rnn], "additive_scores_backward": [_scores_loops]},
    "04": {
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
    },
}
