"""The ops as one writes them first, each undoing one step towards speed: the same results, by the straight road.

They swap into the same model one at a time, `dataclasses.replace(numpy_ops, **NAIVE[step])`, and so show what each
step is worth. Shapes and checks are those of the op they stand in for.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from minitransformer.ops import Dropout, cross_entropy_backward, cross_entropy_forward

Array = Any


def _layernorm_forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, tuple]:
    mean = x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(axis=-1, keepdims=True) + x.dtype.type(eps))
    normed = (x - mean) * rstd
    return normed * gamma + beta, (normed, rstd, gamma)


def _layernorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array]:
    normed, rstd, gamma = cache
    rows = tuple(range(dy.ndim - 1))
    dgamma, dbeta = (dy * normed).sum(axis=rows), dy.sum(axis=rows)
    dnormed = dy * gamma
    projected = normed * (dnormed * normed).mean(axis=-1, keepdims=True)
    return rstd * (dnormed - dnormed.mean(axis=-1, keepdims=True) - projected), dgamma, dbeta


def _add_layernorm_forward(
    x: Array, sublayer_out: Array, gamma: Array, beta: Array, eps: float = 1e-5, dropout: Dropout | None = None
) -> tuple[Array, tuple]:
    assert dropout is None
    return _layernorm_forward(x + sublayer_out, gamma, beta, eps)


def _add_layernorm_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array, Array]:
    dx, dgamma, dbeta = _layernorm_backward(dy, cache)
    return dx, dx, dgamma, dbeta


def _attention_forward(
    query: Array, key: Array, value: Array, *, causal: bool = False, key_mask: Array | None = None, **_: Any
) -> tuple[Array, tuple]:
    scale = query.dtype.type(query.shape[-1] ** -0.5)
    scores = scale * (query @ key.swapaxes(-1, -2))
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if key_mask is not None:
        scores = np.where(key_mask[:, None, None, :], scores, -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True)).astype(query.dtype, copy=False)
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights @ value, (query, key, value, weights, scale)


def _attention_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array]:
    query, key, value, weights, scale = cache
    dweights = dout @ value.swapaxes(-1, -2)
    dscores = scale * weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, weights.swapaxes(-1, -2) @ dout


def _relu_backward(dy: Array, cache: Array) -> Array:
    return np.where(cache > 0, dy, dy.dtype.type(0))


def _linear_cross_entropy_forward(
    x: Array, table: Array, targets: Array, with_grad: bool = True, **options: Any
) -> tuple[Array, tuple | None]:
    loss, cache = cross_entropy_forward(x @ table.T, targets, **options)
    return loss, (x, table, cache)


def _linear_cross_entropy_backward(dloss: float, cache: tuple, out: Array) -> tuple[Array, Array]:
    x, table, loss_cache = cache
    dlogits = cross_entropy_backward(dloss, loss_cache)
    out += dlogits.T @ x
    return dlogits @ table, out


def _embedding_backward(dy: Array, cache: tuple, out: Array) -> Array:
    ids, _, dtype, scale = cache
    np.add.at(out, ids, dtype.type(scale) * dy)
    return out


def _adam_step(
    data: Array, grad: Array, m: Array, v: Array, *, step: int, lr: float, beta1: float, beta2: float, **options: float
) -> None:
    eps = options["eps"]
    m[...] = beta1 * m + (1 - beta1) * grad
    v[...] = beta2 * v + (1 - beta2) * grad**2
    data -= lr * (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + eps)


NAIVE: dict[str, dict[str, Callable[..., Any]]] = {
    "layernorm": {
        "add_layernorm_forward": _add_layernorm_forward,
        "add_layernorm_backward": _add_layernorm_backward,
    },
    "attention": {"attention_forward": _attention_forward, "attention_backward": _attention_backward},
    "relu": {"relu_backward": _relu_backward},
    "loss": {
        "linear_cross_entropy_forward": _linear_cross_entropy_forward,
        "linear_cross_entropy_backward": _linear_cross_entropy_backward,
    },
    "embedding": {"embedding_backward": _embedding_backward},
    "adam": {"adam_step": _adam_step},
}
