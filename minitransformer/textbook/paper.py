"""The paper's own operations: those of its Transformer, its loss and its optimiser.

Each is a pair, `y, cache = name_forward(…)` and `dx = name_backward(dy, cache)`: dy is the gradient of the loss with
respect to y, and the cache is what the backward needs of the forward. A backward follows its forward from the bottom up
and quotes the line that it undoes. Nothing is checked and nothing is made fast: `minitransformer.ops` does both.

Shapes: B sentences, T positions (Tq queries, Tk keys), H heads (Hk of keys and values), D the width of a head's queries
and keys (the paper's d_k), Dv of its values (d_v), C any width, V the vocabulary, N rows; `...` stands for any axes.
"""

import math
from typing import Any

import numpy as np

from ..ops import Dropout, Pattern, dropout_mask

Array = np.ndarray

# --- Linear: Vaswani 2017, §3.3 -------------------------------------------------------------------------------


def linear_forward(x: Array, weight: Array, bias: Array | None) -> tuple[Array, tuple]:
    """`y = x W + b`: x `(..., C_in)`, weight `(C_in, C_out)`, bias `(C_out,)` or `None`."""
    y = x @ weight
    return (y if bias is None else y + bias), (x, weight, bias)


def linear_backward(
    dy: Array, cache: tuple, out: tuple[Array, Array | None] | None = None
) -> tuple[Array, Array, Array | None]:
    """Gradients `(dx, dweight, dbias)`.

    `out=(dweight, dbias)` adds into these arrays: a model gives those in which it collects its parameters' gradients.
    """
    x, weight, bias = cache
    rows, drows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])  # (N, C_in), (N, C_out)
    dweight_out, dbias_out = out or (None, None)
    dbias = None if bias is None else added(dbias_out, drows.sum(axis=0))  # y + bias
    dweight = added(dweight_out, rows.T @ drows)  # y = x @ weight
    dx = dy @ weight.T  # y = x @ weight
    return dx, dweight, dbias


def added(out: Array | None, gradient: Array) -> Array:
    """Add the gradient to `out` and return `out`; return the gradient itself if `out` is `None`."""
    if out is None:
        return gradient
    out += gradient
    return out


# --- Element by element ---------------------------------------------------------------------------------------


def relu_forward(x: Array) -> tuple[Array, Array]:
    """`y = max(0, x)`. Source: Vaswani 2017, §3.3, eq. 2."""
    return np.maximum(x, 0), x


def relu_backward(dy: Array, cache: Array) -> Array:
    """`dx = dy` where x is positive."""
    x = cache
    return np.where(x > 0, dy, 0)


def dropout_forward(x: Array, dropout: Dropout | None) -> tuple[Array, Array | None]:
    """`y = x · mask / (1 − rate)`. Source: Srivastava et al. 2014; Vaswani 2017, §5.4."""
    if dropout is None:
        return x, None
    factor = dropout_mask(x.shape, dropout) * x.dtype.type(dropout.scale)  # mask / (1 − rate)
    return x * factor, factor


def dropout_backward(dy: Array, cache: Array | None) -> Array:
    """`dx = dy · mask / (1 − rate)`."""
    factor = cache
    return dy if factor is None else dy * factor


# --- Softmax: Vaswani 2017, §3.2.1 ----------------------------------------------------------------------------


def softmax_forward(x: Array) -> tuple[Array, Array]:
    """`y_i = exp(x_i) / Σ_j exp(x_j)` over the last axis; a row of −inf (nothing to attend to) gives zeros."""
    largest = x.max(axis=-1, keepdims=True, initial=-np.inf)  # subtracted, so that nothing overflows
    exponentials = np.exp(x - np.where(np.isneginf(largest), 0, largest))
    total = exponentials.sum(axis=-1, keepdims=True)
    y = exponentials / np.where(total == 0, 1, total)
    return y, y


def softmax_backward(dy: Array, cache: Array) -> Array:
    """`dx_i = y_i (dy_i − Σ_j dy_j y_j)`: the Jacobian `diag(y) − y yᵀ` times dy."""
    y = cache
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def log_softmax(x: Array) -> Array:
    """`log softmax(x) = x − log Σ_j exp(x_j)`, for the loss and for decoding."""
    largest = x.max(axis=-1, keepdims=True, initial=-np.inf)
    shifted = x - np.where(np.isneginf(largest), 0, largest)
    total = np.exp(shifted).sum(axis=-1, keepdims=True)
    return shifted - np.log(np.where(total == 0, 1, total))


