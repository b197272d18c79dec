"""Plausible wrong answers to lesson 08, each with words of the hint it must get."""

import numpy as np

from minitransformer.ops import attention_backward


def _cross(combine):
    """A wrong cross_backward: `combine(dq, dk, dv, wq, wk, wv)` gives dx and dmemory."""

    def backward(dout, cache):
        *weights, attention_cache = cache
        gradients = (gradient[:, 0] for gradient in attention_backward(dout[:, None], attention_cache))
        return combine(*gradients, *weights)

    return backward


def _with_head(dout, cache):
    wq, wk, wv, attention_cache = cache
    dq, dk, dv = attention_backward(dout[:, None], attention_cache)
    return dq @ wq.T, dk @ wk.T + dv @ wv.T


def _decoder(order, combine, chain=True):
    """A wrong decoder_backward: layers in another order, dmemory combined in another way."""

    def backward(dx, layers, caches):
        parts = []
        for layer, cache in order(list(zip(layers, caches, strict=True))):
            below, part = layer.backward(dx, cache)
            dx = below if chain else dx
            parts.append(part)
        return dx, combine(parts)

    return backward


def _reversed(pairs):
    return pairs[::-1]


def _caches_forwards(dx, layers, caches):
    dmemory = 0.0
    for layer, cache in zip(reversed(layers), caches, strict=True):
        dx, part = layer.backward(dx, cache)
        dmemory = dmemory + part
    return dx, dmemory


def _shaped_like_dx(dx, layers, caches):
    dmemory = np.zeros_like(dx)
    for layer, cache in zip(reversed(layers), reversed(caches), strict=True):
        dx, part = layer.backward(dx, cache)
        dmemory = dmemory + part
    return dx, dmemory


def _added_again(dx, layers, caches):
    dmemory = 0.0
    for layer, cache in zip(reversed(layers), reversed(caches), strict=True):
        below, part = layer.backward(dx, cache)
        dx, dmemory = dx + below, dmemory + part
    return dx, dmemory


def _exchanged(dx, layers, caches):
    dmemory = 0.0
    for layer, cache in zip(reversed(layers), reversed(caches), strict=True):
        part, dx = layer.backward(dx, cache)
        dmemory = dmemory + np.resize(part, 3)
    return dx, dmemory


def _unchained(dx, layers, caches):
    parts = [layer.backward(dx, cache) for layer, cache in zip(layers, caches, strict=True)]
    return 30 * dx, sum(part for _, part in parts)


def _count(table=1, attentions=3, biases=4, norms=5, hidden_bias=1, out_bias=1, norm_size=2, once=0):
    """A wrong count: what a pair of layers has, changed."""

    def count(V, C, F, N):
        pair = attentions * (4 * C * C + biases * C) + norms * norm_size * C
        pair += 2 * (2 * C * F + hidden_bias * F + out_bias * C)
        return table * V * C + N * pair + once * C

    return count


WRONG = {
    "cross_backward": {
        "only the values": (
            _cross(lambda dq, dk, dv, wq, wk, wv: (dq @ wq.T, dv @ wv.T)),
            "the way through the keys is missing",
        ),
        "only the keys": (
            _cross(lambda dq, dk, dv, wq, wk, wv: (dq @ wq.T, dk @ wk.T)),
            "the way through the values is missing",
        ),
        "weights not transposed": (
            _cross(lambda dq, dk, dv, wq, wk, wv: (dq @ wq, dk @ wk + dv @ wv)),
            "right for weights that are their own transposes",
        ),
        "the head's axis kept": (_with_head, "has the axis of the one head gone"),
        "keys and values crossed": (
            _cross(lambda dq, dk, dv, wq, wk, wv: (dq @ wq.T, dk @ wv.T + dv @ wk.T)),
            "are keys and values exchanged?",
        ),
        "weights left out": (_cross(lambda dq, dk, dv, wq, wk, wv: (dq, dk + dv)), "not yet of x and memory"),
        "one weight for all": (
            _cross(lambda dq, dk, dv, wq, wk, wv: (dq @ wq.T, (dk + dv) @ wq.T)),
            "by the weight that they were made with",
        ),
        "averaged": (
            _cross(lambda dq, dk, dv, wq, wk, wv: (dq @ wq.T, (dk @ wk.T + dv @ wv.T) / 2)),
            "0.5 times the true gradient",
        ),
    },
    "decoder_backward": {
        "only the first layer's": (_decoder(_reversed, lambda parts: parts[-1]), "what the first layer alone sends"),
        "only the last layer's": (_decoder(_reversed, lambda parts: parts[0]), "what the last layer alone sends"),
        "forwards": (_decoder(lambda pairs: pairs, sum), "from the first to the last"),
        "caches forwards": (_caches_forwards, "layer 0 got the cache of layer 2"),
        "a list": (_decoder(_reversed, np.array), "one sum over the layers"),
        "mean": (_decoder(_reversed, lambda parts: sum(parts) / 3), "a mean, not a sum"),
        "dx not handed on": (_decoder(_reversed, sum, chain=False), "dx is not handed on"),
        "the memory as long as the target": (_shaped_like_dx, "could not be broadcast"),
        "the residual twice": (_added_again, "its backward has done that already"),
        "dx and dmemory exchanged": (_exchanged, "the first is dx and the second dmemory"),
        "dx handed on beside the memory's": (_unchained, "computed from the same dx"),
    },
    "count_parameters": {
        "three tables": (_count(table=3), "one word more makes 48"),
        "two tables": (_count(table=2), "one word more makes 32"),
        "no cross-attention": (_count(attentions=2), "a decoder layer has two attentions"),
        "cross-attention in the encoder": (_count(attentions=4), "an encoder layer has one attention"),
        "four norms, or no second bias": (_count(norms=4), "each of the two feed-forward networks a second"),
        "gamma alone": (_count(norm_size=1), "a norm has a gamma and a beta"),
        "no biases in attention": (_count(biases=0), "each of attention's four maps has a bias"),
        "one bias in four": (_count(biases=1), "each of attention's four maps has a bias"),
        "one norm a layer": (_count(norms=2), "two in the encoder, three in the decoder"),
        "no hidden bias": (_count(hidden_bias=0), "a column, a bias and a row"),
        "final norms": (_count(once=4), "apart from the table"),
        "a fraction": (lambda V, C, F, N: _count()(V, C, F, N) + 0.5, "must return an int"),
    },
}
