"""Solutions of lesson 08."""

import numpy as np

from minitransformer.ops import attention_backward


def encoder_layer(layer, x, mask):
    x = layer.self_attention_norm(x + layer.self_attention(x, mask))
    return layer.feed_forward_norm(x + layer.feed_forward(x))


def decoder_layer(layer, x, memory, mask, memory_mask):
    x = layer.self_attention_norm(x + layer.self_attention(x, mask))
    x = layer.cross_attention_norm(x + layer.cross_attention(x, memory, memory_mask))
    return layer.feed_forward_norm(x + layer.feed_forward(x))


def transformer(model, source, target):
    scale = np.sqrt(model.table.shape[1])
    source_mask = (source != model.pad)[:, None, None, :]  # (B, 1, 1, Ts): no query looks at padding
    causal = np.tri(target.shape[1], dtype=bool)  # (Tt, Tt): position t looks at 0 … t

    memory = scale * model.table[source] + model.positions[: source.shape[1]]  # (B, Ts, C)
    for layer in model.encoder:
        memory = encoder_layer(layer, memory, source_mask)

    x = scale * model.table[target] + model.positions[: target.shape[1]]  # (B, Tt, C)
    for layer in model.decoder:
        x = decoder_layer(layer, x, memory, causal, source_mask)
    return x @ model.table.T  # (B, Tt, V)


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
