"""Answers to lesson 23: right ones written in another way, and plausible wrong ones (see `answers`)."""

# pyright: reportInvalidTypeForm=false

import numpy as np

from course.gpu import tl, torch, triton
from course.lesson_23.solutions import phi, phi_slope


def _by_shortest_ways(allowed):
    """Floyd and Warshall."""
    far = len(allowed) + 1
    ways = np.where(allowed, 1, far)
    np.fill_diagonal(ways, 0)
    for between in range(len(allowed)):
        ways = np.minimum(ways, ways[:, between, None] + ways[between])
    return np.where(ways < far, ways, -1)


def _chunks(T, size=16):
    return [slice(start, min(start + size, T)) for start in range(0, T, size)]


def _linear_in_chunks(query, key, value, eps=1e-6):
    extended = np.concatenate([value, np.ones((len(value), 1))], axis=1)
    state, sums = np.zeros((key.shape[1], extended.shape[1])), np.empty_like(extended)
    for part in _chunks(len(query)):
        q, k = phi(query[part]), phi(key[part])
        sums[part] = np.tril(q @ k.T) @ extended[part] + q @ state
        state = state + k.T @ extended[part]
    return sums[:, :-1] / (sums[:, -1:] + eps)


def _linear_column_by_column(query, key, value, eps=1e-6):
    """A running sum for each feature, all positions at once."""
    numerator, denominator = np.zeros_like(value), np.full((len(value), 1), eps)
    for q, k in zip(phi(query).T, phi(key).T, strict=True):
        numerator += q[:, None] * np.cumsum(k[:, None] * value, axis=0)
        denominator += (q * np.cumsum(k))[:, None]
    return numerator / denominator


def _linear_in_new_arrays(query, key, value, eps=1e-6):
    query, key, value = query.view(np.ndarray), np.asarray(key, dtype=float), np.array(value)
    state, total, rows = 0, 0, []
    for t in np.arange(np.shape(query)[0]):
        k = np.transpose(key)[:, t]
        k = np.where(k > 0, k + 1, np.exp(np.minimum(k, 0)))
        state, total = state + np.einsum("i,j->ij", k, value[t]), total + k
        q = phi(query[t])
        rows.append(q.dot(state) / (np.dot(q, total) + eps))
    return np.stack(rows)


def _linear_in_lists(query, key, value, eps=1e-6):
    features, key_features, value = phi(query).tolist(), phi(key).tolist(), value.tolist()
    state, total, out = [[0.0] * len(value[0]) for _ in key_features[0]], [0.0] * len(key_features[0]), []
    for q, k, v in zip(features, key_features, value, strict=True):
        for i, row in enumerate(state):
            total[i] += k[i]
            state[i] = [s + k[i] * each for s, each in zip(row, v, strict=True)]
        denominator = sum(a * b for a, b in zip(q, total, strict=True)) + eps
        out.append(
            [sum(a * b for a, b in zip(q, column, strict=True)) / denominator for column in zip(*state, strict=True)]
        )
    return np.array(out)


def _backward_column_by_column(dout, query, key, value, eps=1e-6):
    extended = np.concatenate([value, np.ones((len(value), 1))], axis=1)
    features, key_features = phi(query), phi(key)
    sums = np.zeros_like(extended)
    for q, k in zip(features.T, key_features.T, strict=True):
        sums += q[:, None] * np.cumsum(k[:, None] * extended, axis=0)
    denominator = sums[:, -1:] + eps
    dsums = np.concatenate([dout, -np.sum(dout * sums[:, :-1], axis=1, keepdims=True) / denominator], axis=1)
    dsums /= denominator
    dfeatures, dkey_features, dextended = np.empty_like(query), np.empty_like(key), np.zeros_like(extended)
    for i, (q, k) in enumerate(zip(features.T, key_features.T, strict=True)):
        dfeatures[:, i] = np.sum(dsums * np.cumsum(k[:, None] * extended, axis=0), axis=1)
        dstate = np.cumsum((q[:, None] * dsums)[::-1], axis=0)[::-1]
        dkey_features[:, i] = np.sum(dstate * extended, axis=1)
        dextended += k[:, None] * dstate
    return dfeatures * phi_slope(query), dkey_features * phi_slope(key), dextended[:, :-1]


