"""Answers to lesson 08: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from minitransformer.ops import attention_backward


def _encoder_in_steps(layer, x, mask):
    attended = layer.self_attention(x, mask) + x
    normed = layer.self_attention_norm(attended)
    return layer.feed_forward_norm(np.add(layer.feed_forward(normed), normed))


def _decoder_in_a_loop(layer, x, memory, mask, memory_mask):
    for sublayer, norm, rest in (
        (layer.self_attention, layer.self_attention_norm, (mask,)),
        (layer.cross_attention, layer.cross_attention_norm, (memory, memory_mask)),
        (layer.feed_forward, layer.feed_forward_norm, ()),
    ):
        x = norm(x + sublayer(x, *rest))
    return x


def _model_with_full_masks(model, source, target):
    (B, Ts), Tt = source.shape, target.shape[1]
    hidden = source == model.pad
    real, past = ~np.stack([hidden] * Ts, axis=1)[:, None], np.tril(np.ones((B, 1, Tt, Tt))) > 0

    def embed(ids):
        return model.table[ids] * model.table.shape[1] ** 0.5 + model.positions[np.arange(ids.shape[1])]

    x, y = embed(source), embed(target)
    for layer in model.encoder:
        x = _encoder_in_steps(layer, x, real)
    for layer in model.decoder:
        y = _decoder_in_a_loop(layer, y, x, past, real[:, :, :1])
    return np.einsum("btc,vc->btv", y, model.table)


def _model_by_indices(model, source, target):
    mask = np.expand_dims(source != model.pad, (1, 2))
    table = np.sqrt(model.table.shape[-1]) * model.table
    x, y = (table[ids] + model.positions[None, : len(ids[0])] for ids in (source, target))
    for n in range(len(model.encoder)):
        x = _encoder_in_steps(model.encoder[n], x, mask)
    T = np.arange(len(target[0]))
    for n in range(len(model.decoder)):
        y = _decoder_in_a_loop(model.decoder[n], y, x, T[:, None] >= T, mask)
    return y @ model.table.swapaxes(0, 1)


def _model_without_padding(model, source, target):
    """Hides padding of the target too, which no word looks at."""
    real, seen = ((ids != model.pad)[:, None, None, :] for ids in (source, target))

    def embed(ids):
        return model.table[ids] * np.sqrt(model.table.shape[1]) + model.positions[: ids.shape[1]]

    x, y = embed(source), embed(target)
    for layer in model.encoder:
        x = _encoder_in_steps(layer, x, real)
    for layer in model.decoder:
        y = _decoder_in_a_loop(layer, y, x, np.tri(target.shape[1], dtype=bool) & seen, real)
    return y @ model.table.T


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


RIGHT = {
    "encoder_layer": [_encoder_in_steps],
    "decoder_layer": [_decoder_in_a_loop],
    "transformer": [_model_with_full_masks, _model_by_indices, _model_without_padding],
    "cross_backward": [_cross_by_einsum],
    "decoder_backward": [_down_recursively],
    "count_parameters": [lambda V, C, F, N: V * C + N * (12 * C**2 + 4 * C * F + 24 * C + 2 * F)],
}


MISTAKES = r"""
[encoder_layer]
no first residual | self_attention_norm(x + layer → self_attention_norm(layer | self_attention_norm gets must be the sum
the residual outside the norm
    self_attention_norm(x + layer.self_attention(x, mask)) → self_attention_norm(layer.self_attention(x, mask)) + x
    stands outside the norm, and belongs inside
the second residual outside the norm
    layer.feed_forward_norm(x + layer.feed_forward(x)) → x + layer.feed_forward_norm(layer.feed_forward(x))
    what feed_forward gives: the residual connection stands outside the norm
no second residual | feed_forward_norm(x + layer → feed_forward_norm(layer | feed_forward_norm gets must be the sum
pre-norm
    layer.self_attention_norm(x + layer.self_attention(x, mask)) →
        x + layer.self_attention(layer.self_attention_norm(x), mask)
    and not before the sub-layer
no second norm
    return layer.feed_forward_norm(x + layer.feed_forward(x)) → return x + layer.feed_forward(x)
    feed_forward_norm is never called
the first norm twice | layer.feed_forward_norm → layer.self_attention_norm | self_attention_norm is called 2 times
the residual of the layer
    x = layer.self_attention_norm(x + → first = x\n    x = layer.self_attention_norm(x +
    feed_forward_norm(x + → feed_forward_norm(first +
    and is the sum of what feed_forward gives and the layer's input
both of the input
    x = layer.self_attention_norm(x + → first = x\n    x = layer.self_attention_norm(x +
    feed_forward(x) → feed_forward(first)
    what feed_forward gets must be what self_attention_norm gives, and is the layer's input
no mask | self_attention(x, mask) → self_attention(x, None) | self_attention gets no mask
another mask | self_attention(x, mask) → self_attention(x, ~mask) | another mask than the one
its own triangle
    self_attention(x, mask) → self_attention(x, mask & np.tri(x.shape[1], dtype=bool))
    gets a triangle that is made in the layer
cross-attention
    return layer.feed_forward_norm →
        x = layer.cross_attention_norm(x + layer.cross_attention(x, x, mask))\n    return layer.feed_forward_norm
    a layer of the encoder has no cross-attention
only the first half
    return layer.feed_forward_norm(x + layer.feed_forward(x)) → return x
    feed_forward is never called
twice
    return layer.feed_forward_norm(x + → x = x + 0 * layer.feed_forward(x)\n    return layer.feed_forward_norm(x +
    is called 2 times
the feed-forward network first
    x = layer.self_attention_norm(x + layer.self_attention(x, mask)) →
        x = layer.feed_forward_norm(x + layer.feed_forward(x))
    return layer.feed_forward_norm(x + layer.feed_forward(x)) →
        return layer.self_attention_norm(x + layer.self_attention(x, mask))
    what self_attention gets must be the layer's input
[decoder_layer]
the memory forgotten
    cross_attention(x, memory, memory_mask) → cross_attention(x, x, memory_mask)
    and is what self_attention_norm gives
queries from the memory
    cross_attention(x, memory, memory_mask) → cross_attention(memory, x, memory_mask)
    the queries come from the decoder
masks exchanged
    self_attention(x, mask) → self_attention(x, memory_mask) | memory, memory_mask)) → memory, mask))
    that is meant for cross_attention
one mask for both
    memory, memory_mask)) → memory, mask))
    cross_attention gets the mask that is meant for self_attention
no mask on the memory | memory, memory_mask)) → memory, None)) | cross_attention gets no mask
its own triangle
    self_attention(x, mask) → self_attention(x, np.tri(x.shape[1], dtype=bool))
    self_attention gets a triangle that is made in the layer
