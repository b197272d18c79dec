"""Answers to lesson 18: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from course.lesson_01.solutions import cross_entropy
from course.lesson_02.solutions import embedding_backward
from course.lesson_04.solutions import attention_backward


def _transposed_by_hand(dout, cache):
    query, *_ = cache
    B, H, _, D = query.shape
    dmixed = np.moveaxis(dout.reshape(B, -1, H, D), 1, 2)
    gradients = attention_backward(dmixed, *cache)
    return [np.moveaxis(gradient, 1, 2).reshape(B, -1, H * D) for gradient in gradients]


def _around(layers, dx, cache):
    dmemory = None
    kinds = ("self_attention", "cross_attention", "feed_forward")
    for kind, sublayer, norm in zip(reversed(kinds), cache[4::-2], cache[5::-2], strict=True):
        past, into = layers.add_norm_backward(dx, norm)
        through = getattr(layers, f"{kind}_backward")(into, sublayer)
        if kind == "cross_attention":
            through, dmemory = through
        dx = through + past
    return dx, dmemory


def _with_all_rows(model, source, target_in, target_out, label_smoothing=0.1):
    memory, encoder_cache = model.encode(source)
    hidden, decoder_cache = model.decode(target_in, memory, source)
    table, rows = model.weights["tokens.table"], hidden.reshape(-1, hidden.shape[-1])
    scored = np.flatnonzero(target_out)
    loss, some = cross_entropy(rows[scored] @ table.T, target_out.ravel()[scored], label_smoothing)
    dlogits = np.zeros((len(rows), len(table)))
    dlogits[scored] = some
    model.gradients["tokens.table"] += dlogits.T @ rows
    dtarget, dmemory = model.decode_backward((dlogits @ table).reshape(hidden.shape), decoder_cache)
    dsource = model.encode_backward(dmemory, encoder_cache)
    looked_up = np.concatenate([dtarget, dsource], axis=1), np.concatenate([target_in, source], axis=1)
    model.gradients["tokens.table"] += np.sqrt(table.shape[1]) * embedding_backward(*looked_up, len(table))
    return loss


RIGHT = {
    "multi_head_backward": [_transposed_by_hand],
    "decoder_layer_backward": [_around],
    "model_gradients": [_with_all_rows],
}


MISTAKES = r"""
[multi_head_backward]
heads not merged | merge_heads(gradient) for → gradient for | the heads stand side by side again
reshaped only | merge_heads(gradient) → gradient.reshape(len(gradient), -1, dout.shape[-1])
    the right numbers in the wrong places
dout reshaped | split_heads(dout, query.shape[1]) → dout.reshape(query.shape[:3] + (-1,))
    dquery comes from a plain reshape of dout: `split_heads`
both reshaped
    split_heads(dout, query.shape[1]) → dout.reshape(query.shape[:3] + (-1,))
    merge_heads(gradient) → gradient.reshape(len(gradient), -1, dout.shape[-1])
    dquery comes from plain reshapes, there and back
key and value exchanged | in gradients → in (gradients[0], *gradients[:0:-1]) | dkey is what dvalue must be
half of it | merge_heads(gradient) for → merge_heads(gradient / 2) for | dquery is 0.5 times
float32 on the way | split_heads(dout, query → split_heads(dout.astype(np.float32), query | or a number float32?
[decoder_layer_backward]
dseen alone | dx = dx + dseen → dx = dseen | to which what passes by is not added
nothing passes by
    dx + layers.feed_forward → layers.feed_forward | dx = dx + dseen → dx = dseen | dx + layers.self → layers.self
    what passes by them is to be added
without self-attention | dx + layers.self_attention_backward → dx + 0 * layers.self_attention_backward
    without self-attention's
without cross-attention | dx = dx + dseen → dx = 1 * dx | without cross-attention's
without the feed-forward network | dx + layers.feed_forward → dx + 0 * layers.feed_forward
    without the feed-forward network's
never called | dx + layers.feed_forward_backward(dout, feed_forward) → dx + dout | is never called
called twice | return dx + layers.self → layers.feed_forward_backward(dout, feed_forward)\n    return dx + layers.self
    is called 2 times
another's cache | add_norm_backward(dx, cross_norm) → add_norm_backward(dx, cross_attention)
    was given the cache of cross-attention
the gradient that passes by
    (dout, feed_forward) → (dx, feed_forward) | (dout, cross_attention) → (dx, cross_attention)
    (dout, self_attention) → (dx, self_attention) | is given the gradient that passes by
what arrives at Add & Norm added
    dx, dout = layers.add_norm_backward(dx → _, dout = layers.add_norm_backward(dx
    if the gradient that goes into Add & Norm is added
two added as if one
    dseen, dmemory = layers.cross_attention_backward(dout, cross_attention) →
        dseen = dmemory = layers.cross_attention_backward(dout, cross_attention)
    two gradients, as add_norm_backward and cross_attention_backward return
the two before
    dx = dx + dseen → dx = dseen + dx | dseen, dmemory = layers → dseen = dmemory = layers
    two gradients, as add_norm_backward and cross_attention_backward return
exchanged
    return dx + layers.self_attention_backward(dout, self_attention), dmemory →
        return dmemory, dx + layers.self_attention_backward(dout, self_attention)
    dx has shape (2, 5, 4)
dmemory in float32 | returns (answer[0], np.float32(answer[1])) | dmemory must be an array of float64
float32 on the way | dx = dx + dseen → dx = np.float64(np.float32(dx) + np.float32(dseen)) | or a number float32?
float32 on the way, dmemory | returns (answer[0], np.float64(np.float32(answer[1]))) | dmemory is off by up to
[model_gradients]
padding scored | target_out != 0 → target_out >= 0 | the loss counts the padding
not smoothed | target_out[real], label_smoothing) → target_out[real]) | the loss is not smoothed
without the output layer | dtable = dlogits.T @ rows → dtable = 0 * dlogits.T @ rows | the output layer
dhidden for hidden | dtable = dlogits.T @ rows → dtable = dlogits.T @ dhidden[real]
    has dhidden in the output layer's part, dlogitsᵀ @ hidden
without the target | embedding_backward(dtarget, → embedding_backward(0 * dtarget, | uses: the target's embeddings
without the source | embedding_backward(dsource, → embedding_backward(0 * dsource, | uses: the source's embeddings
without √C | scale = table.shape[1] ** 0.5 → scale = 1 | lacks a factor √C
replaced | "tokens.table"] += dtable → "tokens.table"] = dtable | replaces what was there
the encoder forgotten | model.encode_backward(dmemory, encoder_cache) → np.zeros((*source.shape, table.shape[1]))
    dmemory goes back through the encoder
nothing for the table | model.gradients["tokens.table"] += dtable → dtable | has not been added to
a vocabulary of 11 | target_in, len(table)) → target_in, 11) | with another vocabulary
a width of 8 | scale = table.shape[1] ** 0.5 → scale = 8**0.5 | with another vocabulary, another width
smoothed by 0.1 | target_out[real], label_smoothing) → target_out[real], 0.1) | with another vocabulary, another width
the answer read
    model.decode(target_in, → model.decode(target_out, | the decoder reads target_out: that is the answer
float32 on the way | np.zeros_like(hidden) → np.zeros(hidden.shape, np.float32) | or a number float32?
the table in float32 | "tokens.table"] += dtable → "tokens.table"] += np.float32(dtable) | or a number float32?
the end not scored | target_out != 0 → target_out >= 3 | the loss
no loss | return loss → return rows | it must return the loss
"""
