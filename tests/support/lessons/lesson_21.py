"""Answers to lesson 21: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from minitransformer.models import IGNORED
from minitransformer.ops import cross_entropy_backward, cross_entropy_forward, softmax_forward


def _masked_by_sorting(ids, mask_id, rng):
    is_word = (ids >= 3) & (ids < mask_id)
    order = np.argsort(np.where(is_word, rng.random(ids.shape), 2.0), axis=1)
    hidden, targets = ids.copy(), np.full(ids.shape, -100)
    for row, count in enumerate(is_word.sum(axis=1)):
        chosen = order[row, : max(1, int(0.15 * count + 0.5))]
        targets[row, chosen] = ids[row, chosen]
        fates = rng.choice(3, size=len(chosen), p=[0.8, 0.1, 0.1])
        hidden[row, chosen[fates == 0]] = mask_id
        hidden[row, chosen[fates == 1]] = rng.integers(3, mask_id, (fates == 1).sum())
    return hidden, targets


def _masked_by_shuffling(ids, mask_id, rng):
    hidden, targets = np.array(ids), np.full_like(ids, IGNORED)
    words = np.arange(3, mask_id)
    for row in range(len(ids)):
        places = [t for t, token in enumerate(ids[row]) if 3 <= token < mask_id]
        rng.shuffle(places)
        for place in places[: max(1, round(len(places) * 0.15))]:
            targets[row, place] = ids[row, place]
            hidden[row, place] = rng.choice([mask_id, rng.choice(words), ids[row, place]], p=[0.8, 0.1, 0.1])
    return hidden, targets


def _loss_over_all_rows(dloss, hidden, table, targets):
    count = max(1, (targets != IGNORED).sum())
    dlogits = softmax_forward(hidden @ table.T)[0]  # (B, T, V)
    dlogits -= np.eye(len(table))[np.where(targets == IGNORED, 0, targets)]
    dlogits *= dloss * (targets != IGNORED)[..., None] / count
    return dlogits @ table, np.tensordot(dlogits, hidden, axes=((0, 1), (0, 1)))


def _head_by_einsum(dlogits, hidden, w_pool, b_pool, w_class):
    pooled = np.tanh(np.einsum("bc,cd->bd", hidden[:, 0], w_pool) + b_pool)
    dz = np.einsum("bk,ck->bc", dlogits, w_class) * (1 + pooled) * (1 - pooled)
    is_first = np.arange(hidden.shape[1]) == 0
    dhidden = np.einsum("bd,cd,t->btc", dz, w_pool, is_first)
    return (
        dhidden,
        np.einsum("bc,bd->cd", hidden[:, 0], dz),
        dz.sum(0),
        np.einsum("bc,bk->ck", pooled, dlogits),
        dlogits.sum(0),
    )


def _bernoulli(ids, mask_id, rng):
    chosen = (rng.random(ids.shape) < 0.15) & (ids > 2) & (ids < mask_id)
    chosen[:, 1] = True  # so that each row has one
    return np.where(chosen, mask_id, ids), np.where(chosen, ids, IGNORED)


def _divided(ids, mask_id, rng):
    hidden, (_, targets) = ids.copy(), _masked_by_shuffling(ids, mask_id, rng)
    places = rng.permutation(np.argwhere(targets != IGNORED)).T
    masked, replaced, _ = np.split(places, [int(0.8 * places.shape[1]), int(0.9 * places.shape[1])], axis=1)
    hidden[tuple(masked)] = mask_id
    hidden[tuple(replaced)] = rng.integers(3, mask_id, replaced.shape[1])
    return hidden, targets


def _equal_targets_once(dloss, hidden, table, targets):
    places = np.nonzero(targets != IGNORED)
    rows, words, share = hidden[places], targets[places], dloss / max(1, len(places[0]))
    p = softmax_forward(rows @ table.T)[0]
    dhidden, dtable = np.zeros_like(hidden), share * p.T @ rows
    dhidden[places] = share * (p @ table - table[words])
    dtable[words] -= share * rows
    return dhidden, dtable


def _without_ignoring(dloss, hidden, table, targets):
    _, cache = cross_entropy_forward(hidden @ table.T, np.where(targets == IGNORED, 0, targets))
    dlogits = cross_entropy_backward(dloss, cache)
    return dlogits @ table, np.einsum("btv,btc->vc", dlogits, hidden)


RIGHT = {
    "mask_batch": [_masked_by_sorting, _masked_by_shuffling],
    "masked_loss_backward": [_loss_over_all_rows],
    "class_head_backward": [_head_by_einsum],
}


MISTAKES = r"""
[mask_batch]
a coin for each word | is _bernoulli | do not toss a coin for each
special tokens too | (tokens > 2) & (tokens < mask_id) → tokens > 0 | [CLS] or [SEP] is among the targets
padding too | (tokens > 2) & (tokens < mask_id) → tokens > -1 | padding is among the targets
rounded down | round(0.15 * len(words)) → int(0.15 * len(words)) | to the nearest whole number, not down
none in short rows | max(1, round(0.15 * len(words))) → round(0.15 * len(words)) | has no target
15 % of the row with its padding
    max(1, round(0.15 * len(words))) → min(len(words), round(0.15 * len(tokens)))
    padding is not among them