its own mask of the memory
    memory, memory_mask)) → memory, np.ones((1, 1, 1, memory.shape[1]), dtype=bool)))
    cross_attention gets another mask
the memory added
    cross_attention_norm(x + → cross_attention_norm(memory[:, :1] +
    what cross_attention_norm gets must be the sum of
no residual around the memory | cross_attention_norm(x + → cross_attention_norm( | the residual connection is missing
pre-norm
    layer.feed_forward_norm(x + layer.feed_forward(x)) → x + layer.feed_forward(layer.feed_forward_norm(x))
    what feed_forward gets must be
no cross-attention
    x = layer.cross_attention_norm(x + layer.cross_attention(x, memory, memory_mask)) → x = 1 * x
    cross_attention is never called
cross-attention last
    x = layer.cross_attention_norm(x + layer.cross_attention(x, memory, memory_mask)) →
        x = layer.feed_forward_norm(x + layer.feed_forward(x))
    return layer.feed_forward_norm(x + layer.feed_forward(x)) →
        return layer.cross_attention_norm(x + layer.cross_attention(x, memory, memory_mask))
    what cross_attention gets must be what self_attention_norm gives
side by side
    x = layer.self_attention_norm(x + layer → first = x\n    x = layer.self_attention_norm(x + layer
    cross_attention(x, → cross_attention(first,
    what cross_attention gets must be what self_attention_norm gives, and is the layer's input
norms exchanged
    layer.self_attention_norm( → layer.other( | layer.cross_attention_norm( → layer.self_attention_norm(
    layer.other( → layer.cross_attention_norm(
    what self_attention_norm gets must be
no last norm
    return layer.feed_forward_norm(x + layer.feed_forward(x)) → return x + layer.feed_forward(x)
    feed_forward_norm is never
[transformer]
no √C | scale = np.sqrt(model.table.shape[1]) → scale = 1 | without the factor √C: they are fainter
no √C for the target | x = scale * model → x = model | what the decoder begins with is words without the factor √C
C for its root | np.sqrt(model.table.shape[1]) → model.table.shape[1] | multiply by its root
divided | scale * model.table[source] → model.table[source] / scale | words divided by √C
positions scaled too
    scale * model.table[source] + model.positions[: source.shape[1]] →
        scale * (model.table[source] + model.positions[: source.shape[1]])
    words and positions both times √C
no positions | + model.positions[: source.shape[1]] → | words without their positions
no positions in the decoder
    + model.positions[: target.shape[1]] →
    what the decoder begins with is words without their
positions from 1
    model.positions[: target.shape[1]] → model.positions[1 : target.shape[1] + 1] | the first token has row 0
positions by id
    model.positions[: source.shape[1]] → model.positions[source % 9]
    a position is a place in the sentence
the target encoded
    model.table[source] + model.positions[: source.shape[1]] → model.table[target] + model.positions[: target.shape[1]]
    what the encoder begins with is the target
no padding mask | source_mask = (source != model.pad) → source_mask = (source == source) | may look everywhere
the mask the other way | source != model.pad → source == model.pad | a mask that says the opposite
padding is 0 | source != model.pad → source != 0 | in layer 0 of the encoder hides the id 0: padding
a mask without axes | [:, None, None, :] → | shared axes have length 1
the mask of queries | [:, None, None, :] → [:, None, :, None] | in layer 0 of the encoder is transposed
padding of the target, not the future
    causal, source_mask) → (target != model.pad)[:, None, None, :], source_mask)
    hides padding of the target and not the future
padding of the target as queries
    causal, source_mask) → causal & (target != model.pad)[:, None, :, None], source_mask)
    padding is hidden as a key, not as a query
nothing but padding of the target
    causal, source_mask) → causal & (target == model.pad)[:, None, None, :], source_mask)
    shows padding of the target and hides its words
padding of the target in the future
    causal, source_mask) → np.logical_or(causal, (target == model.pad)[:, None, None, :]), source_mask)
    shows padding of the target in the future too
padding of the target is 0
    causal, source_mask) → causal & (target != 0)[:, None, None, :], source_mask)
    in layer 0 of the decoder hides the id 0: padding
padding of the source as queries too
    (source != model.pad)[:, None, None, :] →
        (source != model.pad)[:, None, None, :] & (source != model.pad)[:, None, :, None]
    has a mask that hides what may be looked at: padding
padding without a vector
    scale * model.table[target] → scale * model.table[target] * (target != model.pad)[..., None]
    words with padding set to 0
√V | np.sqrt(model.table.shape[1]) → np.sqrt(model.table.shape[0]) | words times √V
positions that go on
    model.positions[: target.shape[1]] → model.positions[source.shape[1] :][: target.shape[1]]
    that go on after the source
the last position alone | return x @ → return x[:, -1:] @ | the logits of one position
no causal mask
    np.tri(target.shape[1], dtype=bool) → np.ones(target.shape[1], dtype=bool)
    of the decoder may look everywhere
the future | np.tri(target.shape[1], dtype=bool) → np.tri(target.shape[1], dtype=bool).T | is transposed
not itself
    np.tri(target.shape[1], dtype=bool) → np.tri(target.shape[1], k=-1, dtype=bool)
    hides the position from itself
masks exchanged
    x, memory, causal, source_mask) → x, memory, source_mask, causal)
    of the decoder has the mask of the source, which belongs to cross-attention
masks exchanged, of the encoder too
    memory, source_mask) → memory, causal) | memory, causal, source_mask) → memory, source_mask, causal)
    must be the 5 tokens of the source. Is it the mask of another attention
