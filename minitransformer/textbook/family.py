"""The ops of other models, before the paper and after it, that stand in the place of the paper's own.

Shapes as in `paper`; K is the number of positions that a convolution sees.
"""

import math
from typing import Any

import numpy as np

from ..ops import Dropout, Quantized
from ..ops.elementwise import activations_of
from .paper import (
    Array,
    dropout_backward,
    dropout_forward,
    log_softmax,
    may_attend,
    relu_backward,
    relu_forward,
    softmax_backward,
    softmax_forward,
    sum_groups,
)

# --- Rewards: Williams 1992; Williams & Peng 1991 --------------------------------------------------------------


def log_probs_forward(logits: Array, ids: Array) -> tuple[Array, tuple]:
    """`y = log softmax(logits)_id`: logits `(..., V)`, the ids that were drawn `(...)`."""
    log_probabilities = log_softmax(logits)
    chosen = np.take_along_axis(log_probabilities, ids[..., None], axis=-1)  # (..., 1)
    return chosen[..., 0], (log_probabilities, ids)


def log_probs_backward(dlog_probs: Array, cache: tuple) -> Array:
    """`dlogits = dlog_probs (onehot − softmax(logits))`."""
    log_probabilities, ids = cache
    onehot = np.eye(log_probabilities.shape[-1], dtype=log_probabilities.dtype)[ids]
    return dlog_probs[..., None] * (onehot - np.exp(log_probabilities))


def entropy_forward(logits: Array) -> tuple[Array, tuple]:
    """`H = −Σ_v p_v log p_v` with `p = softmax(logits)`: logits `(..., V)`; a token with p = 0 adds nothing."""
    log_p = log_softmax(logits)
    p = np.exp(log_p)
    log_p = np.where(p == 0, 0, log_p)  # 0 · −inf is NaN
    entropy = -(p * log_p).sum(axis=-1)
    return entropy, (p, log_p, entropy)


def entropy_backward(dentropy: Array, cache: tuple) -> Array:
    """`dlogits = −dentropy p (log p + H)`."""
    p, log_p, entropy = cache
    return -dentropy[..., None] * p * (log_p + entropy[..., None])


# --- Element by element ---------------------------------------------------------------------------------------


def tanh_forward(x: Array) -> tuple[Array, Array]:
    """`y = tanh(x)`."""
    y = np.tanh(x)
    return y, y


def tanh_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy (1 − y²)`."""
    y = cache
    return dy * (1 - y**2)


def sigmoid_forward(x: Array) -> tuple[Array, Array]:
    """`y = 1 / (1 + e⁻ˣ)`, written as `(1 + tanh(x/2)) / 2`, which never overflows."""
    y = (1 + np.tanh(x / 2)) / 2
    return y, y


def sigmoid_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy y (1 − y)`."""
    y = cache
    return dy * y * (1 - y)


erf = np.vectorize(math.erf, otypes=[np.float64])
"""`2/√π ∫₀ˣ exp(−t²) dt`, one element at a time."""


def gelu_forward(x: Array, approximate: str = "none") -> tuple[Array, tuple]:
    """`y = x Φ(x)`; Φ(x) is the probability that a standard normal number is below x.

    GPT-2 uses the approximation "tanh". Source: Hendrycks & Gimpel 2016, §2.
    """
    if approximate == "tanh":
        below = (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    else:
        below = ((1 + erf(x / math.sqrt(2))) / 2).astype(x.dtype)
    return x * below, (x, below, approximate)


def gelu_backward(dy: Array, cache: tuple) -> Array:
    """`dx = dy (Φ + x Φ′)`: the slope Φ′ is the normal density, or with the approximation's tanh t (1 − t²)/2 · …"""
    x, below, approximate = cache
    if approximate == "tanh":
        t = 2 * below - 1  # below = (1 + t) / 2
        slope = (1 - t**2) / 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    else:
        slope = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return dy * (below + x * slope)


def silu_forward(x: Array) -> tuple[Array, tuple]:
    """`y = x σ(x)`, σ the sigmoid. Source: Hendrycks & Gimpel 2016, §2; Ramachandran, Zoph, Le 2017."""
    gate, sigmoid_cache = sigmoid_forward(x)
    return x * gate, (x, gate, sigmoid_cache)


