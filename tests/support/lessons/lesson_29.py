"""Answers to lesson 29: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

norm = np.linalg.norm


def _score_at_once(weights, ids):
    same = np.tril(ids[:, :, None] == ids[:, None], -1)
    b, t = np.nonzero(same.any(axis=-1))
    last = np.where(same, np.arange(ids.shape[1]), -1).max(axis=-1)[b, t]
    return weights[b, :, t, last + 1].mean(axis=0)


def _terms_by_direction(terms, gamma, beta, direction, eps):
    """The direction goes back through the norm, and the terms stay as they are."""
    x = terms.sum(axis=0)
    back = gamma * direction
    back = (back - back.mean()) / np.sqrt(x.var(axis=-1, keepdims=True) + eps)  # (T, C)
    return (terms * back).sum(axis=-1), np.sum(beta * direction)


def _patches_in_a_list(after, own, other):
    def patched(t):
        return np.where(np.arange(len(own))[:, None] == t, other, own)

    low, high = after(own), after(other)
    return np.array([(after(patched(t)) - low) / (high - low) for t in range(len(own))])


def _circuits_by_einsum(query, key, value, output, num_heads):
    q, k, v = (each.reshape(len(each), num_heads, -1) for each in (query, key, value))
    rows = output.reshape(num_heads, -1, output.shape[1])
    return np.einsum("ahd,bhd->hab", q, k) * q.shape[-1] ** -0.5, np.einsum("ahd,hdb->hab", v, rows)


def _composition_at_once(qk, ov):
    products = np.einsum("hab,ecb->heac", qk, ov)
    sizes = np.sqrt(np.multiply.outer((qk**2).sum(axis=(1, 2)), (ov**2).sum(axis=(1, 2))))
    return np.sqrt((products**2).sum(axis=(2, 3))) / sizes


RIGHT = {
    "induction_score": [_score_at_once],
    "logit_terms": [_terms_by_direction],
    "patch_shares": [_patches_in_a_list],
    "circuits": [_circuits_by_einsum],
    "key_composition": [_composition_at_once],
}


def _var(x):
    return x.var(axis=-1, keepdims=True)


def _mean(x):
    return x.mean(axis=-1, keepdims=True)


def _normal(x, eps):
    return (x - _mean(x)) / np.sqrt(_var(x) + eps)


def _heads(matrix, heads):
    return matrix.reshape(len(matrix), heads, -1).swapaxes(0, 1)


def _pairs(qk, ov, of):
    return np.array([[of(reads, writes) for writes in ov] for reads in qk])


def _lasts(ids):
    """Each token with an earlier same one: its text, its place, and that of the last earlier one."""
    for b, row in enumerate(ids.tolist()):
        for t, id in enumerate(row):
            if id in row[:t]:
                yield b, t, t - 1 - row[:t][::-1].index(id)


MISTAKES = r"""
[induction_score]
the same token | same[-1] + 1] → same[-1]] | attention to the last same token itself
two places after | same[-1] + 1] → (same[-1] + 2) % T] | two places after
the token before | same[-1] + 1] → same[-1] - 1] | the token before the last same one
the first same one | same[-1] + 1] → same[0] + 1] | the first earlier same token
all earlier ones | weights[b, :, t, same[-1] + 1] → weights[b, :, t][:, [s + 1 for s in same]].sum(axis=-1)
    adds up the attention after all
the mean of earlier ones | weights[b, :, t, same[-1] + 1] → weights[b, :, t][:, [s + 1 for s in same]].mean(axis=-1)
    a mean over all earlier same tokens
the best of earlier ones | weights[b, :, t, same[-1] + 1] → weights[b, :, t][:, [s + 1 for s in same]].max(axis=-1)
    that gets most
