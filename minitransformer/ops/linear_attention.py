"""Linear attention: a feature map in the place of the softmax, so that the cost grows as T, not as T²."""

from collections.abc import Iterator

import numpy as np

from .arguments import Array, arguments, check_flag, check_positive, gradient_of
from .attention import fold

CHUNK = 64
"""With `causal`, queries are taken so many at a time: what came before them is one state, `(D, Dv + 1)`."""


@arguments(
    "query B H T D≥1, key B Hk|H T D, value B Hk T Dv≥1, key_mask?:bool B T",
    causal=check_flag,
    eps=check_positive,
    products=True,
)
def linear_attention_forward(
    query: Array,
    key: Array,
    value: Array,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    eps: float = 1e-6,
) -> tuple[Array, tuple]:
    """`φ(q) Σ_j φ(k_j)ᵀ v_j / (φ(q) · Σ_j φ(k_j) + eps)` with `φ(x) = elu(x) + 1`: `(B, H, T, Dv)`.

    The sums run over the keys that `key_mask (B, T)` leaves, with `causal` over those at or before the query; a query
    with none gets zeros and sends no gradient. Fewer key/value heads are shared as in `attention_forward`. Time and
    memory grow as T: no array is `(T, T)` or `(T, D, Dv)`.
    Source: Katharopoulos et al. 2020, eq. 5 to 9.
    """
    features, key_features, extended = _mapped(query, key, value, key_mask)
    sums = _sums(features, key_features, extended, causal, 0)
    denominator = sums[..., -1:] + query.dtype.type(eps)
    out = sums[..., :-1] / denominator
    return out, (key, extended, features, key_features, causal, key_mask, denominator, out)