# --- Layer normalisation: Ba, Kiros, Hinton 2016, eq. 4; Vaswani 2017, §3.1 -----------------------------------


def layernorm_forward(x: Array, gamma: Array, beta: Array | None, eps: float = 1e-5) -> tuple[Array, tuple]:
    """`y = gamma (x − mean) / √(var + eps) + beta` over the last axis: x `(..., C)`, gamma and beta `(C,)`."""
    std = np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    normed = (x - x.mean(axis=-1, keepdims=True)) / std
    y = gamma * normed
    return (y if beta is None else y + beta), (normed, std, gamma, beta)


def layernorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array | None]:
    """Gradients `(dx, dgamma, dbeta)`.

    y does not change when x moves along (1, …, 1) or along normed, so dx has no component in these two directions.
    """
    normed, std, gamma, beta = cache
    rows = tuple(range(dy.ndim - 1))
    dbeta = None if beta is None else dy.sum(axis=rows)  # y + beta
    dgamma = (dy * normed).sum(axis=rows)  # gamma * normed
    dnormed = dy * gamma
    along_ones = dnormed.mean(axis=-1, keepdims=True)
    along_normed = (dnormed * normed).mean(axis=-1, keepdims=True)
    dx = (dnormed - along_ones - normed * along_normed) / std
    return dx, dgamma, dbeta


def add_layernorm_forward(
    x: Array, sublayer_out: Array, gamma: Array, beta: Array | None, eps: float = 1e-5, dropout: Dropout | None = None
) -> tuple[Array, tuple]:
    """The paper's Add & Norm, `LayerNorm(x + Dropout(sublayer_out))`."""
    dropped, dropout_cache = dropout_forward(sublayer_out, dropout)
    y, norm_cache = layernorm_forward(x + dropped, gamma, beta, eps)
    return y, (dropout_cache, norm_cache)


def add_layernorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array, Array | None]:
    """Gradients `(dx, dsublayer_out, dgamma, dbeta)`: a sum sends its gradient down both branches."""
    dropout_cache, norm_cache = cache
    dx, dgamma, dbeta = layernorm_backward(dy, norm_cache)
    return dx, dropout_backward(dx, dropout_cache), dgamma, dbeta


# --- Attention: Vaswani 2017, §3.2.1, eq. 1 -------------------------------------------------------------------


