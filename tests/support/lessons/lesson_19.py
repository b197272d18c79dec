"""Answers to lesson 19: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from course.lesson_19 import solutions


def _block_in_two_ways(layers, dx, cache):
    first_norm, self_attention, second_norm, feed_forward = cache
    ways = ((layers.feed_forward_backward, feed_forward, second_norm),)
    ways += ((layers.self_attention_backward, self_attention, first_norm),)
    for sublayer_backward, inner, norm in ways:
        past, through = dx, layers.norm_backward(sublayer_backward(dx, inner), norm)
        dx = np.sum([past, through], axis=0)
    return dx


def _block_on_a_copy(layers, dx, cache):
    dx = dx.copy()
    dx += layers.norm_backward(layers.feed_forward_backward(dx, cache[3]), cache[2])
    dx += layers.norm_backward(layers.self_attention_backward(dx, cache[1]), cache[0])
    return dx


def _tied_by_one_hot(dlogits, hidden, table, positions, ids, stack_backward):
    dx = stack_backward(np.einsum("btv,vc->btc", dlogits, table))
    one_hot = np.eye(len(table))[ids]  # (B, T, V)
    dtable = np.einsum("btv,btc->vc", dlogits, hidden) + np.einsum("btv,btc->vc", one_hot, dx)
    rest = np.zeros((len(positions) - ids.shape[1], positions.shape[1]))
    return dtable, np.concatenate([dx.sum(axis=0), rest])


def _cached_as_the_last_rows(query, key, value, keys, values):
    n = query.shape[2]
    keys, values = np.append(keys, key, axis=2), np.append(values, value, axis=2)
    mask = np.tri(keys.shape[2], dtype=bool)[-n:]
    scores = query / np.sqrt(query.shape[-1]) @ np.moveaxis(keys, 2, 3)
    scores[..., ~mask] = -1e30
    weights = np.exp(scores - scores.max(axis=-1)[..., None])
    return weights / weights.sum(axis=-1)[..., None] @ values, keys, values


def _nucleus_by_a_threshold(logits, p):
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    order = np.argsort(probabilities, axis=1)[:, ::-1]
    sums = np.cumsum(np.take_along_axis(probabilities, order, axis=1), axis=1)
    count = np.minimum((sums < p).sum(axis=1), logits.shape[1] - 1) + 1
    rank = np.argsort(order, axis=1)
    kept = np.where(rank < count[:, None], probabilities, 0.0)
    return kept / kept.sum(axis=1, keepdims=True)


def _newest_first(query, key, value, keys, values):
    past = (part[:, :, ::-1] for part in (keys, values))
    mixed, keys, values = solutions.cached_attention(query, key, value, *past)
    return mixed, keys[:, :, ::-1].copy(), values[:, :, ::-1].copy()


RIGHT = {
    "block_backward": [_block_in_two_ways, _block_on_a_copy],
    "tied_backward": [_tied_by_one_hot],
    "cached_attention": [_cached_as_the_last_rows],
    "top_p": [_nucleus_by_a_threshold],
}


def _post_norm(layers, dx, cache):
    first_norm, self_attention, second_norm, feed_forward = cache
    dx = layers.norm_backward(dx, second_norm)
    dx = dx + layers.feed_forward_backward(dx, feed_forward)
    dx = layers.norm_backward(dx, first_norm)
    return dx + layers.self_attention_backward(dx, self_attention)


def _norm_first(layers, dx, cache):
    first_norm, self_attention, second_norm, feed_forward = cache
    dx = dx + layers.feed_forward_backward(layers.norm_backward(dx, second_norm), feed_forward)
    return dx + layers.self_attention_backward(layers.norm_backward(dx, first_norm), self_attention)


def _everything_normed(layers, dx, cache):
    first_norm, self_attention, second_norm, feed_forward = cache
    dx = layers.norm_backward(dx + layers.feed_forward_backward(dx, feed_forward), second_norm)
    return layers.norm_backward(dx + layers.self_attention_backward(dx, self_attention), first_norm)


def _block_without(part):
    def block_backward(layers, dx, cache):
        first_norm, self_attention, second_norm, feed_forward = cache
        dh = layers.feed_forward_backward(dx, feed_forward)
        dx = dx + (dh if part == "second" else layers.norm_backward(dh, second_norm))
        dh = layers.self_attention_backward(dx, self_attention)
        return dx + (dh if part == "first" else layers.norm_backward(dh, first_norm))

    return block_backward


def _cache_and_itself(query, key, value, keys, values):
    n, past = query.shape[2], keys.shape[2]
    keys, values = np.concatenate([keys, key], axis=2), np.concatenate([values, value], axis=2)
    seen = np.eye(n, past + n, past, dtype=bool)
    seen[:, :past] = True
    scores = np.where(seen, query @ keys.swapaxes(-1, -2) / np.sqrt(query.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ values, keys, values


MISTAKES = r"""
[block_backward]
no way past the feed-forward network
    dx = dx + layers.norm_backward(dh, second_norm) → dx = layers.norm_backward(dh, second_norm)
    what passes by the feed-forward network is to be added
