"""Answers to lesson 04: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _attention_through_out(dout, query, key, value, weights):
    towards = np.einsum("...ie,...je->...ij", dout, value) - (dout * (weights @ value)).sum(axis=-1)[..., None]
    dscores = weights * towards * query.shape[-1] ** -0.5
    return (
        np.einsum("...ij,...jd->...id", dscores, key),
        np.einsum("...ij,...id->...jd", dscores, query),
        np.einsum("...ij,...ie->...je", weights, dout),
    )


def _moved_in_place(attend, query, key, value):
    out, moved = attend(query, key, value), np.empty((len(query), len(key)), bool)
    for j in range(len(key)):
        own = key[j].copy(), value[j].copy()
        key[j], value[j] = np.arange(len(own[0])) - 3.3, own[1] + 7
        moved[:, j] = np.linalg.norm(attend(query, key, value) - out, axis=1) > 1e-9
        key[j], value[j] = own
    return moved


def _moved_at_random(attend, query, key, value):
    rng, columns = np.random.default_rng(1), []
    for j in range(len(key)):
        here = (np.arange(len(key)) == j)[:, None]
        other = attend(query, key + here * rng.random(key.shape), value - here * rng.random(value.shape))
        columns.append(~np.isclose(other, attend(query, key, value), rtol=0, atol=1e-9).all(axis=1))
    return np.array(columns).T


def _masked_nan_to_num(scores, mask):
    scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.nan_to_num(e / e.sum(axis=-1, keepdims=True))


def _equation_1_by_einsum(query, key, value):
    scores = np.einsum("...id,...jd->...ij", query, key) * query.shape[-1] ** -0.5
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return np.einsum("...ij,...je->...ie", weights, value), weights


RIGHT = {
    "attention": [_equation_1_by_einsum],
    "attention_backward": [_attention_through_out],
    "causal_mask": [lambda queries, keys: np.tri(queries, keys, keys - queries, dtype=bool)],
    "moved_by": [_moved_in_place, _moved_at_random],
    "masked_softmax": [_masked_nan_to_num],
}


MISTAKES = r"""
[attention]
a softmax of the softmax
    softmax_forward(scores) → softmax_forward(softmax_forward(scores)[0]) | the softmax of a softmax
turned round | query @ key → -query @ key | turned round: the larger the product
scores cut off | softmax_forward(scores) → softmax_forward(np.clip(scores, -700, 700)) | are in the thousands, weights
not divided | key.swapaxes(-1, -2) / math.sqrt(query.shape[-1]) → key.swapaxes(-1, -2) | not divided at all
divided by D | math.sqrt(query.shape[-1]) → query.shape[-1] | the root is missing
multiplied by √D | / math.sqrt(query.shape[-1]) → * math.sqrt(query.shape[-1]) | multiplied by √D
the number of keys | math.sqrt(query.shape[-1]) → math.sqrt(key.shape[-2]) | the root of the number of keys
the number of queries | math.sqrt(query.shape[-1]) → math.sqrt(len(query)) | the root of the number of queries
the values' width | math.sqrt(query.shape[-1]) → math.sqrt(value.shape[-1]) | the root of the values' width
the key as it is | query @ key.swapaxes(-1, -2) → query @ key | mismatch
softmax over the queries
    weights, _ = softmax_forward(scores) → weights = softmax_forward(scores.swapaxes(-1, -2))[0].swapaxes(-1, -2)
    in each column
the scale after the softmax
    / math.sqrt(query.shape[-1]) → | return weights @ value, weights →
        weights = weights / math.sqrt(query.shape[-1])\n    return weights @ value, weights
    nothing may touch them after the softmax
the other order | return weights @ value, weights → return weights, weights @ value | in the other order
scores for weights | return weights @ value, weights → return weights @ value, scores | are the scores
the scores for the weights
    return weights @ value, weights → return scores @ value, weights
    out is not weights @ value
no largest score
    weights, _ = softmax_forward(scores) → weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    subtracts each row's own largest
