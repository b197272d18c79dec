"""Answers to lesson 10: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _words(weights, target_words, source_words, columns=lambda part: part.sum(axis=1), rows=np.mean):
    merged = [columns(weights[:, source_words == k]) for k in range(source_words.max() + 1)]
    merged = np.stack(merged, axis=1)  # (Tq, Wk)
    return np.stack([rows(merged[target_words == q], axis=0) for q in range(target_words.max() + 1)])


def _added_once(weights, target_words, source_words, columns=False, rows=False):
    """`+=` with repeated numbers, which adds only once, for columns or rows."""
    of_source, of_target = (np.eye(words.max() + 1)[words] for words in (source_words, target_words))
    token_map = weights @ of_source  # (Tq, Wk)
    if columns:
        token_map[...] = 0
        token_map[:, source_words] += weights
    merged = of_target.T @ token_map
    if rows:
        merged[...] = 0
        merged[target_words] += token_map
    return merged / np.bincount(target_words)[:, None]


def _first_and_last(part):
    return part[:, 0] + (part[:, -1] if part.shape[1] > 1 else 0)


def _by_number(wrong, has, lengths):
    rates = np.array([wrong[lengths == length].mean() for length in np.unique(lengths)])
    return (wrong - rates[lengths - lengths.min()]) @ has / has.sum(axis=0)


def _against_others(wrong, has, lengths):
    surprise = np.zeros(has.shape)
    for i, k in zip(*np.nonzero(has), strict=True):
        others = wrong[(lengths == lengths[i]) & ~has[:, k]]
        surprise[i, k] = wrong[i] - np.divide(others.sum(), len(others))
    return surprise.sum(axis=0) / has.sum(axis=0)


def _map_by_add_at(weights, target_words, source_words):
    merged = np.zeros((max(target_words) + 1, max(source_words) + 1))
    np.add.at(merged, np.ix_(target_words, source_words), weights)
    return merged / np.bincount(target_words)[:, None]


def _excess_by_bincount(wrong, has, lengths):
    rates = np.bincount(lengths, weights=wrong) / np.maximum(np.bincount(lengths), 1)
    return np.where(has, (wrong - rates[lengths])[:, None], 0).sum(axis=0) / has.sum(axis=0)


RIGHT = {
    "spread": [
        lambda weights: 2 ** -np.sum(weights * np.log2(np.where(weights > 0, weights, 1)), axis=-1),
        lambda weights: np.exp(-np.sum(weights * np.log(weights + 1e-12), axis=-1)),
        lambda weights: np.prod(np.where(weights > 0, weights, 1) ** -weights, axis=-1).astype(np.float32),
    ],
    "word_map": [_map_by_add_at],
    "excess_errors": [_excess_by_bincount],
}


MISTAKES = r"""
[spread]
all of it squared | returns np.exp(2 * entropy) | which is 8: the exponential
0 · log 0 | np.log(safe) → np.log(weights) | 0 · log 0 counts as 0
the entropy | returns entropy | that is the entropy itself
over everything | returns answer.mean() | one number for each row
over queries | axis=-1) → axis=-2) | must return (2, 3)
the sign | returns np.exp(-entropy) | share the weight evenly, the spread
two bases | returns 2**entropy | if the logarithm is of base 2, so is the exponential
a small number added | np.log(safe) → np.log(weights + 1e-6) | a number added inside the logarithm
a list | returns answer.tolist() | an array, not list
two axes | axis=-1 → axis=min(weights.ndim - 1, 2) | has shape (2, 1, 4, 5)
the share of the largest | returns 1 / weights.max(axis=-1) | for random weights
the sum of squares | returns 1 / (weights ** 2).sum(axis=-1) | 1 / Σ p², another measure
a row in an array | returns np.atleast_1d(answer) | for a row alone
the keys with weight | returns 1.0 * (weights > 0).sum(axis=-1) | the number of keys with any weight
[word_map]
columns averaged | returns answer / np.bincount(source_words) | and must sum to 1
rows summed | returns merged | sums to 2
renormalised
    returns (m := answer / np.bincount(source_words)) / m.sum(axis=1, keepdims=True) | a source token cut in two
the last token's row | returns _words(weights, target_words, source_words, rows=lambda part, axis: part[-1]) | at (1,
transposed | returns answer.T | must give shape (2, 3)
the middle row | returns _words(weights, target_words, source_words, rows=np.median) | has three tokens
columns added once
    returns _added_once(weights, target_words, source_words, columns=True) | `merged[:, words] += …` adds
rows added once | returns _added_once(weights, target_words, source_words, rows=True) | `merged[words] += …` adds
the first column and the last
    returns _words(weights, target_words, source_words, _first_and_last) | a source word has three
a list | returns answer.tolist() | an array, not list
the largest of the rows
    returns _words(weights, target_words, source_words, rows=np.max) | even where every source token
[excess_errors]
the size of the surprise | wrong - expected → abs(wrong - expected) | the mean size of wrong
plain rates | surprise = wrong - expected → surprise = 1.0 * wrong | the plain error rate
without a sign | surprise[column].mean() → abs(surprise[column].mean()) | fewer errors than its length
a sum | surprise[column].mean() → surprise[column].sum() | the blame doubles
over all sentences
    surprise[column].mean() → surprise[column].sum() / len(wrong) | where a construction itself causes errors
a list | returns [surprise[column].mean() for column in has.T] | an array, not list
shares of the blame | surprise[column].mean() → surprise[column].sum() / has.sum() | each is judged by itself
logical or | returns wrong @ has / has.sum(axis=0) | is no sum
with against without
    returns np.array([wrong[c].mean() - (wrong[~c].mean() if (~c).any() else wrong[c].mean()) for c in has.T])
    compared with sentences of the same length
against those without it | is _against_others | are among them
up to 29 words | np.unique(lengths) → np.unique(lengths[lengths < 30]) | no sentence, the excess
a rate for each number | is _by_number | where some lengths have no sentence, it raises IndexError
"""