def silu_backward(dy: Array, cache: tuple) -> Array:
    """`dx = dy σ + dy x σ′`: the product rule."""
    x, gate, sigmoid_cache = cache
    return dy * gate + sigmoid_backward(dy * x, sigmoid_cache)


ACTIVATIONS = activations_of(
    (silu_forward, silu_backward),
    (gelu_forward, gelu_backward),
    (relu_forward, relu_backward),
    (sigmoid_forward, sigmoid_backward),
)


def gated_forward(gate: Array, up: Array, activation: str = "silu") -> tuple[Array, tuple]:
    """`y = activation(gate) up`, gate and up `(..., F)`: SwiGLU, GEGLU, ReGLU, GLU. Source: Shazeer 2020, eq. 5."""
    forward, _ = ACTIVATIONS[activation]
    activated, cache = forward(gate)
    return activated * up, (activated, up, cache, activation)


def gated_backward(dy: Array, cache: tuple) -> tuple[Array, Array]:
    """Gradients `(dgate, dup)`."""
    activated, up, activation_cache, activation = cache
    _, backward = ACTIVATIONS[activation]
    return backward(dy * up, activation_cache), dy * activated  # activated * up


# --- Root mean square normalisation: Zhang & Sennrich 2019, eq. 4 ----------------------------------------------


def rmsnorm_forward(x: Array, gamma: Array, eps: float = 1e-6) -> tuple[Array, tuple]:
    """`y = gamma x / √(mean(x²) + eps)` over the last axis: x `(..., C)`, gamma `(C,)`."""
    root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    normed = x / root
    return gamma * normed, (normed, root, gamma)


def rmsnorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array]:
    """Gradients `(dx, dgamma)`: y does not change when x moves along normed, so dx has no such component."""
    normed, root, gamma = cache
    dgamma = (dy * normed).sum(axis=tuple(range(dy.ndim - 1)))  # gamma * normed
    dnormed = dy * gamma
    along_normed = (dnormed * normed).mean(axis=-1, keepdims=True)
    return (dnormed - normed * along_normed) / root, dgamma


def add_rmsnorm_forward(
    x: Array, sublayer_out: Array, gamma: Array, eps: float = 1e-6, dropout: Dropout | None = None
) -> tuple[Array, tuple]:
    """`RMSNorm(x + Dropout(sublayer_out))`."""
    dropped, dropout_cache = dropout_forward(sublayer_out, dropout)
    y, norm_cache = rmsnorm_forward(x + dropped, gamma, eps)
    return y, (dropout_cache, norm_cache)