.T | key.swapaxes(-1, -2) → key.T | where .T reverses all axes and .swapaxes(-1, -2) the last two, it raises ValueError
the softmax with its cache | weights, _ = softmax_forward → weights = softmax_forward | the softmax and a cache
axis 1
    weights, _ = softmax_forward(scores) →
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))\n    weights /= weights.sum(axis=1, keepdims=True)
    (.T reverses all axes)
a width of 8 | math.sqrt(query.shape[-1]) → math.sqrt(8) | is a number written where a length belongs
[attention_backward]
the softmax's sum is missing
    - (dweights * weights).sum(axis=-1, keepdims=True) → | does the softmax's backward subtract
the scores in the softmax's backward
    dscores = weights * (dweights - (dweights * weights) →
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1]);
        dscores = scores * (dweights - (dweights * scores)
    softmax_backward gets the scores: it takes the softmax's result, the weights
the scores, not divided, in the softmax's backward
    dscores = weights * (dweights - (dweights * weights) →
        scores = query @ key.swapaxes(-1, -2)\n    dscores = scores * (dweights - (dweights * scores)
    softmax_backward gets query @ keyᵀ: it takes
the weights are not a factor | weights * (dweights - → (dweights - | a key that has weight 0
dquery is not scaled
    dscores @ key → math.sqrt(8) * dscores @ key | dquery is 2.82843 times what it should be everywhere, which is √d_k
dkey is scaled twice
    swapaxes(-1, -2) @ query → swapaxes(-1, -2) @ query / math.sqrt(8)
    dkey is 0.353553 times what it should be everywhere, which is 1/√d_k
weights normalised over the queries | weights. → (weights / weights.sum(-2, keepdims=True)). | is it weightsᵀ @ dout?
sign | dkey = dscores → dkey = -dscores | dkey has the wrong sign everywhere
dkey and dquery swapped | returns dkey, dquery, dvalue | dquery has shape (2, 3, 4, 8)
.T on a batch
    swapaxes(-1, -2)  # (..., Tq, Tk) → T | `dweights = dout @ value.T`, where dout is (2, 3, 5, 3), value is
√d_v | query.shape[-1]) → value.shape[-1]) | which is √(d_k/d_v)
√T_k | query.shape[-1]) → key.shape[-2]) | which is √(d_k/T_k)
one head for all
    returns [np.broadcast_to(g[:, :1], g.shape).copy() if g.ndim > 2 else g for g in answer] | whose own dout does
a mean that is not weighted | (dweights * weights).sum( → dweights.mean( | dkey does not sum to 0 over the keys
the scale of D = 8 | query.shape[-1]) → 8) | which is √(D/8)
the scale of Tq + Dv | query.shape[-1]) → query.shape[-2] + value.shape[-1]) | with 3, 6, 11, 2 dquery is 1.4
[causal_mask]
a query does not see itself | <= → < | cannot see its own position
True = hide, with the diagonal | <= → >= | that is the future
top left | np.arange(num_keys - num_queries, num_keys) → np.arange(num_queries) | at the bottom right
numbers | returns np.tri(num_queries, num_keys, num_keys - num_queries) | must be of bool
one too far | positions[:, None] → positions[:, None] + 1 | the rows see [2, 3, 4, 4] keys and must see [1, 2, 3, 4]
at least one key | positions[:, None] → positions[:, None].clip(0) | the rows see [1, 1, 1, 1, 2] keys
[moved_by]
only the value | (query, other_key → (query, key | misses a leak through the keys
only the key | other_value) - out → value) - out | misses a leak through the values
multiplied | other_key[j] += 1 → other_key[j] *= -2 | other_value[j] += 1 → other_value[j] *= 2 | where the values are 0
one number of the value | other_value[j] += 1 → other_value[j, 0] += 1 | one component of a value
one number of the key | other_key[j] += 1 → other_key[j, -1] += 1 | one component of a key
all from j on
    other_key[j] += 1 → other_key[j:] = 0.5 | other_value[j] += 1 → other_value[j:] += 1
    is one key at a time replaced