def attention_forward(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    pattern: Pattern | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout: Dropout | None = None,
) -> tuple[Array, tuple]:
    """`softmax(query keyᵀ / √D + bias) value`: query `(B, H, Tq, D)`, key `(B, Hk, Tk, D)`, value `(B, Hk, Tk, Dv)`.

    The paper's options are `causal` (§3.2.3), `key_mask` (padding) and `window` (Table 1), and Hk is H. The others are
    Hk < H (Shazeer 2019), `bias` and `scale` (T5), `pattern` (Child et al. 2019), `softcap` (Gemma 2), and `dropout` of
    the weights (tensor2tensor, the authors' code).
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    groups = query.shape[1] // max(1, key.shape[1])  # how many query heads use the same keys and values
    key, value = key.repeat(groups, axis=1), value.repeat(groups, axis=1)  # (B, H, Tk, D), (B, H, Tk, Dv)
    scaled = query @ key.swapaxes(-1, -2) * scale  # (B, H, Tq, Tk)
    capped = scaled if softcap is None else softcap * np.tanh(scaled / softcap)
    scores = capped if bias is None else capped + bias
    allowed = may_attend(query.shape[2], key.shape[2], causal, key_mask, window, pattern)
    weights, softmax_cache = softmax_forward(np.where(allowed, scores, scores.dtype.type(-np.inf)))
    dropped, dropout_cache = dropout_forward(weights, dropout)
    out = dropped @ value  # (B, H, Tq, Dv)
    return out, (query, key, value, bias, groups, scale, softcap, capped, softmax_cache, dropped, dropout_cache)


def attention_backward(dout: Array, cache: tuple) -> tuple[Array, ...]:
    """Gradients `(dquery, dkey, dvalue)`, and dbias where a bias was given."""
    query, key, value, bias, groups, scale, softcap, capped, softmax_cache, dropped, dropout_cache = cache
    dvalue = dropped.swapaxes(-1, -2) @ dout  # out = dropped @ value
    ddropped = dout @ value.swapaxes(-1, -2)  # out = dropped @ value
    dweights = dropout_backward(ddropped, dropout_cache)
    dscores = softmax_backward(dweights, softmax_cache)  # 0 where the weight is 0: behind the mask
    slope = 1 if softcap is None else 1 - (capped / softcap) ** 2  # capped = softcap · tanh(scaled / softcap)
    dscaled = dscores * slope
    dquery = dscaled @ key * scale  # scaled = query @ keyᵀ · scale
    dkey = dscaled.swapaxes(-1, -2) @ query * scale  # scaled = query @ keyᵀ · scale
    gradients = dquery, sum_groups(dkey, groups), sum_groups(dvalue, groups)
    return gradients if bias is None else (*gradients, sum_broadcast(dscores, bias.shape))  # capped + bias


def may_attend(
    num_queries: int,
    num_keys: int,
    causal: bool,
    key_mask: Array | None,
    window: int | tuple[int | None, int | None] | None,
    pattern: Pattern | None,
) -> Array:
    """`True` where a query may attend to a key; broadcasts to `(B, H, Tq, Tk)`. The last query is at the last key."""
    pattern = Pattern() if pattern is None else pattern
    causal, window = causal or pattern.causal, pattern.window if window is None else window
    key_mask = pattern.key_mask if key_mask is None else key_mask
    query, key = np.arange(num_keys - num_queries, num_keys)[:, None], np.arange(num_keys)  # positions
    allowed = np.ones((num_queries, num_keys), dtype=bool)
    if causal:
        allowed = allowed & (key <= query)
    if key_mask is not None:
        allowed = allowed & key_mask[:, None, None, :]  # (B, Tk): which keys are not padding
    parts = []  # one matrix for each part of the pattern; a query sees their union, or all keys if there is no part
    if window is not None:
        left, right = window if isinstance(window, tuple | list) else (window, window)
        before = query - key <= (num_keys if left is None else left)
        after = key - query <= (num_queries if right is None else right)
        parts.append(before & after)
    if pattern.block is not None:
        parts.append(query // pattern.block == key // pattern.block)
        parts.append(key % pattern.block >= pattern.block - pattern.summary)
    if pattern.stride is not None:
        parts.append((query - key) % pattern.stride == 0)
    if pattern.global_tokens:
        parts.append(np.isin(query, pattern.global_tokens) | np.isin(key, pattern.global_tokens))
    return allowed & np.any(np.broadcast_arrays(*parts), axis=0) if parts else allowed


def attention_weights(query: Array, key: Array, bias: Array | None = None, **options: Any) -> Array:
    """Return `softmax(query keyᵀ / √D)`, `(B, H, Tq, Tk)`: attention's output with unit vectors as values."""
    unit_vectors = np.broadcast_to(np.eye(key.shape[2], dtype=key.dtype), (*key.shape[:3], key.shape[2]))
    return attention_forward(query, key, unit_vectors, bias, **options)[0]