def _backward_in_chunks(dout, query, key, value, eps=1e-6):
    T, D = query.shape
    features, key_features = phi(query), phi(key)
    extended = np.concatenate([value, np.ones((T, 1))], axis=1)
    dfeatures, dkey_features, dextended = np.empty_like(query), np.empty_like(key), np.empty_like(extended)
    dsums, state = np.empty_like(extended), np.zeros((D, extended.shape[1]))
    for part in _chunks(T):
        q, k = features[part], key_features[part]
        sums = np.tril(q @ k.T) @ extended[part] + q @ state
        out, denominator = sums[:, :-1] / (sums[:, -1:] + eps), sums[:, -1:] + eps
        dsums[part, :-1] = dout[part] / denominator
        dsums[part, -1:] = -np.sum(dsums[part, :-1] * out, axis=1, keepdims=True)
        dfeatures[part] = np.tril(dsums[part] @ extended[part].T) @ k + dsums[part] @ state.T
        state += k.T @ extended[part]
    dstate = np.zeros_like(state)
    for part in _chunks(T)[::-1]:
        q, k, d = features[part], key_features[part], dsums[part]
        dkey_features[part] = np.tril(d @ extended[part].T).T @ q + extended[part] @ dstate.T
        dextended[part] = np.tril(q @ k.T).T @ d + k @ dstate
        dstate += q.T @ d
    return dfeatures * phi_slope(query), dkey_features * phi_slope(key), dextended[:, :-1]


@triton.jit
def _through_memory_kernel(query_ptr, d_ptr, dstates_ptr, CHUNKS: tl.constexpr, D: tl.constexpr, BARRIER: tl.constexpr):
    """The sum so far is read where the last chunk but one has left it, in another arrangement of threads."""
    row, column = tl.arange(0, D)[:, None], tl.arange(0, D)[None, :]
    first = tl.program_id(0) * CHUNKS * D * D
    tl.store(dstates_ptr + first + (CHUNKS - 1) * D * D + row * D + column, tl.zeros((D, D), tl.float32))
    for n in range(CHUNKS - 1):
        place = first + (CHUNKS - 1 - n) * D * D
        query = tl.load(query_ptr + place + row * D + column)
        features = tl.maximum(query, 0.0) + tl.exp(tl.minimum(query, 0.0))
        own = tl.dot(tl.trans(features), tl.load(d_ptr + place + row * D + column), input_precision="ieee")
        if BARRIER:
            tl.debug_barrier()
        before = tl.load(dstates_ptr + place + column * D + row)  # transposed
        tl.store(dstates_ptr + place - D * D + column * D + row, before + tl.trans(own))