all outputs at once | .max(axis=1) > → .max() > | compare row by row
any difference | > 1e-9 → > 0 | they are rounding
the sum of a row | np.abs(attend → np.abs((attend | - out).max(axis=1) → - out).sum(axis=1)) | whose components sum to 0
transposed | returns answer.T | a row for each query
np.isclose
    np.abs(attend → (~np.isclose(attend | - out).max(axis=1) > 1e-9 → , out)).any(axis=1)
    misses a move of 5·10⁻⁹: only what is below 1e-9 is rounding
np.isclose to 1e-9
    np.abs(attend → (~np.isclose(attend | - out).max(axis=1) > 1e-9 → , out, atol=1e-9)).any(axis=1)
    misses a move of 10⁻⁴ in outputs of 1000
all components | .max(axis=1) → .min(axis=1) | misses a move of one component
the second component | .max(axis=1) → [:, 1] | an output's first
without abs | np.abs(attend → (attend | misses a move downwards
the lengths
    np.abs(attend → np.abs(np.linalg.norm(attend | - out).max(axis=1) → , axis=1) - np.linalg.norm(out, axis=1))
    compare the outputs, not their lengths
down to 1e-12 | 1e-9 → 1e-12 | 2·10⁻¹⁰ count as moves
keys set to 0 | other_key[j] += 1 → other_key[j] = 0 | misses a leak where the keys are 0
keys set to 1 | other_key[j] += 1 → other_key[j] = 1 | misses a leak where the keys are 1
values set to 1 | other_value[j] += 1 → other_value[j] = 1 | misses a leak where the values are 1
1 less the value | other_value[j] += 1 → other_value[j] = 1 - value[j] | misses a leak where the values are 0.5
numbers | dtype=bool → dtype=int | must be of bool, not int64
3 queries and 5 keys
    (len(query), len(key)) → (3, 5) | range(len(key)) → range(min(5, len(key))) | moved[:, j] → moved[: len(query), j]
    max(axis=1) → max(axis=1)[:3] | with 4 queries and 2 keys it is wrong
[masked_softmax]
scores × mask | scores = np.where(mask, scores, -np.inf) → scores = scores * mask | A score of 0 still counts as e⁰ = 1
weights × mask
    np.where(mask, scores, -np.inf) → scores | return exponentials → return mask * exponentials
    and not to 1: forbidden keys must be out
weights × mask, divided by their sum
    np.where(mask, scores, -np.inf) → scores
    return exponentials / np.where(totals == 0, 1, totals) →
        weights = mask * exponentials\n    return weights / weights.sum(axis=-1, keepdims=True)
    changes the weights of what is allowed
an empty row | np.where(np.isneginf(largest), 0, largest) → largest | gives NaN
−10⁹ | -np.inf) → -1e9) | weights that sum to 1, and must give zeros
no maximum subtracted | scores - np.where(np.isneginf(largest), 0, largest) → scores | subtract each row's maximum
1e-8 in the sum | returns exponentials / (totals + 1e-8) | is a small number added
True = hide | np.where(mask, scores, -np.inf) → np.where(mask, -np.inf, scores) | True means 'may attend'
one maximum for all rows | scores.max(axis=-1, keepdims=True) → scores.max() | each row's own maximum
the mean for the maximum
    scores.max(axis=-1, keepdims=True) → np.ma.masked_invalid(scores).mean(axis=-1, keepdims=True).filled(0)
    not the mean or one of the scores
axis 1 | exponentials.sum(axis=-1 → exponentials.sum(axis=1 | axis=1 only of a matrix
−10⁹, then × mask | -np.inf) → -1e9) | return exponentials → return mask * exponentials | −10⁹ is a score like another
a mask of the scores' shape only
    scores = np.where(mask, scores, -np.inf) → scores = scores.copy()\n    scores[~mask] = -np.inf
    `scores[~mask] = -np.inf`, where scores is
"""