queries for keys | weights[b, :, t, same[-1] + 1] → weights[b, :, same[-1] + 1, t] | queries and keys exchanged
a query late | weights[b, :, t, → weights[b, :, (t + 1) % T, | the query one place late
a query early | weights[b, :, t, → weights[b, :, t - 1, | the query one place early
of all tokens | total / count → total / (B * T) | divided by all tokens
of a text | total / count → total / T | divided by the length of a text
of the texts | total / count → total / B | divided by the number of texts
a sum | total / count → total | is a sum, and must be a mean
one too few | total / count → total / (count - 1) | by one too few
a mean of means
    returns np.mean([solution(weights[b : b + 1], ids[b : b + 1]) for b in range(B) if len(set(ids[b])) < T], axis=0)
    a mean of the texts' own means
the first text | range(B) → range(1) | of the first text alone
the last text | range(B) → range(B - 1, B) | of the last text
the first token | if same: → if same and not count: | the first token that comes again
the last token | total += → total = | count += 1 → count = 1 | the last token that comes again
the token before, of all | returns weights.diagonal(-1, 2, 3).mean(axis=(0, 2)) | of all tokens: that is another
the token before the query | same[-1] + 1] → t - 1] | attention to the token before the query
itself | same[-1] + 1] → t] | of each token to itself
the first of the text | same[-1] + 1] → 0] | the first token of the text
half a text | returns weights.diagonal(1 - T // 2, 2, 3)[..., 1:].mean(axis=(0, 2)) | by half of the text
later ones | for s in range(t) → for s in range(T) if s != t | same[-1] + 1] → (same[-1] + 1) % T]
    later in the text too
the token itself | for s in range(t) → for s in range(t + 1) | same[-1] + 1] → (same[-1] + 1) % T]
    for the same as itself
another text's tokens | if ids[b, s] == → if ids[0, s] == | with the first one's tokens
twice in a row | if same: → if same and same[-1] + 1 < t: | stands twice in a row
a median
    returns np.median([weights[b, :, t, s + 1] for b, t, s in _lasts(ids)], axis=0)
    is a median
the largest | total += weights[b, :, t, same[-1] + 1] → total = np.maximum(total, weights[b, :, t, same[-1] + 1])
    total / count → total
    the largest of all tokens
the smallest
    total, count = np.zeros(weights.shape[1]), 0 → total, count = np.ones(weights.shape[1]), 0
    total += weights[b, :, t, same[-1] + 1] → total = np.minimum(total, weights[b, :, t, same[-1] + 1])
    total / count → total
    the smallest of all tokens
the share of hits | weights[b, :, t, same[-1] + 1] → weights[b, :, t].argmax(axis=-1) == same[-1] + 1 | counts how often
squares | weights[b, :, t, same[-1] + 1] → weights[b, :, t, same[-1] + 1] ** 2 | a mean of squares
logarithms | weights[b, :, t, same[-1] + 1] → np.log(weights[b, :, t, same[-1] + 1] + 1e-300) | a mean of logarithms
what is left | total / count → 1 - total / count | what is left of 1
one for all | total / count → 0 * total + (total / count).mean() | the mean over the heads
heads in reverse | total / count → (total / count)[::-1] | the heads in the reverse order
a number | total / count → (total / count).mean() | the mean is not over the heads
a list | total / count → list(total / count) | an array, not list
for each text | total / count → np.tile(total / count, (B, 1)) | the mean is over the texts too
[logit_terms]
no scale | * scale * gamma → * gamma | lack the scale of the norm
no gain | * scale * gamma → * scale | lack the gain gamma
no mean | (terms - terms.mean(axis=-1, keepdims=True)) → terms | lack what the norm subtracts
as they are | returns terms @ direction, beta @ direction | the terms as they are
their own scale | * scale * gamma → / np.sqrt(_var(terms) + eps) * gamma | a scale of their own
the variance | 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps) → 1 / (_var(x) + eps) | by the variance
multiplied | scale = 1 / np.sqrt → scale = np.sqrt | multiplied by the deviation
no eps | keepdims=True) + eps) → keepdims=True)) | lack eps under the root
eps outside | np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps) → (x.std(axis=-1, keepdims=True) + eps)
    outside of the root
