"""Answers to lesson 08: right ones written in another way, and plausible wrong ones (see `answers`)."""

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


def _squeezed(dout, cache):
    wq, wk, wv, attention_cache = cache
    dq, dk, dv = (gradient.squeeze() for gradient in attention_backward(dout[:, None], attention_cache))
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


def _called_twice(dx, layers, caches):
    dmemory = 0.0
    for layer, cache in zip(reversed(layers), reversed(caches), strict=True):
        dmemory = dmemory + layer.backward(dx, cache)[1]
        dx = layer.backward(dx, cache)[0]
    return dx, dmemory


def _from(start, stop):
    """A wrong decoder_backward that goes down from layer `start` to before `stop`, counted from the end."""

    def backward(dx, layers, caches):
        dmemory = 0.0
        for n in range(len(layers) + start, stop, -1):
            dx, part = layers[n].backward(dx, caches[n])
            dmemory = dmemory + part
        return dx, dmemory

    return backward


def _popped(dx, layers, caches):
    dmemory = 0.0
    for layer in reversed(layers):
        dx, part = layer.backward(dx, caches.pop())
        dmemory = dmemory + part
    return dx, dmemory


def _three(dx, layers, caches):
    dx, last = layers[2].backward(dx, caches[2])
    dx, middle = layers[1].backward(dx, caches[1])
    dx, first = layers[0].backward(dx, caches[0])
    return dx, last + middle + first


def _turned_round(dx, layers, caches):
    layers.reverse()
    return _decoder(lambda pairs: pairs, sum)(dx, layers, caches[::-1])


def _unchained(dx, layers, caches):
    parts = [layer.backward(dx, cache) for layer, cache in zip(layers, caches, strict=True)]
    return 30 * dx, sum(part for _, part in parts)


def _heads_of_sixteen(V, C, F, N):
    return _count()(V, C, F, N) + N * 3 * 4 * (16 * C - C * C)


def _count(table=1, attentions=3, biases=4, norms=5, hidden_bias=1, out_bias=1, norm_size=2, once=0):
    """A wrong count: what a pair of layers has, changed."""

    def count(V, C, F, N):
        pair = attentions * (4 * C * C + biases * C) + norms * norm_size * C
        pair += 2 * (2 * C * F + hidden_bias * F + out_bias * C)
        return table * V * C + N * pair + once * C

    return count


def _cross_by_einsum(dout, cache):
    *weights, attention_cache = cache
    dquery, dkey, dvalue = (gradient.sum(axis=1) for gradient in attention_backward(dout[:, None], attention_cache))
    both = np.concatenate([dkey, dvalue], axis=-1) @ np.concatenate(weights[1:], axis=1).T
    return np.einsum("btd,cd->btc", dquery, weights[0]), both


def _down_recursively(dx, layers, caches):
    if not layers:
        return dx, 0.0
    dx, part = layers[-1].backward(dx, caches[-1])
    dx, rest = _down_recursively(dx, layers[:-1], caches[:-1])
    return dx, part + rest


def _down_by_index(dx, layers, caches):
    dmemory = None
    for n in range(len(layers))[::-1]:
        dx, part = layers[n].backward(dx, caches[n])
        if dmemory is None:
            dmemory = part
        else:
            dmemory += part
    return dx, dmemory


RIGHT = {
    "cross_backward": [_cross_by_einsum],
    "decoder_backward": [_down_recursively, _down_by_index],
    "count_parameters": [lambda V, C, F, N: V * C + N * (12 * C**2 + 4 * C * F + 24 * C + 2 * F)],
}


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
        "dmemory first": (
            _cross(lambda dq, dk, dv, wq, wk, wv: (dk @ wk.T + dv @ wv.T, dq @ wq.T)),
            "dx and dmemory are exchanged",
        ),
        "no axis of length 1": (_squeezed, "only the axis of the one head goes"),
        "in float32": (
            _cross(lambda dq, dk, dv, wq, wk, wv: ((dq @ wq.T).astype(np.float32), dk @ wk.T + dv @ wv.T)),
            "float32, which rounds",
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
        "each backward twice": (_called_twice, "was called 2 times: each call adds"),
        "without the first layer": (_from(-1, 0), "the backward of layer 0 was never called"),
        "without the last layer": (_from(-2, -1), "the backward of layer 2 was never called"),
        "three layers": (_three, "for two layers, it raises"),
        "caches popped": (_popped, "it writes into its argument caches"),
        "the model's layers turned round": (_turned_round, "it changes the list of layers"),
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
        "sixteen columns": (_heads_of_sixteen, "for V = 50, C = 6"),
        "no second attention": (
            lambda V, C, F, N: _count(attentions=2, norms=4)(V, C, F, N),
            "a second attention, to the memory, with a norm of its own",
        ),
        "a fraction": (lambda V, C, F, N: _count()(V, C, F, N) + 0.5, "must return an int"),
    },
}