15 % with the marks | 0.15 * len(words) → 0.15 * (len(words) + 2) | [CLS] and [SEP] are not among them
twice the same | count, replace=False → count | choose so many different places
the target is read after masking
    targets[row, place] = tokens[place] → pass
    hidden[row, place] = rng.integers(3, mask_id) →
        hidden[row, place] = rng.integers(3, mask_id)\n            targets[row, place] = hidden[row, place]
    a target is the mask itself
always the mask | dice < 0.8 → dice < 2 | one in ten becomes a random word
none stays | elif dice < 0.9 → else | 80 %, 10 % and 10 % are wanted
ten of the remaining | elif dice < 0.9 → elif rng.random() < 0.1 | 2 % another word
the mask may be drawn | rng.integers(3, mask_id) → rng.integers(3, mask_id + 1) | rng.integers leaves out its end
any id at random | rng.integers(3, mask_id) → rng.integers(0, mask_id) | which is no word
always one word | rng.integers(3, mask_id) → 3 | each replaced target gets a word of its own
the first words | rng.choice(words, count, replace=False) → words[:count] | the same places are chosen in every row
a generator of its own | dice = rng.random() → dice = np.random.random() | all that is random must come from rng
seeded anew
    hidden, targets = ids → rng = np.random.default_rng(0)\n    hidden, targets = ids
    choose the same places: each batch is to be masked anew
a span
    rng.choice(words, count, replace=False) → np.roll(words, rng.integers(len(words)))[:count]
    are chosen together in
the batch is divided | is _divided | in a batch of one row always 2 of the 3
what changed is a target | returns answer[0], np.where(answer[0] != ids, ids, IGNORED) | whose word stays are missing
the first word is special | tokens > 2 → tokens > 3 | word 3 is never a target
words of the sentence | rng.integers(3, mask_id) → rng.choice(tokens[words]) | also one that no row of ids has
never the same word
    rng.integers(3, mask_id) → rng.choice(np.setdiff1d(np.arange(3, mask_id), tokens[place]))
    never gets the one that stood there
one word for a row
    hidden[row, place] = rng.integers(3, mask_id) → hidden[row, place] = other
    row, tokens in enumerate(ids): → row, tokens in enumerate(ids):\n        other = rng.integers(3, mask_id)
    always get the same one