eps squared | + eps) → + eps**2) | eps squared
eps subtracted | + eps) → - eps) | eps subtracted
one channel less | (centred**2).mean(axis=-1, keepdims=True) → x.var(axis=-1, keepdims=True, ddof=1) | with C − 1
RMS | (centred**2).mean(axis=-1, keepdims=True) → (x**2).mean(axis=-1, keepdims=True) | RMS normalisation
one scale | (centred**2).mean(axis=-1, keepdims=True) → (centred**2).mean() | one scale for all positions
over the positions | (centred**2).mean(axis=-1, keepdims=True) → x.var(axis=0) | over the positions: it is over
the mean of the terms | x = terms.sum(axis=0) → x = terms.mean(axis=0) | the mean of the terms: the stream
the first one's scale | x = terms.sum(axis=0) → x = terms[0] | the first term, the embedding
the last one's scale | x = terms.sum(axis=0) → x = terms[-1] | the scale of the last term
before the last | x = terms.sum(axis=0) → x = terms[:-1].sum(axis=0) | before the last term
the stream's mean | terms - terms.mean(axis=-1, keepdims=True) → terms - _mean(x) | the stream's mean taken off each
a part of the mean | terms - terms.mean(axis=-1, keepdims=True) → terms - _mean(x) / len(terms) | equal parts
the mean of terms | terms - terms.mean(axis=-1, keepdims=True) → terms - terms.mean(axis=0) | the mean over the terms
the mean of positions | terms - terms.mean(axis=-1, keepdims=True) → terms - terms.mean(axis=1, keepdims=True)
    the mean over the positions
one mean | terms - terms.mean(axis=-1, keepdims=True) → terms - terms.mean(axis=(1, 2), keepdims=True)
    one mean of all channels
the mean after gamma
    (terms - terms.mean(axis=-1, keepdims=True)) * scale * gamma → (terms * gamma - _mean(terms * gamma)) * scale
    after gamma