@gradient_of(lambda *cache: (cache[7].shape, cache[7].dtype), products=True)
def linear_attention_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dquery, dkey, dvalue)`: the states are summed again, and their gradients from the last chunk on."""
    key, extended, features, key_features, causal, key_mask, denominator, out = cache
    dnumerator = dout / denominator  # out = numerator / denominator
    ddenominator = -np.vecdot(dnumerator, out)[..., None]
    dsums = np.concatenate([dnumerator, ddenominator], axis=-1)  # (B, H, T, Dv + 1)
    dfeatures = np.empty_like(features)
    dkey_features, dextended = np.empty_like(key_features), np.empty_like(extended)
    for part, state in _chunks(key_features, extended, causal):
        d, k = fold(dsums[:, :, part], key), key_features[:, :, part]
        dpart = d @ state.swapaxes(-1, -2)  # mixed = q @ state
        if causal:
            dpart += _past(d @ extended[:, :, part].swapaxes(-1, -2)) @ k
        dfeatures[:, :, part] = dpart.reshape(dfeatures[:, :, part].shape)
    dstate = np.zeros((*key.shape[:2], key.shape[3], extended.shape[3]), key.dtype)  # of the state after a chunk
    for part in reversed(_places(key.shape[2], causal)):
        d, q, k = fold(dsums[:, :, part], key), fold(features[:, :, part], key), key_features[:, :, part]
        if not causal:  # one chunk: all queries see all keys
            dstate = q.swapaxes(-1, -2) @ d
        dkey_features[:, :, part] = extended[:, :, part] @ dstate.swapaxes(-1, -2)  # state = kᵀ @ extended
        dextended[:, :, part] = k @ dstate
        if causal:
            dweights = _past(d @ extended[:, :, part].swapaxes(-1, -2))  # mixed += weights @ extended
            weights = _past(q @ k.swapaxes(-1, -2))
            dkey_features[:, :, part] += dweights.swapaxes(-1, -2) @ q
            dextended[:, :, part] += weights.swapaxes(-1, -2) @ d
            dstate += q.swapaxes(-1, -2) @ d
    if key_mask is not None:
        dkey_features *= key_mask[:, None, :, None]
    dquery = dfeatures * np.minimum(features, 1)  # the slope of φ is 1 above 0, and exp(x) = φ(x) below
    return dquery, dkey_features * np.minimum(_elu_plus_one(key), 1), dextended[..., :-1].copy()


@arguments(
    "query B H T D≥1, key B Hk|H T D, value B Hk T Dv≥1, state? B Hk D Dv, total? B Hk D, key_mask?:bool B T",
    eps=check_positive,
    products=True,
)
def linear_attention_step(
    query: Array,
    key: Array,
    value: Array,
    state: Array | None = None,
    total: Array | None = None,
    *,
    key_mask: Array | None = None,
    eps: float = 1e-6,
) -> tuple[Array, tuple[Array, Array]]:
    """Continue causal linear attention after earlier keys; return its output and the new `(state, total)`.

    `state = Σ_j φ(k_j)ᵀ v_j (B, Hk, D, Dv)` and `total = Σ_j φ(k_j) (B, Hk, D)` are all that later positions need of
    the earlier ones, however many these are; `None` before the first. For decoding: there is no backward.
    Source: Katharopoulos et al. 2020, eq. 16 to 20.
    """
    features, key_features, extended = _mapped(query, key, value, key_mask)
    both = key_features.swapaxes(-1, -2) @ extended  # (B, Hk, D, Dv + 1)
    before = np.zeros_like(both)
    if state is not None:
        before[..., :-1] = state
    if total is not None:
        before[..., -1] = total
    sums = _sums(features, key_features, extended, True, before)
    both += before
    return sums[..., :-1] / (sums[..., -1:] + query.dtype.type(eps)), (both[..., :-1], both[..., -1])


def _mapped(query: Array, key: Array, value: Array, key_mask: Array | None) -> tuple[Array, Array, Array]:
    """Return φ(query), φ(key), and value with a column of ones: its weighted sum is the denominator."""
    features, key_features = _elu_plus_one(query), _elu_plus_one(key)
    if key_mask is not None:
        key_features = key_features * key_mask[:, None, :, None]
    return features, key_features, np.concatenate([value, np.ones_like(value[..., :1])], axis=-1)  # (B, Hk, T, Dv + 1)


def _sums(features: Array, key_features: Array, extended: Array, causal: bool, before: Array | int) -> Array:
    """`Σ_j (φ(q)·φ(k_j)) [v_j, 1]` for every query, `(B, H, T, Dv + 1)`; `before` is the state of earlier keys."""
    sums = np.empty((*features.shape[:3], extended.shape[3]), features.dtype)
    for part, state in _chunks(key_features, extended, causal, before):
        q, k = fold(features[:, :, part], key_features), key_features[:, :, part]
        mixed = q @ state  # (B, Hk, H/Hk·chunk, Dv + 1)
        if causal:
            mixed += _past(q @ k.swapaxes(-1, -2)) @ extended[:, :, part]
        sums[:, :, part] = mixed.reshape(sums[:, :, part].shape)
    return sums


def _elu_plus_one(x: Array) -> Array:
    """φ: `x + 1` above 0, `exp(x)` below, which is always positive."""
    return np.maximum(x, 0) + np.exp(np.minimum(x, 0))


def _places(time: int, causal: bool) -> list[slice]:
    """Return the chunks: one where nothing is causal."""
    return [slice(start, start + CHUNK) for start in range(0, time, CHUNK)] if causal else [slice(0, time)]


def _chunks(
    key_features: Array, extended: Array, causal: bool, before: Array | int = 0
) -> Iterator[tuple[slice, Array]]:
    """Yield the chunks, each with the state of its queries: the sum over all keys, or over those before the chunk."""
    batch, heads, time, width = key_features.shape
    state = np.zeros((batch, heads, width, extended.shape[3]), extended.dtype) + before
    for part in _places(time, causal):
        added = key_features[:, :, part].swapaxes(-1, -2) @ extended[:, :, part]
        yield part, state if causal else added
        state = state + added


def _past(weights: Array) -> Array:
    """Return the weights `(B, Hk, H/Hk·chunk, chunk)` without those of keys after the query."""
    batch, heads, rows, size = weights.shape
    past = np.tri(size, dtype=bool)
    return (weights.reshape(batch, heads, rows // size, size, size) * past).reshape(weights.shape)