the causal mask on the memory
    x, memory, causal, source_mask) → x, memory, causal, causal)
    cross-attention in layer 0 of the decoder has a mask of shape (4, 4), which does not fit (2, H, 4, 5): its last axis
a mask of the notebook's padded
    (source != model.pad)[:, None, None, :] → np.ones((2, 1, 1, 7), dtype=bool)
    a variable of the notebook (`padded`?)
no mask on the memory
    x, memory, causal, source_mask) → x, memory, causal, np.ones(source.shape[1], dtype=bool))
    cross-attention in layer 0 of the decoder may look everywhere
the source in place of the memory
    x = decoder_layer(layer, x, memory, →
        e = scale * model.table[source] + model.positions[: source.shape[1]]\n        x = decoder_layer(layer, x, e,
    looks at the embedded source
the first layer's memory
    for layer in model.encoder → for layer in model.encoder[:1]
    of the 3 layers of model.encoder 1 ran
two layers of the decoder
    for layer in model.decoder → for layer in model.decoder[:2]
    of the 3 layers of model.decoder 2 ran
one layer again and again
    in model.encoder: → in model.encoder: | memory = encoder_layer(layer, → memory = encoder_layer(model.encoder[0],
    the layers of model.encoder run in the order [0, 0, 0]
the list used up
    for layer in model.decoder: → while model.decoder:\n        layer = model.decoder.pop(0)
    it changes the list model.decoder
layers of the encoder in the decoder
    decoder_layer(layer, x, memory, causal, source_mask) → encoder_layer(layer, x, causal)
    a layer of the decoder looks at no memory
layers of the decoder in the encoder
    memory = encoder_layer(layer, memory, source_mask) →
        memory = decoder_layer(layer, memory, memory, source_mask, source_mask)
    a layer of the encoder looks at a memory
a layer wired anew
    memory = encoder_layer(layer, memory, source_mask) →
        memory = layer.self_attention_norm(layer.self_attention(memory, source_mask));
        memory = layer.feed_forward_norm(memory + layer.feed_forward(memory))
    is a layer wired anew here?
the decoder from the top | in model.decoder → in model.decoder[::-1] | run from the last to the first
x not handed on
    x = decoder_layer → y = decoder_layer
    return x @ → return y @
    layer 1 of the decoder does not get what the one below it gives
a layer's own memory
    for layer in model.encoder: →
        memories = []\n    for layer in model.encoder:
    memory = encoder_layer(layer, memory, source_mask) →
        memory = encoder_layer(layer, memory, source_mask)\n        memories.append(memory)
    for layer in model.decoder: → for layer, memory in zip(model.decoder, memories):
    what layer 0 of the encoder gives: the memory
the softmax
    return x @ model.table.T →
        p = np.exp(x @ model.table.T)\n    return p / p.sum(axis=-1, keepdims=True)
    it returns probabilities
√C at the output too | return x @ → return scale * x @ | which is √C: that belongs to the look-up
divided at the output | return x @ → return 1 / scale * x @ | nothing is divided here
no output layer | return x @ model.table.T → return x | must have (B, Tt, V)
in the table itself | memory = scale * model.table[source] → model.table[...] *= scale\n    memory = model.table[source]
    it writes into model.table
[cross_backward]
only the values | dkey[:, 0] @ weight_key.T + → | the way through the keys is missing
only the keys | + dvalue[:, 0] @ weight_value.T → | the way through the values is missing
weights not transposed | .T → | right for weights that are their own transposes
the head's axis kept | [:, 0] → | has the axis of the one head gone
keys and values crossed
    dkey[:, 0] @ weight_key.T + dvalue[:, 0] @ weight_value. → dkey[:, 0] @ weight_value.T + dvalue[:, 0] @ weight_key.
    are keys and values exchanged?
weights left out | @ weight_query.T → | @ weight_key.T → | @ weight_value.T → | not yet of x and memory
one weight for all
    weight_key.T → weight_query.T | weight_value.T → weight_query.T | by the weight that they were made with
averaged
    dkey[:, 0] @ weight_key.T + dvalue[:, 0] @ weight_value.T →
        (dkey[:, 0] @ weight_key.T + dvalue[:, 0] @ weight_value.T) / 2
    0.5 times the true gradient
the residual connection
    dx = dquery[:, 0] @ weight_query.T → dx = dout + dquery[:, 0] @ weight_query.T
    dx has dout added
dmemory first | returns dmemory, dx | dx and dmemory are exchanged
no axis of length 1 | [:, 0] → .squeeze() | only the axis of the one head goes
[decoder_backward]
dx averaged | returns dx / len(layers), dmemory | nothing is averaged
only the first layer's | dmemory = dmemory + dmemory_here → dmemory = dmemory_here | what the first layer alone sends
only the last layer's
    = dmemory + dmemory_here → = dmemory_here if layer is layers[-1] else dmemory | what the last layer alone sends
forwards | reversed(layers) → layers | reversed(caches) → caches | from the first to the last
caches forwards | reversed(caches) → caches | layer 0 got the cache of layer 2
a list
    from → import numpy as np\n\nfrom | dmemory = 0.0 → dmemory = [] | dmemory + dmemory_here → [*dmemory, dmemory_here]
    return dx, dmemory → return dx, np.array(dmemory) | one sum over the layers
mean | returns dx, dmemory / 3 | a mean, not a sum
the memory as long as the target | dmemory = 0.0 → dmemory = 0 * dx | could not be broadcast
dx not handed on | dx, dmemory_here = layer.backward → below, dmemory_here = layer.backward | dx is not handed on
the residual twice
    dx, dmemory_here = layer.backward(dx, cache) →
        below, dmemory_here = layer.backward(dx, cache)\n        dx = dx + below
    its backward has done that already
dx and dmemory exchanged
    dx, dmemory_here → dmemory_here, dx | dmemory + dmemory_here → dmemory_here | the first is dx and the second dmemory
dx handed on beside the memory's
    dx, dmemory_here → below, dmemory_here | return dx, dmemory → return 30 * dx, dmemory | computed from the same dx
each backward twice | (dx, cache) → (dx, cache)[0], layer.backward(dx, cache)[1] | was called 2 times: each call adds
without the last layer
    (reversed(layers), reversed(caches) → (layers[-2::-1], caches[-2::-1] | the backward of layer 2 was never called
three layers
    dmemory = 0.0 → layers, caches, dmemory = [layers[n] for n in range(3)], caches[:3], 0.0 | for two layers, it raises
the model's layers turned round
    dmemory = 0.0 → dmemory = 0.0\n    layers.reverse() | reversed(layers) → layers | it changes the list of layers
[count_parameters]
two tables | return V * C → return 2 * V * C | one word more makes 32
no cross-attention | 2 * attention → attention | a decoder layer has two attentions
cross-attention in the encoder
    encoder_layer = attention → encoder_layer = 2 * attention | an encoder layer has one attention
four norms, or no second bias | 3 * norm → 2 * norm | each of the two feed-forward networks a second
gamma alone | norm = 2 * C → norm = C | a norm has a gamma and a beta
one bias in four | 4 * (C * C + C) → 4 * C * C + C | each of attention's four maps has a bias
one norm a layer | 2 * norm → norm | 3 * norm → norm | two in the encoder, three in the decoder
no hidden bias | C * F + F + F * C → C * F + F * C | a column, a bias and a row
final norms | return V * C → return V * C + 4 * C | apart from the table
sixteen columns | 4 * (C * C + C) → 4 * (16 * C + C) | for V = 50, C = 6
no second attention | 2 * attention → attention | 3 * → 2 * | a second attention, to the memory, with a norm of its own
a fraction | return V * C → return 0.5 + V * C | must return an int
"""