beta in each | * scale * gamma → * scale * gamma + beta | beta in each of them
a part of beta | * scale * gamma → * scale * gamma + beta / len(terms) | a part of beta in each
without the constant | * scale * gamma → * scale * gamma - beta | the constant subtracted
gamma twice | * scale * gamma → * scale * gamma**2 | gamma twice
divided by gamma | * scale * gamma → * scale / gamma | divided by gamma
as Gemma's | * scale * gamma → * scale * (1 + gamma) | 1 + gamma
length 1 | parts @ direction → parts @ direction / norm(direction) | a direction of length 1
the direction's mean | parts @ direction → parts @ (direction - direction.mean()) | off the direction
so far | parts @ direction → (parts @ direction).cumsum(axis=0) | all terms so far: each stands alone
shares | parts @ direction → parts @ direction / (parts @ direction).sum(axis=0) | shares of the logit
the whole | parts @ direction → np.zeros_like(parts @ direction) + (parts @ direction).sum(axis=0) | the whole logit
left out | returns ((_normal(x, eps) - _normal(x - terms, eps)) * gamma) @ direction, beta @ direction | left out
each alone | returns (_normal(terms, eps) * gamma + beta) @ direction, beta @ direction | each term alone, normalised
the lens | returns (_normal(terms.cumsum(axis=0), eps) * gamma) @ direction, beta @ direction | the logit lens
a mean | parts @ direction → parts @ direction / len(direction) | means over the channels
no sign | parts @ direction → abs(parts @ direction) | have no sign
reverse | parts @ direction → (parts @ direction)[::-1] | the terms in the reverse
positions in reverse | parts @ direction → (parts @ direction)[:, ::-1] | the positions in the reverse
transposed | parts @ direction → (parts @ direction).T | is it transposed?
added up | parts @ direction → (parts @ direction).sum(axis=0) | the terms stay apart
over positions | parts @ direction → (parts @ direction).sum(axis=1) | the positions stay apart
not summed | parts @ direction → parts * direction | sums over the channels
an axis left | parts @ direction → parts @ direction[:, None] | the last axis
no constant | beta @ direction → 0.0 | constant is 0
gamma for beta | beta @ direction → gamma @ direction | that of gamma
beta with gamma | beta @ direction → (beta * gamma) @ direction | beta is added after it
beta's sum | beta @ direction → beta.sum() | the sum of beta
a mean of beta | beta @ direction → beta @ direction / len(beta) | constant is a mean
once for each | beta @ direction → len(terms) * (beta @ direction) | once there for each
divided | beta @ direction → beta @ direction / len(terms) | divided among
beta's mean | beta @ direction → (beta - beta.mean()) @ direction | the mean of beta taken off
minus beta | beta @ direction → -(beta @ direction) | constant has the wrong sign
a constant at each position | beta @ direction → np.full(len(x), beta @ direction) | all positions have the same
one array | returns parts @ direction | it must return 2 arrays
[patch_shares]
the measures | returns values | the measures themselves
differences | returns values - before | are differences
by the other run | returns (values - before) / wanted | by the other run's measure
by the own run | returns (values - before) / before | by the own run's measure
nothing taken off | returns values / (wanted - before) | without the own run's taken off
what is missing | returns (wanted - values) / (wanted - before) | what is missing
the sign | returns (before - values) / (wanted - before) | wrong sign
from the other side | returns (values - wanted) / (wanted - before) | on, not from the own
the other way | own.copy() → other.copy() | patched[t] = other[t] → patched[t] = own[t] | put the own run's
lost | own.copy() → other.copy() | patched[t] = other[t] → patched[t] = own[t]
    (values - before) / (wanted - before) → (values - wanted) / (before - wanted)
    how much is lost
not begun again | patched[t] = other[t] → patched[: t + 1] = other[: t + 1] | keep what was patched
all before | patched[t] = other[t] → patched[:t] = other[:t] | all positions before
all after | patched[t] = other[t] → patched[t:] = other[t:] | from one on
two of them | patched[t] = other[t] → patched[t : t + 2] = other[t : t + 2] | two neighbours
the next one | patched[t] = other[t] → patched[(t + 1) % len(own)] = other[(t + 1) % len(own)] | patch the next
the one before | patched[t] = other[t] → patched[t - 1] = other[t - 1] | patch the position before
the first value | = other[t] → = other[0] | first position everywhere
the last value | = other[t] → = other[-1] | last position everywhere
values in reverse | = other[t] → = other[-1 - t] | values in the reverse
zeros | = other[t] → = 0 | put zeros
ones | = other[t] → = 1 | put ones
the mean | = other[t] → = other.mean(axis=0) | the mean of the other run
the mean of channels | = other[t] → = other[t].mean() | of its channels
both | = other[t] → = (own[t] + other[t]) / 2 | the mean of both
added | = other[t] → = own[t] + other[t] | add the other run's values
the difference | = other[t] → = other[t] - own[t] | put the difference
twice | = other[t] → = 2 * other[t] - own[t] | add the difference twice
minus | = other[t] → = -other[t] | with the wrong sign there
channels | patched[t] = other[t] → patched[:, t] = other[:, t] | a row is a position
the first channel | patched[t] = other[t] → patched[t, :1] = other[t, :1] | the first channel
not the last channel | patched[t] = other[t] → patched[t, :-1] = other[t, :-1] | all channels but
the copy does not run | after(patched) → after(own) | patch nothing
everything | patched[t] = other[t] → patched = other | patch everything
a gradient | = other[t] → = own[t] + 1e-5 * (other[t] - own[t]) | (values - before) → 1e5 * (values - before)
    a gradient's estimate