never the first word
    rng.choice(words, count → rng.choice(words[len(words) > 9 :], count
    word 1 of 20 is chosen in 0 %
the other order | returns answer[1], answer[0] | in the other order
zero where nothing is asked | np.full_like(ids, IGNORED) → np.zeros_like(ids) | is nowhere -100
the dice once a row
    dice = rng.random() → pass
    row, tokens in enumerate(ids): → row, tokens in enumerate(ids):\n        dice = rng.random()
    throw the dice for each target
[masked_loss_backward]
hidden itself | dhidden[chosen] = dlogits @ table → dhidden[chosen] = rows | has hidden's own rows
the other order | returns answer[1], answer[0] | in the other order
rows alone | returns dlogits @ table, answer[1] | the rows of the chosen places go back
at the first places | dhidden[chosen] = → dhidden.reshape(len(chosen.ravel()), -1)[: len(rows)] = | at the first places
every place counts | is _without_ignoring | at 7 places without a target
a mean over all places | (dloss, cache) → (dloss * len(rows) / targets.size, cache) | the mean over all places
a mean over the sentences | (dloss, cache) → (dloss * len(rows) / len(targets), cache) | the mean over the sentences
a sum | (dloss, cache) → (dloss * len(rows), cache) | the loss is their mean
divided twice | (dloss, cache) → (dloss / max(1, len(rows)), cache) | twice
dloss is forgotten | (dloss, cache) → (1.0, cache) | is dloss used?
only the targets' words
    returns dhidden, dlogits.T @ rows * np.isin(np.arange(len(table)), targets)[:, None]
    for every word that is no target
word 0 is not asked | targets != IGNORED → targets > 0 | where the target is word 0
equal targets once | is _equal_targets_once | of two places with the same target
the sign | returns -answer[0], answer[1] | has the wrong sign
dtable with the wrong rows
    dlogits.T @ rows → dlogits.T @ hidden.reshape(-1, table.shape[1])[: len(rows)]
    dtable is wrong in
smoothed | (rows @ table.T, targets[chosen]) → (rows @ table.T, targets[chosen], 0.1) | dhidden is wrong in
0/0 | returns answer[0] / len(rows) * len(rows), answer[1] | where nothing is asked at all
[class_head_backward]
the head fed with the first token | pooled.T @ dlogits → first.T @ dlogits | with what has not been pooled
dw_pool without the slope | first.T @ dz → first.T @ dpooled | dw_pool is made without the slope
the tanh is forgotten | dpooled * (1 - pooled**2) → dpooled | without the tanh's slope
no square | (1 - pooled**2) → (1 - pooled) | is the square missing?
a plus | (1 - pooled**2) → (1 + pooled**2) | 1 + tanh² in place
the slope of what came in | (1 - pooled**2) → (1 - (first @ w_pool + b_pool)**2) | with z before the tanh
tanh twice | (1 - pooled**2) → (1 - np.tanh(pooled)**2) | p is a tanh already
tanh of the gradient | dz = dpooled * (1 - pooled**2) → dz = np.tanh(dpooled) | the tanh of the gradient
the first token alone | returns dz @ w_pool.T, *answer[1:] | zeros but for the first token
to every token | dhidden[:, 0] = dz @ w_pool.T → dhidden[:] = (dz @ w_pool.T)[:, None] | the head reads [CLS] alone
to the last token | dhidden[:, 0] = dz → dhidden[:, -1] = dz | [CLS] stands first
never put back | dhidden[:, 0] = dz @ w_pool.T → pass | is 0 everywhere
not transposed | dz @ w_pool.T → dz @ w_pool | with its transpose
what came out | first.T @ dz → pooled.T @ dz | made with what came out of the pooler
the class's weight from z | pooled.T @ dlogits → (first @ w_pool + b_pool).T @ dlogits | before the tanh
biases not summed | dz.sum(axis=0) → dz | is it summed over the texts?
the classes first | returns answer[0], *answer[3:], *answer[1:3] | returned in another order
biases by means | dlogits.sum(axis=0) → dlogits.mean(axis=0) | db_class is 0.5 times
no bias in the forward | np.tanh(first @ w_pool + b_pool) → np.tanh(first @ w_pool) | is made without b_pool
transposed weights | returns answer[0], answer[1], answer[2], answer[3].T, answer[4] | that of its weight
"""