def add_rmsnorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dx, dsublayer_out, dgamma)`."""
    dropout_cache, norm_cache = cache
    dx, dgamma = rmsnorm_backward(dy, norm_cache)
    return dx, dropout_backward(dx, dropout_cache), dgamma


# --- Attention of other kinds ---------------------------------------------------------------------------------


def linear_attention_forward(
    query: Array,
    key: Array,
    value: Array,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    eps: float = 1e-6,
) -> tuple[Array, tuple]:
    """`out_i = Σ_j φ(q_i)·φ(k_j) v_j / (Σ_j φ(q_i)·φ(k_j) + eps)`, φ = elu + 1. Source: Katharopoulos et al. 2020.

    The weights are a matrix here, which the fast op never makes.
    """
    groups = query.shape[1] // max(1, key.shape[1])
    key, value = key.repeat(groups, axis=1), value.repeat(groups, axis=1)
    features, key_features = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (query, key))
    time = query.shape[2]
    allowed = may_attend(time, time, causal, key_mask, None, None)
    weights = np.where(allowed, features @ key_features.swapaxes(-1, -2), 0)  # (B, H, T, T)
    total = weights.sum(axis=-1, keepdims=True) + eps
    out = weights @ value / total
    return out, (query, key, value, groups, features, key_features, allowed, weights, total, out)


def linear_attention_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array]:
    """Gradients `(dquery, dkey, dvalue)`."""
    query, key, value, groups, features, key_features, allowed, weights, total, out = cache
    dmixed = dout / total  # out = mixed / total
    dtotal = -(dmixed * out).sum(axis=-1, keepdims=True)
    dvalue = weights.swapaxes(-1, -2) @ dmixed  # mixed = weights @ value
    dweights = np.where(allowed, dmixed @ value.swapaxes(-1, -2) + dtotal, 0)
    dfeatures = dweights @ key_features  # weights = features @ key_featuresᵀ
    dkey_features = dweights.swapaxes(-1, -2) @ features
    dquery = dfeatures * np.where(query > 0, 1, features)  # φ(x) = exp(x) where x is not positive
    dkey = dkey_features * np.where(key > 0, 1, key_features)
    return dquery, sum_groups(dkey, groups), sum_groups(dvalue, groups)


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
    """Position by position: `S += φ(k)ᵀ v`, `z += φ(k)`, `out = φ(q) S / (φ(q)·z + eps)`; S is state and z total."""
    batch, heads, time, width = query.shape
    groups = heads // max(1, key.shape[1])
    state = np.zeros((*key.shape[:2], width, value.shape[3]), key.dtype) if state is None else state.copy()
    total = np.zeros((*key.shape[:2], width), key.dtype) if total is None else total.copy()
    features, key_features = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (query, key))
    if key_mask is not None:
        key_features = key_features * key_mask[:, None, :, None]
    out = np.empty((batch, heads, time, value.shape[3]), query.dtype)
    for t in range(time):
        state += key_features[:, :, t, :, None] * value[:, :, t, None]  # (B, Hk, D, Dv)
        total += key_features[:, :, t]  # (B, Hk, D)
        q = features[:, :, t, None]  # (B, H, 1, D)
        out[:, :, t : t + 1] = q @ state.repeat(groups, axis=1) / (q @ total.repeat(groups, axis=1)[..., None] + eps)
    return out, (state, total)


def additive_attention_forward(
    query: Array, key: Array, value: Array, score_weight: Array, *, key_mask: Array | None = None
) -> tuple[Array, tuple]:
    """`out_i = Σ_j softmax_j(w · tanh(query_i + key_j)) value_j`. Source: Bahdanau, Cho, Bengio 2015, appendix A.1.2.

    query `(B, Tq, C)`, key `(B, Tk, C)`, value `(B, Tk, Dv)`, score_weight w `(C,)`.
    """
    features, tanh_cache = tanh_forward(query[:, :, None] + key[:, None])  # (B, Tq, Tk, C)
    scores = features @ score_weight  # (B, Tq, Tk)
    if key_mask is not None:
        scores = np.where(key_mask[:, None], scores, scores.dtype.type(-np.inf))
    weights, softmax_cache = softmax_forward(scores)
    return weights @ value, (value, score_weight, features, tanh_cache, weights, softmax_cache)


def additive_attention_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array, Array]:
    """Gradients `(dquery, dkey, dvalue, dscore_weight)`."""
    value, score_weight, features, tanh_cache, weights, softmax_cache = cache
    dvalue = weights.swapaxes(-1, -2) @ dout  # weights @ value
    dscores = softmax_backward(dout @ value.swapaxes(-1, -2), softmax_cache)
    dscore_weight = (dscores[..., None] * features).sum(axis=(0, 1, 2))  # scores = features @ score_weight
    dsum = tanh_backward(dscores[..., None] * score_weight, tanh_cache)
    return dsum.sum(axis=2), dsum.sum(axis=1), dvalue, dscore_weight  # query[:, :, None] + key[:, None]


# --- Rotary positions: Su et al. 2021, eq. 34 -----------------------------------------------------------------


def rope_forward(x: Array, cos: Array, sin: Array, interleaved: bool = False) -> tuple[Array, tuple]:
    """`(a, b) → (a cos − b sin, b cos + a sin)` for each pair of channels: x `(B, H, T, D)`, cos and sin `(T, R/2)`.

    A pair is channels i and i + R/2 or, `interleaved`, 2i and 2i + 1; the channels from R on stay as they are.
    """
    pairs = np.arange(2 * cos.shape[1]).reshape((-1, 2) if interleaved else (2, -1))
    first, second = pairs.T if interleaved else pairs
    a, b = x[..., first], x[..., second]  # (B, H, T, R/2)
    y = x.copy()
    y[..., first] = a * cos - b * sin
    y[..., second] = b * cos + a * sin
    return y, (first, second, cos, sin)


def rope_backward(dy: Array, cache: tuple) -> Array:
    """The gradient dx: cos and sin have none."""
    first, second, cos, sin = cache
    da, db = dy[..., first], dy[..., second]
    dx = dy.copy()
    dx[..., first] = da * cos + db * sin  # a * cos; a * sin
    dx[..., second] = db * cos - da * sin  # b * cos; −b * sin
    return dx


# --- Weights in few bits: Dettmers et al. 2023, §2 ------------------------------------------------------------


def dequantized(weight: Quantized, dtype: Any) -> Array:
    """The whole matrix `(C_in, C_out)`: `d q + m` or, symmetric about 0, `d q`; four bits hold q + 8 there.

    d and m are of each group. q comes from bytes 16·high + low: all lower halves of a group, then all upper ones.
    """
    q = weight.packed.astype(np.float32)  # (C_out, groups, group·bits/8)
    if weight.bits == 4:
        q = np.concatenate([q % 16, q // 16], axis=2)  # (C_out, groups, group)
    if weight.zeros is None:
        q = q - (8 if weight.bits == 4 else 0)
    rows = weight.scales.astype(np.float32)[:, :, None] * q
    if weight.zeros is not None:
        rows = rows + weight.zeros.astype(np.float32)[:, :, None]
    return rows.reshape(weight.shape[::-1]).T.astype(dtype)


def quantized_linear_forward(x: Array, weight: Quantized, bias: Array | None) -> tuple[Array, tuple]:
    """`y = x W + b`, W `dequantized` from few bits: x `(..., C_in)`, W `(C_in, C_out)`, b `(C_out,)`."""
    matrix = dequantized(weight, x.dtype)
    y = x @ matrix
    return (y if bias is None else y + bias), (matrix, bias)


def quantized_linear_backward(dy: Array, cache: tuple) -> tuple[Array, Array | None]:
    """Gradients `(dx, dbias)`: the numbers in few bits stay as they are."""
    matrix, bias = cache
    dbias = None if bias is None else dy.sum(axis=tuple(range(dy.ndim - 1)))  # x W + b
    return dy @ matrix.T, dbias


# --- Images as sequences: Dosovitskiy et al. 2021, §3.1 -------------------------------------------------------


def patches_forward(images: Array, size: int) -> tuple[Array, tuple]:
    """Squares of size × size pixels as rows: `(B, channels, height, width)` → `(B, T, channels·size²)`."""
    batch, channels, height, width = images.shape
    corners = [(i, j) for i in range(0, height, size) for j in range(0, width, size)]
    y = np.zeros((batch, len(corners), channels * size**2), images.dtype)
    for t, (i, j) in enumerate(corners):
        y[:, t] = images[:, :, i : i + size, j : j + size].reshape(batch, channels * size**2)
    return y, (images.shape, corners, size)


def patches_backward(dy: Array, cache: tuple) -> Array:
    """The gradient dimages: each patch's goes back to where it was cut out."""
    shape, corners, size = cache
    dimages = np.zeros(shape, dy.dtype)
    for t, (i, j) in enumerate(corners):
        dimages[:, :, i : i + size, j : j + size] = dy[:, t].reshape(*shape[:2], size, size)
    return dimages


# --- Convolution, for the models before the paper: Gehring et al. 2017, §3.2 ----------------------------------


def conv1d_forward(x: Array, weight: Array, bias: Array | None, *, padding: str = "causal") -> tuple[Array, tuple]:
    """`y_t = Σ_k x_{t+k} W_k + b` over x with zeros at its ends: x `(B, T, C_in)`, weight `(K, C_in, C_out)`."""
    taps, time = len(weight), x.shape[1]
    left, right = {"causal": (taps - 1, 0), "same": (taps // 2, taps // 2), "valid": (0, 0)}[padding]
    padded = np.pad(x, ((0, 0), (left, right), (0, 0)))
    length = left + time + right - taps + 1
    y = np.sum([padded[:, k : k + length] @ weight[k] for k in range(taps)], axis=0)  # (B, T, C_out)
    return (y if bias is None else y + bias), (padded, weight, bias, left, time)


def conv1d_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array | None]:
    """Gradients `(dx, dweight, dbias)`."""
    padded, weight, bias, left, time = cache
    length = dy.shape[1]
    dpadded, dweight = np.zeros_like(padded), np.zeros_like(weight)
    for k in range(len(weight)):  # y = Σ_k padded[:, k : k + length] @ weight[k]
        dpadded[:, k : k + length] += dy @ weight[k].T
        dweight[k] = np.einsum("bti,bto->io", padded[:, k : k + length], dy)
    dbias = None if bias is None else dy.sum(axis=(0, 1))
    return dpadded[:, left : left + time], dweight, dbias  # padded = zeros, x, zeros