sum to 1 | returns (values - before) / (values - before).sum() | divided by their sum
no sign | returns abs((values - before) / (wanted - before)) | have no sign
cut off | returns np.maximum((values - before) / (wanted - before), 0) | cut off at 0
squares | returns ((values - before) / (wanted - before)) ** 2 | are squares
in reverse | returns ((values - before) / (wanted - before))[::-1] | stand in the reverse
a mean | returns (values - before) / (wanted - before) / len(own) | the number of positions
into the own run | own.copy() → own | it writes into its argument
a number | returns ((values - before) / (wanted - before)).sum() | array
a column | returns ((values - before) / (wanted - before))[:, None] | a number for each position
[circuits]
no scale | / np.sqrt(D) → | lack the scale
by D | / np.sqrt(D) → / D | divided by D
multiplied | / np.sqrt(D) → * np.sqrt(D) | multiplied by √D
the root of C | / np.sqrt(D) → / np.sqrt(len(query)) | the root of C
all heads' width | / np.sqrt(D) → / np.sqrt(query.shape[1]) | all heads' width
keys on the left | query[:, part] @ key[:, part].T → key[:, part] @ query[:, part].T | keys on the left
all heads' scores | query[:, part] @ key[:, part].T → query @ key.T | QK circuits are that of all heads
columns apart
    query[:, part] @ key[:, part].T → query[:, h::num_heads] @ key[:, h::num_heads].T
    QK circuits have heads whose columns lie apart
queries apart | query[:, part] → query[:, h::num_heads] | queries whose columns
the next head's keys | key[:, part] → np.roll(key, -D, axis=1)[:, part] | keys of the next head
the keys before | key[:, part] → np.roll(key, D, axis=1)[:, part] | keys of the head before
the first keys | key[:, part] → key[:, :D] | keys of the first head
the first queries | query[:, part] → query[:, :D] | queries of the first head
the first scores | returns np.stack(qk[:1] * num_heads), np.stack(ov) | QK circuits are all that of the first
queries twice | key[:, part] → query[:, part] | queries with queries
keys twice | query[:, part] → key[:, part] | keys with keys
values for keys | key[:, part] → value[:, part] | values in place of the keys
values for queries | query[:, part] @ → value[:, part] @ | values in place of the queries
scores in reverse | returns np.stack(qk[::-1]), np.stack(ov) | QK circuits have the heads in the reverse
a softmax
    returns np.exp(np.stack(qk)) / np.exp(np.stack(qk)).sum(axis=-1, keepdims=True), np.stack(ov)
    a softmax
by their norm | returns np.stack([each / norm(each) for each in qk]), np.stack(ov) | by their norm
with its transpose | returns np.stack([each + each.T for each in qk]), np.stack(ov) | with its transpose
minus scores | returns -np.stack(qk), np.stack(ov) | QK circuits have the wrong sign
values scaled | ov.append(value[:, part] @ output[part]) → ov.append(value[:, part] @ output[part] / np.sqrt(D))
    values have none
