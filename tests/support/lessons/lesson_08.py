"""Answers to lesson 08: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from minitransformer.ops import attention_backward


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


EDITS = r"""
[cross_backward]
only the values | dkey[:, 0] @ weight_key.T + → | the way through the keys is missing
only the keys | + dvalue[:, 0] @ weight_value.T → | the way through the values is missing
weights not transposed | .T → | right for weights that are their own transposes
the head's axis kept | [:, 0] → | has the axis of the one head gone
keys and values crossed
    dkey[:, 0] @ weight_key.T + dvalue[:, 0] @ weight_value.T →
        dkey[:, 0] @ weight_value.T + dvalue[:, 0] @ weight_key.T
    are keys and values exchanged?
weights left out | @ weight_query.T → | @ weight_key.T → | @ weight_value.T → | not yet of x and memory
one weight for all
    weight_key.T → weight_query.T | weight_value.T → weight_query.T | by the weight that they were made with
averaged
    dkey[:, 0] @ weight_key.T + dvalue[:, 0] @ weight_value.T →
        (dkey[:, 0] @ weight_key.T + dvalue[:, 0] @ weight_value.T) / 2
    0.5 times the true gradient
dmemory first | return dx, dmemory → return dmemory, dx | dx and dmemory are exchanged
no axis of length 1 | [:, 0] → .squeeze() | only the axis of the one head goes
in float32 | return dx, dmemory → return dx.astype("float32"), dmemory | float32, which rounds
[decoder_backward]
only the first layer's | dmemory = dmemory + dmemory_here → dmemory = dmemory_here | what the first layer alone sends
only the last layer's
    dmemory = dmemory + dmemory_here → dmemory = dmemory_here if layer is layers[-1] else dmemory
    what the last layer alone sends
forwards | reversed(layers) → layers | reversed(caches) → caches | from the first to the last
caches forwards | reversed(caches) → caches | layer 0 got the cache of layer 2
a list
    from minitransformer → import numpy as np\n\nfrom minitransformer | dmemory = 0.0 → dmemory = []
    dmemory + dmemory_here → [*dmemory, dmemory_here] | return dx, dmemory → return dx, np.array(dmemory)
    one sum over the layers
mean | return dx, dmemory → return dx, dmemory / 3 | a mean, not a sum
dx not handed on
    dx, dmemory_here = layer.backward(dx, cache) → below, dmemory_here = layer.backward(dx, cache)
    dx is not handed on
the memory as long as the target | dmemory = 0.0 → dmemory = 0 * dx | could not be broadcast
the residual twice
    dx, dmemory_here = layer.backward(dx, cache) →
        below, dmemory_here = layer.backward(dx, cache)\n        dx = dx + below
    its backward has done that already
dx and dmemory exchanged
    dx, dmemory_here = → dmemory_here, dx = | dmemory + dmemory_here → dmemory_here
    the first is dx and the second dmemory
dx handed on beside the memory's
    dx, dmemory_here = → below, dmemory_here = | return dx, dmemory → return 30 * dx, dmemory
    computed from the same dx
each backward twice
    dmemory_here = layer.backward(dx, cache) →
        dmemory_here = layer.backward(dx, cache)[0], layer.backward(dx, cache)[1]
    was called 2 times: each call adds
without the first layer
    zip(reversed(layers), reversed(caches) → zip(layers[:0:-1], caches[:0:-1]
    the backward of layer 0 was never called
without the last layer
    zip(reversed(layers), reversed(caches) → zip(layers[-2::-1], caches[-2::-1]
    the backward of layer 2 was never called
three layers
    dmemory = 0.0 → layers, caches, dmemory = [layers[n] for n in range(3)], caches[:3], 0.0
    for two layers, it raises
caches popped
    for layer, cache in zip(reversed(layers), reversed(caches), strict=True): →
        for layer in reversed(layers):\n        cache = caches.pop()
    it writes into its argument caches
the model's layers turned round
    dmemory = 0.0 → dmemory = 0.0\n    layers.reverse() | reversed(layers) → layers | it changes the list of layers
[count_parameters]
three tables | return V * C → return 3 * V * C | one word more makes 48
two tables | return V * C → return 2 * V * C | one word more makes 32
no cross-attention | 2 * attention → attention | a decoder layer has two attentions
cross-attention in the encoder
    encoder_layer = attention → encoder_layer = 2 * attention | an encoder layer has one attention
four norms, or no second bias | 3 * norm → 2 * norm | each of the two feed-forward networks a second
gamma alone | norm = 2 * C → norm = C | a norm has a gamma and a beta
no biases in attention | 4 * (C * C + C) → 4 * C * C | each of attention's four maps has a bias
one bias in four | 4 * (C * C + C) → 4 * C * C + C | each of attention's four maps has a bias
one norm a layer | 2 * norm → norm | 3 * norm → norm | two in the encoder, three in the decoder
no hidden bias | C * F + F + F * C → C * F + F * C | a column, a bias and a row
final norms | return V * C → return V * C + 4 * C | apart from the table
sixteen columns | 4 * (C * C + C) → 4 * (16 * C + C) | for V = 50, C = 6
no second attention
    2 * attention → attention | 3 * norm → 2 * norm | a second attention, to the memory, with a norm of its own
a fraction | return V * C → return 0.5 + V * C | must return an int
"""
