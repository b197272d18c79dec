"""Additive attention: a small network scores each key, where the Transformer takes a dot product."""

import numpy as np

from .arguments import Array, arguments, gradient_of
from .softmax import softmax_gradient, softmax_in_place


@arguments("query B Tq C, key B Tk C, value B Tk Dv, score_weight C, key_mask?:bool B Tk", products=True)
def additive_attention_forward(
    query: Array, key: Array, value: Array, score_weight: Array, *, key_mask: Array | None = None
) -> tuple[Array, tuple]:
    """`out_i = Σ_j softmax_j(score_weight · tanh(query_i + key_j)) value_j`, `(B, Tq, Dv)`.

    query and key are projected already (the source's W s and U h). `key_mask`: keys that are real, not padding; a query
    with none gets zeros and sends no gradient. The features are B · Tq · Tk · C numbers, C times as many as the scores.
    The dot product does without them, and §3.2.1 prefers it for that.
    Source: Bahdanau, Cho, Bengio 2015, §3.1 and appendix A.1.2; Vaswani 2017, §3.2.1 compares the two.
    """
    features = query[:, :, None] + key[:, None]  # (B, Tq, Tk, C)
    np.tanh(features, out=features)  # in place: it is by far the largest array
    scores = features @ score_weight  # (B, Tq, Tk)
    if key_mask is not None:
        scores = np.where(key_mask[:, None], scores, scores.dtype.type(-np.inf))
    weights = softmax_in_place(scores)
    return weights @ value, (features, value, score_weight, weights)


@gradient_of(
    lambda features, value, score_weight, weights: ((*weights.shape[:2], value.shape[2]), value.dtype), products=True
)
def additive_attention_backward(dout: Array, cache: tuple) -> tuple[Array, Array, Array, Array]:
    """Gradients `(dquery, dkey, dvalue, dscore_weight)`."""
    features, value, score_weight, weights = cache
    dvalue = weights.swapaxes(1, 2) @ dout  # weights @ value
    dweights = dout @ value.swapaxes(1, 2)  # (B, Tq, Tk)
    dscores = softmax_gradient(dweights, weights)
    width = len(score_weight)
    dscore_weight = dscores.reshape(-1) @ features.reshape(dscores.size, width)  # scores = features @ score_weight
    dsum = 1 - features * features  # features = tanh(query + key)
    dsum *= score_weight
    dsum *= dscores[..., None]
    return dsum.sum(axis=2), dsum.sum(axis=1), dvalue, dscore_weight