def sum_groups(x: Array, groups: int) -> Array:
    """`(B, H, T, D)` → `(B, H/groups, T, D)`: the gradient of a head that was repeated."""
    batch, heads, time, width = x.shape
    return x.reshape(batch, heads // max(1, groups), groups, time, width).sum(axis=2)


def sum_broadcast(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient of an array of this shape that was broadcast: the sum over the axes of the broadcast."""
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    return gradient.sum(axis=tuple(i for i, size in enumerate(shape) if size == 1), keepdims=True)


# --- Token ids: Vaswani 2017, §3.4 ----------------------------------------------------------------------------


def embedding_forward(ids: Array, table: Array, scale: float = 1.0) -> tuple[Array, tuple]:
    """`y = scale · table[ids]`: ids `(...)`, table `(V, C)`; the paper's scale is `√d_model`."""
    return table[ids] * scale, (ids, table.shape, scale)


def embedding_backward(dy: Array, cache: tuple, out: Array | None = None) -> Array:
    """Gradient `dtable`: a token that occurs twice gets the sum; `out=` adds into this array."""
    ids, shape, scale = cache
    dtable = np.zeros(shape, dy.dtype)
    np.add.at(dtable, ids, dy * scale)  # table[ids] * scale
    return added(out, dtable)


# --- The loss: Szegedy et al. 2016, §7; Vaswani 2017, §5.4 ----------------------------------------------------


def cross_entropy_forward(
    logits: Array,
    targets: Array,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    *,
    weights: Array | None = None,
) -> tuple[Array, tuple]:
    """`−Σ_v q_v log softmax(logits)_v` with `q = (1 − ε) onehot + ε/V`: the mean over targets not `ignore_index`.

    Targets are ids `(...)`, or probabilities `(..., V)` in the place of onehot. Each loss may have a weight `(...)`:
    their weighted sum is still divided by the number of targets (REINFORCE: Williams 1992).
    """
    vocab_size = logits.shape[-1]
    if targets.dtype.kind in "iu":  # ids
        counted = np.ones(targets.shape, dtype=bool) if ignore_index is None else targets != ignore_index
        probabilities = np.eye(vocab_size, dtype=logits.dtype)[np.where(counted, targets, 0)]  # onehot
    else:
        counted, probabilities = np.ones(targets.shape[:-1], dtype=bool), targets
    q = (1 - label_smoothing) * probabilities + label_smoothing / vocab_size
    q = q * counted[..., None]  # (..., V)
    count = max(1, int(counted.sum()))
    log_probabilities = log_softmax(logits)
    losses = -np.where(q == 0, 0, q * log_probabilities).sum(axis=-1)  # 0 · −inf is 0: a token that is ruled out
    weights = np.where(counted, 1 if weights is None else weights, 0)  # (...)
    loss = (weights * losses).sum() / count
    return loss.astype(logits.dtype), (log_probabilities, q, weights, count)


def cross_entropy_backward(dloss: Array | float, cache: tuple) -> Array:
    """`dlogits = dloss w (softmax(logits) Σ_v q_v − q) / N`; w and the sum are 1, or 0 for a target that is ignored."""
    log_probabilities, q, weights, count = cache
    dlosses = dloss * weights[..., None] / count  # (weights * losses).sum() / count
    return (dlosses * (np.exp(log_probabilities) * q.sum(axis=-1, keepdims=True) - q)).astype(q.dtype)


def linear_cross_entropy_forward(
    x: Array,
    table: Array,
    targets: Array,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    with_grad: bool = True,
    *,
    weights: Array | None = None,
) -> tuple[Array, tuple]:
    """`cross_entropy(x @ tableᵀ, targets)`: x `(N, C)`, table `(V, C)`, targets `(N,)`.

    `with_grad` is not used: the fast op computes its gradient in the forward, this one in the backward.
    """
    loss, cache = cross_entropy_forward(x @ table.T, targets, label_smoothing, ignore_index, weights=weights)
    return loss, (x, table, cache)


def linear_cross_entropy_backward(dloss: Array | float, cache: tuple, out: Array | None = None) -> tuple[Array, Array]:
    """Gradients `(dx, dtable)`; `out=` adds dtable into this array."""
    x, table, loss_cache = cache
    dlogits = cross_entropy_backward(dloss, loss_cache)
    return dlogits @ table, added(out, dlogits.T @ x)  # logits = x @ tableᵀ


# --- The optimiser: Kingma & Ba 2015, algorithm 1; Vaswani 2017, §5.3 -----------------------------------------


def adam_step(
    data: Array,
    grad: Array,
    m: Array,
    v: Array,
    *,
    step: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.98,
    eps: float = 1e-9,
    grad_scale: float = 1.0,
) -> None:
    """Update the flat arrays data, m and v in place by one step of Adam."""
    g = grad * grad_scale
    m[:] = beta1 * m + (1 - beta1) * g
    v[:] = beta2 * v + (1 - beta2) * g**2
    data -= lr * (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + eps)


def global_norm(grad: Array) -> float:
    """`√Σ grad²`. Source: Pascanu, Mikolov, Bengio 2013, §3.2."""
    return math.sqrt((grad.astype(np.float64) ** 2).sum())
