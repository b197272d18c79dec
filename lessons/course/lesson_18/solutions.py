"""Solutions of lesson 18."""

import numpy as np

from course.lesson_01.solutions import cross_entropy
from course.lesson_02.solutions import embedding_backward
from course.lesson_04.solutions import attention_backward
from course.lesson_05.solutions import merge_heads, split_heads


def multi_head_backward(dout, cache):
    query, key, value, weights = cache  # (B, H, T, D), and (B, H, Tq, Tk)
    dmixed = split_heads(dout, query.shape[1])
    gradients = attention_backward(dmixed, query, key, value, weights)
    return tuple(merge_heads(gradient) for gradient in gradients)


def decoder_layer_backward(layers, dx, cache):
    self_attention, self_norm, cross_attention, cross_norm, feed_forward, last_norm = cache
    dx, dout = layers.add_norm_backward(dx, last_norm)
    dx = dx + layers.feed_forward_backward(dout, feed_forward)
    dx, dout = layers.add_norm_backward(dx, cross_norm)
    dseen, dmemory = layers.cross_attention_backward(dout, cross_attention)
    dx = dx + dseen
    dx, dout = layers.add_norm_backward(dx, self_norm)
    return dx + layers.self_attention_backward(dout, self_attention), dmemory


def model_gradients(model, source, target_in, target_out, label_smoothing=0.1):
    memory, encoder_cache = model.encode(source)
    hidden, decoder_cache = model.decode(target_in, memory, source)  # (B, T, C)
    table, real = model.weights["tokens.table"], target_out != 0
    rows = hidden[real]  # (N, C): padding does not count
    loss, dlogits = cross_entropy(rows @ table.T, target_out[real], label_smoothing)

    dhidden = np.zeros_like(hidden)
    dhidden[real] = (dlogits @ table).astype(table.dtype)
    dtarget, dmemory = model.decode_backward(dhidden, decoder_cache)
    dsource = model.encode_backward(dmemory, encoder_cache)
    scale = table.shape[1] ** 0.5
    dtable = dlogits.T @ rows  # the output layer: logits = rows @ tableᵀ
    dtable = dtable + scale * embedding_backward(dtarget, target_in, len(table))
    dtable = dtable + scale * embedding_backward(dsource, source, len(table))
    model.gradients["tokens.table"] += dtable
    return loss