transposed | returns np.stack(qk), np.stack(ov).swapaxes(1, 2) | vectors are rows, x @ OV
all heads' values | value[:, part] @ output[part] → value @ output | OV circuits are that of all heads
both apart | value[:, part] @ output[part] → value[:, h::num_heads] @ output[h::num_heads] | whose columns and rows
values apart | value[:, part] → value[:, h::num_heads] | values whose columns
rows apart | output[part] → output[h::num_heads] | that lie apart: a head's rows
the next rows | output[part] → np.roll(output, -D, axis=0)[part] | the rows of the next head
the rows before | output[part] → np.roll(output, D, axis=0)[part] | the rows of the head before
the first rows | output[part] → output[:D] | the first rows of
the first values | value[:, part] → value[:, :D] | the first head's values
the first values and rows | returns np.stack(qk), np.stack(ov[:1] * num_heads) | OV circuits are all that of the first
keys for values | value[:, part] → key[:, part] | keys in place of the values
queries for values | value[:, part] → query[:, part] | queries in place of the values
values twice | output[part] → value[:, part].T | values on both sides
output twice | value[:, part] @ → output[part].T @ | on both sides
values in reverse | returns np.stack(qk), np.stack(ov[::-1]) | OV circuits have the heads in the reverse
by the heads | returns np.stack(qk), np.stack(ov) / num_heads | heads are added
with the stream | returns np.stack(qk), np.stack(ov) + np.eye(len(value)) | what passes by
minus values | returns np.stack(qk), -np.stack(ov) | OV circuits have the wrong sign
exchanged | returns np.stack(ov), np.stack(qk) | are exchanged
heads last | returns np.stack(qk, axis=-1), np.stack(ov) | heads come first
one for all | returns sum(qk), np.stack(ov) | head has its own
as wide as a head | returns _heads(query, num_heads).swapaxes(1, 2) @ _heads(key, num_heads), np.stack(ov)
    and not D
one array | returns np.stack(qk) | it must return 2 arrays
[key_composition]
by queries | reads @ writes.T → writes @ reads | those of queries
no transpose | reads @ writes.T → reads @ writes | lack the transpose
inputs of the earlier | reads @ writes.T → writes.T @ reads | the earlier head's inputs
not divided | / (np.linalg.norm(reads) * np.linalg.norm(writes)) → | not divided
the later one alone | (np.linalg.norm(reads) * np.linalg.norm(writes)) → np.linalg.norm(reads) | later head's circuit
the earlier one alone | (np.linalg.norm(reads) * np.linalg.norm(writes)) → np.linalg.norm(writes)
    earlier head's circuit alone
a sum of norms | np.linalg.norm(reads) * np.linalg.norm(writes) → np.linalg.norm(reads) + np.linalg.norm(writes)
    by the sum of the norms
a root of norms | (np.linalg.norm(reads) * np.linalg.norm(writes)) → np.sqrt(norm(reads) * norm(writes))
    the root of the norms' product
squares of norms | (np.linalg.norm(reads) * np.linalg.norm(writes)) → (norm(reads) * norm(writes)) ** 2
    the squares of the norms
squares | returns scores**2 | are squares
roots | returns np.sqrt(scores) | are roots
singular values | np.linalg.norm(product) → np.linalg.norm(product, 2) | the largest singular value
spectral norms | returns _pairs(qk, ov, lambda r, w: norm(r @ w.T, 2) / norm(r, 2) / norm(w, 2)) | spectral norms
sums of sizes | returns _pairs(qk, ov, lambda r, w: abs(r @ w.T).sum() / abs(r).sum() / abs(w).sum()) | sums of sizes
the largest | returns _pairs(qk, ov, lambda r, w: abs(r @ w.T).max() / abs(r).max() / abs(w).max()) | the largest number
the trace | np.linalg.norm(product) → np.trace(product) | the trace
elementwise | reads @ writes.T → reads * writes | elementwise
less than random | returns scores - qk.shape[-1] ** -0.5 | less 1/√C
against random | returns scores * qk.shape[-1] ** 0.5 | multiples of 1/√C
rows add up | returns scores / scores.sum(axis=1, keepdims=True) | for each later head
columns add up | returns scores / scores.sum(axis=0) | for each earlier head
one norm of the later | np.linalg.norm(reads) → np.linalg.norm(qk) | all later heads
one norm of the earlier | np.linalg.norm(writes) → np.linalg.norm(ov) | all earlier heads
later in reverse | returns scores[::-1] | the later heads in the reverse
earlier in reverse | returns scores[:, ::-1] | the earlier heads in the reverse
a mean | returns 0 * scores + scores.mean(axis=0) | the mean of the later heads
transposed | returns scores.T | rows are later heads
"""
