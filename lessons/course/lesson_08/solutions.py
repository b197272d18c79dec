"""Solutions of lesson 08."""

from minitransformer.ops import attention_backward


def cross_backward(dout, cache):
    weight_query, weight_key, weight_value, attention_cache = cache
    dquery, dkey, dvalue = attention_backward(dout[:, None], attention_cache)
    dx = dquery[:, 0] @ weight_query.T
    dmemory = dkey[:, 0] @ weight_key.T + dvalue[:, 0] @ weight_value.T  # used twice
    return dx, dmemory


def decoder_backward(dx, layers, caches):
    dmemory = 0.0
    for layer, cache in zip(reversed(layers), reversed(caches), strict=True):
        dx, dmemory_here = layer.backward(dx, cache)
        dmemory = dmemory + dmemory_here  # every layer looked at the memory
    return dx, dmemory


def count_parameters(V, C, F, N):
    attention = 4 * (C * C + C)  # query, key, value, output
    feed_forward = C * F + F + F * C + C
    norm = 2 * C
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return V * C + N * (encoder_layer + decoder_layer)