no way past self-attention
    return dx + layers.norm_backward(dh, first_norm) → return layers.norm_backward(dh, first_norm)
    what passes by it is to be added
the gradient of the norm's output passes by
    dx = dx + layers.norm_backward(dh, second_norm) → dx = dh + layers.norm_backward(dh, second_norm)
    return dx + layers → return dh + layers
    what passes by a sub-layer is the gradient that came
no way past anything
    dx = dx + layers.norm_backward(dh, second_norm) → dx = layers.norm_backward(dh, second_norm)
    return dx + layers.norm_backward(dh, first_norm) → return layers.norm_backward(dh, first_norm)
    what passes by them is to be added, twice
the block's output to self-attention
    dx = dx + layers.norm_backward(dh, second_norm) → above = dx\n    dx = dx + layers.norm_backward(dh, second_norm)
    self_attention_backward(dx, → self_attention_backward(above,
    between the two stands the feed-forward network's residual connection
post-norm | is _post_norm | the norm stands before f
the norm before the sub-layer | is _norm_first | in the order 3, 4, 1, 2
the sum through the norm | is _everything_normed | no norm stands on the residual stream
the gradient from above once more
    first_norm, self_attention, second_norm, feed_forward = cache →
        first_norm, self_attention, second_norm, feed_forward, above = *cache, dx
    return dx → return above + dx
    is added once more at the end
its share alone to self-attention
    dx = dx + layers.norm_backward(dh, second_norm) → dh = layers.norm_backward(dh, second_norm)
    self_attention_backward(dx, self_attention) → self_attention_backward(dh, self_attention)
    share goes on to self-attention alone
its share alone to self-attention, and in the sum
    dh = layers.self_attention_backward(dx, → dh = layers.self_attention_backward(dx - above,
    first_norm, self_attention, second_norm, feed_forward = cache →
        first_norm, self_attention, second_norm, feed_forward, above = *cache, dx
    gets the feed-forward network's share alone
the block's output past self-attention
    dx = dx + layers.norm_backward(dh, second_norm) → above, dx = dx, dx + layers.norm_backward(dh, second_norm)
    return dx → return above
    what passes by it is the sum
twice through the feed-forward network
    dh = layers.feed_forward_backward(dx, feed_forward) →
        layers.feed_forward_backward(dx, feed_forward)\n    dh = layers.feed_forward_backward(dx, feed_forward)
    called 2 times
without the second norm | is _block_without("second") | the second norm (number 3 of the cache) is never called
without the first norm | is _block_without("first") | the first norm (number 1 of the cache) is never called
norms exchanged
    first_norm, self_attention, second_norm → second_norm, self_attention, first_norm
    in the order 4, 1, 2, 3
the backwards' order of the cache
    first_norm, self_attention, second_norm, feed_forward = cache →
        feed_forward, second_norm, self_attention, first_norm = cache
    was given the cache of the first norm
a tuple | returns (answer, None) | an array, not tuple
the halves' mean | returns answer / 2 | 0.5 times
[tied_backward]
positions by id
    dpositions[: ids.shape[1]] = dx.sum(axis=0) → np.add.at(dpositions, ids.clip(0, len(positions) - 1), dx)
    of the tokens' ids
the output layer alone | np.add.at(dtable, ids, dx) → pass | is that of the output layer alone
the look-up alone
    dlogits.reshape(-1, V).T @ hidden.reshape(-1, C) → np.zeros_like(table)
    is that of the look-up alone
tokens once | np.add.at(dtable, ids, dx) → dtable[ids] += dx | counts each token of the look-up once
replaced | np.add.at(dtable, ids, dx) → dtable[ids] = dx | where its tokens stand
times the root of C | np.add.at(dtable, ids, dx) → np.add.at(dtable, ids, dx * np.sqrt(C)) | times √C
what was looked up for hidden
    .T @ hidden.reshape → .T @ (table[ids] + positions[: ids.shape[1]]).reshape
    has what was looked up where hidden belongs
a mean of a token's places
    np.add.at(dtable, ids, dx) → np.add.at(dtable, ids, dx / np.bincount(ids.ravel())[ids][..., None])
    the mean of a token's places
a mean over positions | returns dtable / ids.size, dpositions / ids.size | dlogits has that in it already
a mean of the two | returns dtable / 2, dpositions | the mean of its two parts
subtracted | np.add.at(dtable → np.subtract.at(dtable | wrong sign
not through the stack
    np.add.at(dtable, ids, dx) → np.add.at(dtable, ids, dlogits @ table)
    it goes through the stack first
no call of the stack | stack_backward(dlogits @ table) → dlogits @ table | never called
two calls | dx = stack → stack_backward(dlogits @ table)\n    dx = stack | called 2 times
hidden into the stack | stack_backward(dlogits @ table) → stack_backward(hidden) | something else than
the logits' gradient into the stack
    stack_backward(dlogits @ table) → stack_backward(dlogits)
    expected that of hidden
positions of T rows | returns dtable, dx.sum(axis=0) | must have that of positions
a mean over the batch | dx.sum(axis=0) → dx.mean(axis=0) | a mean over the rows of the batch
the last row's positions | = dx.sum(axis=0) → = dx[-1] | the last row of the batch
positions at the end | dpositions[: ids.shape[1]] → dpositions[-ids.shape[1] :] | in the last rows
positions above the stack | = dx.sum(axis=0) → = (dlogits @ table).sum(axis=0) | made of the gradient of hidden
no positions | dpositions[: ids.shape[1]] = dx.sum(axis=0) → pass | dpositions is zero
exchanged | returns dpositions, dtable | that of the table
[cached_attention]
the newest key first, and right all the same | is _newest_first | has the newest position first
no mask | np.where(seen, scores, -np.inf) → scores | lets each new position see all others
a triangle at the top left | np.tri(n, t + n, t, → np.tri(n, t + n, | at the top left
one too far | np.tri(n, t + n, t, → np.tri(n, t + n, t + 1, | one position too far
not itself | np.tri(n, t + n, t, → np.tri(n, t + n, t - 1, | holds NaN or infinity
the new ones alone | seen = np.tri( → seen = (np.arange(t + n) >= t) & np.tri( | sees the new positions alone
the first of the new ones alone
    np.tri(n, t + n, t, dtype=bool) → np.broadcast_to(np.arange(t + n) <= t, (n, t + n))
    the first of them and no other
a mask in the first piece alone
    np.tri(n, t + n, t, dtype=bool) → np.tri(n, t + n, t, dtype=bool) + (t > 0)
    with 5 new positions and 2 in the cache
zero where it must not look | scores, -np.inf → scores, 0 | which is no small score
a thousand below zero | scores, -np.inf → scores, -1e3 | put −∞ there, and not another number
masked after the softmax
    np.where(seen, scores, -np.inf) → scores
    returns weights * np.tri(n, t + n, t) @ values, keys, values
    is masked after the softmax
the largest of all scores
    scores = np.where(seen → largest = scores.max(axis=-1, keepdims=True)\n    scores = np.where(seen
    scores - scores.max(axis=-1, keepdims=True) → scores - largest
    so mask first, and subtract then
the cache and itself | is _cache_and_itself | not the new ones before it
not divided | / query.shape[-1] ** 0.5 → | divide by √D
divided by D | query.shape[-1] ** 0.5 → query.shape[-1] | scores divided by D
divided by √Dv | query.shape[-1] ** 0.5 → value.shape[-1] ** 0.5 | scores divided by √Dv
the newest first
    [keys, key] → [key, keys]
    [values, value] → [value, values]
    has the new positions before the old ones
the cache does not grow | returns weights @ values, key, value | the cache grows by the new positions
values do not grow | returns weights @ values, keys, value | the new values have shape
no largest score | scores - scores.max(axis=-1, keepdims=True) → scores | each row's own largest
one softmax for all heads
    scores.max(axis=-1, keepdims=True) → scores.max()
    mixed of the other heads is NaN
a window of 64
    seen = np.tri( → seen = (np.arange(t + n) >= t + n - 64) & np.tri(
    with 70 positions in the cache
softmax over queries | weights.sum(axis=-1, keepdims=True) → weights.sum(axis=-2, keepdims=True) | mixed is wrong
[top_p]
reached exactly | before < p → before <= p | where the best tokens sum to exactly p
one count for all rows
    before < p → np.arange(logits.shape[1]) < (before < p).sum(-1).min() | the row that needs fewest
the last one left out | before < p → before + probabilities <= p | the token with which the sum reaches p is kept too
not normalised | kept / kept.sum(axis=-1, keepdims=True) → kept | are not divided by their sum
sorted | returns kept / kept.sum(axis=-1, keepdims=True) | in the order of the probabilities
own probability
    before < p → probabilities >= p
    and not each token's own
the worst first | np.argsort(-logits, axis=-1) → np.argsort(logits, axis=-1) | begin with the best
unsorted
    np.argsort(-logits, axis=-1) → np.broadcast_to(np.arange(logits.shape[1]), logits.shape)
    sort them by probability first
in order a second time
    returns np.take_along_axis(kept / kept.sum(axis=-1, keepdims=True), order, axis=-1)
    put in order a second time
a mask of the best on the vocabulary
    returns solution(np.where(before < p, logits, -np.inf), 1.0)
    is applied in that of the vocabulary
what is cut reaches p | before < p → before < 1 - p | p is what is kept, not what is cut
a share of the best | before < p → probabilities >= p * probabilities[:, :1] | more tokens are kept than the fewest
all as likely | np.where(before < p, probabilities, 0) → (before < p) * 1.0 | they keep their proportions
a logit of zero for the cut
    returns solution(np.where(result > 0, logits, 0.0), 1.0)
    no probability of 0
up to where the sum reaches p
    kept = np.where(before < p →
        last = np.argmax(before + probabilities >= p, -1)\n    kept = np.where(np.arange(len(order.T)) <= last[:, None]
    also where rounding leaves
one largest logit for all rows | best - best[:, :1] → best - best.max() | subtract each row's own
nothing cut | before < p → before < 2 | nothing is cut
the whole batch's order
    np.cumsum(probabilities, axis=-1) → np.cumsum(probabilities).reshape(probabilities.shape)
    for two rows
overflow | best - best[:, :1] → best | with logits near
the first row alone
    before < p → before[:1] < p
    for two rows, each with a nucleus of its own
at most 64 | kept = np.where(before < p → kept = np.where((before < p) & (np.arange(logits.shape[1]) < 64) | of 300
a loop for one row | returns result[0] | returns shape
log of probabilities | returns np.log(result) | holds −∞
at least two | before < p → np.logical_or(before < p, np.arange(logits.shape[1]) < 2) | with probability 1
"""
