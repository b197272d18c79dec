"""Additive attention: a small network scores each key, where the Transformer takes a dot product."""

import numpy as np

from .arguments import check_floats, check_gradient, check_mask, check_ndim, check_shape
from .arrays import Array, quiet_products
from .softmax import softmax_in_place


@quiet_products
def additive_attention_forward(
    query: Array, key: Array, value: Array, score_weight: Array, *, key_mask: Array | None = None
) -> tuple[Array, tuple]:
    """`out_i = Σ_j softmax_j(score_weight · tanh(query_i + key_j)) value_j`.

    query `(B, Tq, C)`, key `(B, Tk, C)`, both projected already (the source's W s and U h); value `(B, Tk, Dv)`,
    score_weight `(C,)` → out `(B, Tq, Dv)`. `key_mask (B, Tk)`: keys that are real, not padding; a query with none gets
    zeros and sends no gradient. It takes B · Tq · Tk · C numbers, C times what the scores do: the dot product needs
    no such array, which is one of §3.2.1's reasons for it.
    Raises `ValueError` for shapes that do not fit, `TypeError` for mixed dtypes.
    Source: Bahdanau, Cho, Bengio 2015, §3.1 and appendix A.1.2; Vaswani 2017, §3.2.1 compares the two.
    """
    check_floats("query key value score_weight", query, key, value, score_weight)
    check_ndim("query", query, 3, "(B, Tq, C)")
    check_ndim("key", key, 3, "(B, Tk, C)")
    check_ndim("value", value, 3, "(B, Tk, Dv)")
    batch, _, width = query.shape
    num_keys = key.shape[1]
    check_shape("key", key, (batch, num_keys, width))
    check_shape("value", value, (batch, num_keys, value.shape[2]))
    check_shape("score_weight", score_weight, (width,))
    if key_mask is not None:
        check_mask("key_mask", key_mask, (batch, num_keys))
    features = query[:, :, None] + key[:, None]  # (B, Tq, Tk, C)
    np.tanh(features, out=features)
    scores = features @ score_weight  # (B, Tq, Tk)
    if key_mask is not None:
        scores += np.where(key_mask, 0, -np.inf).astype(scores.dtype)[:, None]
    weights = softmax_in_place(scores)
    out = weights @ value  # (B, Tq, Dv)
    return out, (features, value, score_weight, weights, out)


@quiet_products
def additive_attention_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array, Array]:
    """Gradients `(dquery, dkey, dvalue, dscore_weight)`."""
    features, value, score_weight, weights, out = cache
    check_gradient("dout", dout, out)
    dvalue = weights.swapaxes(1, 2) @ dout  # out = weights @ value
    dweights = dout @ value.swapaxes(1, 2)  # (B, Tq, Tk)
    # softmax: dscores = weights · (dweights − Σ_j dweights_j weights_j), and that sum is dout · out
    dscores = np.subtract(dweights, np.vecdot(dout, out)[..., None], out=dweights)
    dscores *= weights
    width = len(score_weight)
    dscore_weight = dscores.reshape(-1) @ features.reshape(dscores.size, width)  # scores = features @ score_weight
    # features = tanh(query + key): dsum = dscores · score_weight · (1 − features²)
    dsum = np.square(features)
    np.subtract(1, dsum, out=dsum)
    dsum *= score_weight
    dsum *= dscores[..., None]
    return dsum.sum(axis=2), dsum.sum(axis=1), dvalue, dscore_weight