def _through_memory(query, dnumerator):
    heads, time, width = query.shape
    dstates = torch.empty((heads, time // 16, width, width), device=query.device)
    _through_memory_kernel[(heads,)](query, dnumerator, dstates, CHUNKS=time // 16, D=16, BARRIER=True)
    return dstates


@triton.jit
def _all_chunks_kernel(query_ptr, d_ptr, dstates_ptr, CHUNKS: tl.constexpr, D: tl.constexpr):
    """A program for each chunk, which sums over all later ones."""
    tile = tl.arange(0, D)[:, None] * D + tl.arange(0, D)[None, :]
    chunk, first = tl.program_id(1), tl.program_id(0) * CHUNKS * D * D
    dstate = tl.zeros((D, D), tl.float32)
    for later in range(chunk + 1, CHUNKS):
        query = tl.load(query_ptr + first + later * D * D + tile)
        features = tl.where(query > 0, query + 1, tl.exp(tl.minimum(query, 0.0)))
        dnumerator = tl.load(d_ptr + first + later * D * D + tile)
        dstate += tl.dot(tl.trans(features), dnumerator, input_precision="ieee")
    tl.store(dstates_ptr + first + chunk * D * D + tile, dstate)


def _all_chunks(query, dnumerator):
    heads, time, width = query.shape
    dstates = torch.empty((heads, time // 16, width, width), device=query.device)
    _all_chunks_kernel[(heads, time // 16)](query, dnumerator, dstates, CHUNKS=time // 16, D=16)
    return dstates


RIGHT = {
    "layers_until_heard": [_by_shortest_ways],
    "global_token_backward": [
        lambda dout, out, query, value_g, weights_g: (
            np.einsum("i,iv,iv,id->d", weights_g, dout, value_g - out, query) / query.shape[1] ** 0.5,
            np.einsum("i,iv->v", weights_g, dout),
        )
    ],
    "linear_attention": [_linear_in_chunks, _linear_column_by_column, _linear_in_new_arrays, _linear_in_lists],
    "linear_attention_backward": [_backward_in_chunks, _backward_column_by_column],
    "chunk_states_backward": [_all_chunks, _through_memory],
}


@triton.jit
def _summed_afterwards_kernel(
    query_ptr, d_ptr, dstates_ptr, CHUNKS: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr
):
    tile = tl.arange(0, D)[:, None] * D + tl.arange(0, D)[None, :]
    first = tl.program_id(0) * CHUNKS * D * D
    tl.store(dstates_ptr + first + (CHUNKS - 1) * D * D + tile, tl.zeros((D, D), tl.float32))
    for chunk in range(1, CHUNKS):
        query = tl.load(query_ptr + first + chunk * D * D + tile)
        features = tl.maximum(query, 0.0) + tl.exp(tl.minimum(query, 0.0))
        own = tl.dot(tl.trans(features), tl.load(d_ptr + first + chunk * D * D + tile), input_precision="ieee")
        tl.store(dstates_ptr + first + (chunk - 1) * D * D + tile, own)
    row = tl.arange(0, BLOCK)[:, None]
    place = dstates_ptr + first + row * D * D + tl.arange(0, D * D)[None, :]
    sums = tl.load(place, row < CHUNKS, other=0.0)
    tl.store(place, tl.cumsum(sums, axis=0, reverse=True), row < CHUNKS)


def _summed_afterwards(query, dnumerator):
    heads, time, width = query.shape
    chunks = time // 16
    dstates = torch.empty((heads, chunks, width, width), device=query.device)
    block = triton.next_power_of_2(chunks)
    _summed_afterwards_kernel[(heads,)](query, dnumerator, dstates, CHUNKS=chunks, BLOCK=block, D=16)
    return dstates


@triton.jit
def _relay_kernel(query_ptr, d_ptr, dstates_ptr, CHUNKS: tl.constexpr, D: tl.constexpr):
    tile = tl.arange(0, D)[:, None] * D + tl.arange(0, D)[None, :]
    place = tl.program_id(0) * CHUNKS * D * D + (CHUNKS - 1 - tl.program_id(1)) * D * D + tile
    query = tl.load(query_ptr + place)
    features = tl.maximum(query, 0.0) + tl.exp(tl.minimum(query, 0.0))
    dstate = tl.load(dstates_ptr + place)
    dstate += tl.dot(tl.trans(features), tl.load(d_ptr + place), input_precision="ieee")
    if tl.program_id(1) < CHUNKS - 1:
        tl.store(dstates_ptr + place - D * D, dstate)


def _relay(query, dnumerator):
    heads, time, width = query.shape
    dstates = torch.zeros((heads, time // 16, width, width), device=query.device)
    _relay_kernel[(heads, time // 16)](query, dnumerator, dstates, CHUNKS=time // 16, D=16)
    return dstates


def _in_pytorch(query, dnumerator):
    heads, time, width = query.shape
    parts = [part.reshape(heads, time // 16, 16, width) for part in (torch.nn.functional.elu(query) + 1, dnumerator)]
    sums = parts[0].mT @ parts[1]
    return sums.flip(1).cumsum(1).flip(1) - sums


def _all_weights(query, key, value, eps=1e-6):
    weights = np.tril(phi(query) @ phi(key).T)
    return weights @ value / (weights.sum(axis=1, keepdims=True) + eps)


def _all_states(query, key, value, eps=1e-6):
    q, k = phi(query), phi(key)
    states = np.cumsum(k[:, :, None] * value[:, None, :], axis=0)
    return np.einsum("td,tdv->tv", q, states) / (np.sum(q * np.cumsum(k, axis=0), axis=1, keepdims=True) + eps)


def _read_before_written(query, key, value, eps=1e-6):
    state, total, out = np.zeros((key.shape[1], value.shape[1])), np.zeros(key.shape[1]), np.empty_like(value)
    for t, (q, k) in enumerate(zip(phi(query), phi(key), strict=True)):
        out[t] = q @ state / (q @ total + eps)
        state += np.outer(k, value[t])
        total += k
    return out


def _sees_all(query, key, value, eps=1e-6):
    q, k = phi(query), phi(key)
    return q @ (k.T @ value) / (q @ k.sum(axis=0) + eps)[:, None]


def _softmax(query, key, value, eps=1e-6):
    scores = np.where(np.tri(len(query), dtype=bool), query @ key.T / np.sqrt(query.shape[1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights @ value / weights.sum(axis=1, keepdims=True)


def _all_weights_backward(dout, query, key, value, eps=1e-6):
    q, k = phi(query), phi(key)
    weights = np.tril(q @ k.T)
    denominator = weights.sum(axis=1, keepdims=True) + eps
    d = dout / denominator
    dweights = np.tril(d @ value.T - np.sum(d * (weights @ value / denominator), axis=1, keepdims=True))
    return dweights @ k * phi_slope(query), dweights.T @ q * phi_slope(key), weights.T @ d


def _all_states_backward(dout, query, key, value, eps=1e-6):
    np.cumsum((phi(query)[:, :, None] * dout[:, None, :])[::-1], axis=0)
    return _backward_in_chunks(dout, query, key, value, eps)


def _queries_after(first, last):
    """The backward where the walk back adds a position's query after it reads, for the keys, the values or both."""

    def backward(dout, query, key, value, eps=1e-6):
        features, key_features = phi(query), phi(key)
        weights = np.tril(features @ key_features.T)
        denominator = weights.sum(axis=1, keepdims=True) + eps
        d = dout / denominator
        dweights = d @ value.T - np.sum(d * (weights @ value / denominator), axis=1, keepdims=True)
        dkey_features = np.tril(dweights, -first).T @ features
        dvalue = np.tril(features @ key_features.T, -last).T @ d
        return np.tril(dweights) @ key_features * phi_slope(query), dkey_features * phi_slope(key), dvalue

    return backward


def _layer_by_layer_in_place(allowed):
    """Within a layer, later positions listen to earlier ones that have heard in the same layer."""
    heard = np.eye(len(allowed), dtype=bool)
    layers = np.where(heard, 0, -1)
    for layer in range(1, len(allowed)):
        before = heard.copy()
        for i, row in enumerate(allowed):
            for j in np.flatnonzero(row):
                heard[i] |= heard[j]
        layers[heard & ~before] = layer
    return layers


def _while_not_all(allowed):
    """Ends only where each position hears of each other one."""
    heard, layer = np.eye(len(allowed), dtype=bool), 0
    layers = np.where(heard, 0, -1)
    while not heard.all():
        layer += 1
        more = heard | (allowed @ heard)
        layers[more & ~heard] = layer
        heard = more
    return layers


def _by_sums(numerator, denominator):
    """Linear attention with other sums of the weights, of (T, T)."""

    def linear_attention(query, key, value, eps=1e-6):
        features, key_features = phi(query), phi(key)
        weights = np.tril(features @ key_features.T)
        return numerator(weights) @ value / denominator(weights, features, eps)[:, None]

    return linear_attention


_own_key_missing_in_z = _by_sums(lambda w: w, lambda w, q, eps: np.tril(w, -1).sum(axis=1) + eps)
_own_key_missing_in_state = _by_sums(lambda w: np.tril(w, -1), lambda w, q, eps: w.sum(axis=1) + eps)
_eps_in_z = _by_sums(lambda w: w, lambda w, q, eps: w.sum(axis=1) + eps * q.sum(axis=1))


def _row_by_row_in_lists(query, key, value, eps=1e-6):
    features, key_features, value, out = phi(query).tolist(), phi(key).tolist(), value.tolist(), []
    for t, q in enumerate(features):
        weights = [sum(a * b for a, b in zip(q, k, strict=True)) for k in key_features[: t + 1]]
        columns = zip(*value[: t + 1], strict=True)
        out.append([sum(w * v for w, v in zip(weights, c, strict=True)) / (sum(weights) + eps) for c in columns])
    return np.array(out)


def _states_again(query, key, value, eps=1e-6):
    """In chunks, each of which sums over all earlier keys anew."""
    extended = np.concatenate([value, np.ones((len(value), 1))], axis=1)
    features, key_features, sums = phi(query), phi(key), np.empty_like(extended)
    for part in _chunks(len(query), 100):
        state = key_features[: part.start].T @ extended[: part.start]
        sums[part] = np.tril(features[part] @ key_features[part].T) @ extended[part] + features[part] @ state
    return sums[:, :-1] / (sums[:, -1:] + eps)


def _linear_in_pytorch(query, key, value, eps=1e-6):
    q, k, v = (torch.from_numpy(part) for part in (query, key, value))
    q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    numerator = sum(q[:, i, None] * torch.cumsum(k[:, i, None] * v, 0) for i in range(k.shape[1]))
    return (numerator / ((q * torch.cumsum(k, 0)).sum(1, keepdim=True) + eps)).numpy()


def _row_by_row_backward(dout, query, key, value, eps=1e-6):
    q, k = phi(query), phi(key)
    dfeatures, dkey_features, dvalue = np.empty_like(query), np.zeros_like(key), np.zeros_like(value)
    for t in range(len(q)):
        past = slice(t + 1)
        weights = k[past] @ q[t]
        denominator = weights.sum() + eps
        d = dout[t] / denominator
        dweights = (value[past] - weights @ value[past] / denominator) @ d
        dfeatures[t] = dweights @ k[past]
        dkey_features[past] += np.outer(dweights, q[t])
        dvalue[past] += np.outer(weights, d)
    return dfeatures * phi_slope(query), dkey_features * phi_slope(key), dvalue


MISTAKES = r"""
[layers_until_heard]
transposed | returns layers.T | row i is the position that listens
never is 0 | np.where(heard, 0, -1) → np.zeros((T, T), int) | and it never does: that is −1
overwritten | layers[more & ~heard] → layers[more] | every number is that of the last layer
all in one layer | is _layer_by_layer_in_place | what the others knew before it
until all is heard | is _while_not_all | a loop that never ends
never of itself | returns np.where(layers == 0, -1, layers) | -1 stands where a position hears of itself
one too many | = layer\n → = layer + 1\n | every number is one too many
one too few | = layer\n → = layer - 1\n | every number is one too few
joined with itself
    listens @ heard > 0 → (listens if layer == 1 else heard.astype(float)) @ heard > 0
    as if the next layer
one layer | range(1, T) → range(1, min(T, 2)) | outside its own window
two layers | range(1, T) → range(1, min(T, 3)) | it ends after 2 layers
no residual connection | np.logical_or(allowed, heard).astype(float) → allowed.astype(float)
    the residual connection keeps what a position has
never is infinite | returns np.where(layers < 0, np.inf, layers) | of whole numbers, not of float64
truth values | returns layers >= 0 | not of bool
at most 12 layers | range(1, T) → range(1, min(T, 13)) | a causal window of 40 positions: the result is wrong
a list | returns layers.tolist() | not list
the distance over the window
    returns np.where(layers > 0, -(-(np.arange(T)[:, None] - np.arange(T)) // allowed.sum(axis=1).max()), layers)
    the result
stops where one layer brings nothing to the last position
    if (more == heard).all(): → if (more == heard)[-1].all():
    the result is wrong
[global_token_backward]
the mean | returns [each / len(query) for each in answer] | one value was used T times
the mean, of the key alone | returns answer[0] / len(query), answer[1] | one key was used T times
the plain sum | weights_g @ dout → dout.sum(axis=0) | the plain sum of dout
no scale | / np.sqrt(query.shape[1]) → | dkey_g is √D times too large
scaled twice | / np.sqrt(query.shape[1]) → / query.shape[1] | dkey_g is √D times too small
the width of the values | np.sqrt(query.shape[1]) → np.sqrt(len(value_g)) | divided by √Dv
no mean in the softmax | - np.sum(dout * out, axis=1) → | misses half of the softmax
its own share alone | np.sum(dout * out, axis=1) → weights_g * dweights_g | only this token's share
no weights | weights_g * (dweights_g - np.sum(dout * out, axis=1)) → dweights_g - np.sum(dout * out, axis=1)
    dkey_g misses the weights
the wrong sign | dweights_g - np.sum(dout * out, axis=1) → np.sum(dout * out, axis=1) - dweights_g | wrong sign
the other order | returns answer[::-1] | in the other order
a row for each query | returns dscores_g[:, None] * query / np.sqrt(query.shape[1]), dvalue_g | a row for each query
a row of one | returns answer[0][None], answer[1] | and must have
the mean of all rows | np.sum(dout * out, axis=1) → np.sum(dout * out, axis=1).mean() | dkey_g is wrong
[linear_attention]
no φ below
    / (features[t] @ total + eps)\n    return → / (query[t] @ total + eps)\n    return
    φ is missing there, it is φ(q) · z
the state of one position
    state += np.outer(key_features[t], value[t])\n        total += key_features[t]\n        out →
        state = np.outer(key_features[t], value[t])\n        total += key_features[t]\n        out
    S is that of position t alone
no causality | is _sees_all | later keys move earlier outputs
read before written | is _read_before_written | does not see its own key
no denominator | / (features[t] @ total + eps)\n    return → \n    return | nothing is divided
no features | features, key_features = phi(query), phi(key) → features, key_features = query, key | φ is missing
features of queries alone | features, key_features = phi(query), phi(key) → features, key_features = phi(query), key
    φ is applied to the queries alone
features of keys alone | features, key_features = phi(query), phi(key) → features, key_features = query, phi(key)
    φ is applied to the keys alone
divided by the number of keys | (features[t] @ total + eps)\n    return → (t + 1)\n    return
    divided by the number of keys
no eps | (features[t] @ total + eps)\n    return → (features[t] @ total)\n    return | right but for eps
eps is a constant | (features[t] @ total + eps)\n    return → (features[t] @ total + 1e-6)\n    return | that with 1e-6
eps in z | is _eps_in_z | so that φ(q) multiplies it
products are scaled
    / (features[t] @ total + eps)\n    return → / (features[t] @ total + eps * np.sqrt(key.shape[1]))\n    return
    eps counts √D times
queries are scaled | features, key_features = phi(query) → features, key_features = phi(query / np.sqrt(query.shape[1]))
    φ takes them as they are
own key missing in z | is _own_key_missing_in_z | z only after
own key missing in S | is _own_key_missing_in_state | S only after
row by row, in lists | is _row_by_row_in_lists | times as many lines of Python as one among 100
each chunk's state from the beginning | is _states_again | something walks over all earlier or later positions again
in PyTorch | is _linear_in_pytorch | its cost cannot be counted
eps for each key | (features[t] @ total + eps)\n    return → (features[t] @ total + (t + 1) * eps)\n    return
    the output is off by up to
outputs add up | returns np.cumsum(out, axis=0) | outputs add up
all weights at once | is _all_weights | as arrays of (T, T) do
all states at once | is _all_states | as an array of (T, D, Dv) does
a softmax | is _softmax | this is attention with a softmax
transposed | returns out.T | it returns shape
an exponential that overflows
    np.maximum(x, 0) + np.exp(np.minimum(x, 0)) → (x > 0) * (x + 1) + (x <= 0) * np.exp(x)
    NaN
forgets after 64 | total += key_features[t] → total = total * (t != 64) + key_features[t] | with T = 80
[linear_attention_backward]
a slope of φ − 1
    np.exp(np.minimum(x, 0))\n\n\ndef layers → np.maximum(x, 0) + np.exp(np.minimum(x, 0)) - 1\n\n\ndef layers
    has φ(x) − 1 for the slope
no φ in dS | np.outer(features[t], dnumerator[t]) → np.outer(query[t], dnumerator[t]) | has dS += qᵀ dnumerator
forward in time | for t in reversed(range(T)): → for t in range(T):
    the gradient of a value sums over the queries *before*
misses its own query | is _queries_after(1, 1) | the gradient of a value misses its own
misses its own query, for the key | is _queries_after(1, 0)
    the gradient of a key, unlike that of a value, misses its own
its own query alone | dstate += np.outer → dstate = np.outer | dtotal += features[t] * → dtotal = features[t] *
    the gradient of a value has only its own
all queries | dvalue[t] = key_features[t] @ dstate → dvalue[t] = key_features[t] @ (features.T @ dnumerator)
    the gradient of a value sums over all queries
no denominator for values | dnumerator[t] = dout[t] / denominator → dnumerator[t] = dout[t]
    dvalue misses the denominator
z forgotten for keys | dstate @ value[t] + dtotal → dstate @ value[t] | key t is in z too
z with the wrong sign for keys | dstate @ value[t] + dtotal → dstate @ value[t] - dtotal | dkey has what comes through
z forgotten for queries | + total * ddenominator[t] → | φ(q) is read against z too
z with the wrong sign for queries | + total * ddenominator[t] → - total * ddenominator[t] | ddenominator = −dnumerator
no slope for queries | dfeatures * phi_slope(query) → dfeatures | times φ'(q)
no slope for keys | dkey_features * phi_slope(key) → dkey_features | times φ'(k)
φ instead of its slope | phi_slope(query) → phi(query) | has φ(x) itself for the slope
keys and queries exchanged | returns answer[1], answer[0], answer[2] | dquery is what dkey must be
the reverse order | returns answer[::-1] | a gradient has its array's
not divided again | ddenominator[t] = -dnumerator[t] @ out → ddenominator[t] = -dout[t] @ out | misses a division
z misses its own query
    dtotal += features[t] * ddenominator[t] →
    dstate @ value[t] + dtotal → dstate @ value[t] + dtotal; dtotal += features[t] * ddenominator[t]
    dkey misses what its own query sends through the denominator
the last state for queries
    returns (dnumerator @ state.T + np.outer(ddenominator, total)) * phi_slope(query), answer[1], answer[2]
    made with the last state
row by row | is _row_by_row_backward | walks over all earlier or later positions again
eps forgotten | features[t] @ total + eps\n → features[t] @ total\n | is off by up to
eps is a constant | features[t] @ total + eps\n → features[t] @ total + 1e-6\n | with eps = 0.5 dquery is wrong
all weights at once | is _all_weights_backward | as arrays of (T, T) do
all states at once | is _all_states_backward | as an array of (T, D, Dv) does
[chunk_states_backward]
adds before it stores
    tl.store(dstates_ptr + place, dstate) → pass
    input_precision="ieee") → input_precision="ieee")\n        tl.store(dstates_ptr + place, dstate)
    store first, then add
from the first chunk on | (CHUNKS - 1 - n) * D → n * D | walk from the last to the first
nothing added up | dstate += tl.dot → dstate = tl.dot | what the next one sends
no features | tl.maximum(query, 0.0) + tl.exp(tl.minimum(query, 0.0)) → query | φ is missing
transposed
    tl.dot(tl.trans(features), tl.load(dnumerator_ptr + place), →
        tl.dot(tl.trans(tl.load(dnumerator_ptr + place)), features,
    each state is transposed
the first head for all | first = tl.program_id(0) * CHUNKS * D * D → first = 0 | only the first head is written
products of fewer digits | , input_precision="ieee" → | lacks input_precision
summed afterwards, without a barrier | is _summed_afterwards | reads what another wave touches
a relay of programs | is _relay | a program reads or writes what another has written
no kernel | is _in_pytorch | no kernel was launched
a launch for each head
    chunk_states_backward_kernel[(heads,)](query, dnumerator, dstates, →
        for h in range(heads): chunk_states_backward_kernel[(1,)](query[h], dnumerator[h], dstates[h],
    kernels were launched 2 times
one chunk less | range(CHUNKS) → range(CHUNKS - 1) | They are not written
heads begin too early | tl.program_id(0) * CHUNKS * D * D → tl.program_id(0) * D * D | They are not written
one chunk too far | (CHUNKS - 1 - n) → (CHUNKS - n) | hold NaN
the wrong shape | returns dstates[:, 0] | has shape
"""
