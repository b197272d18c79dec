"""Plausible wrong answers to lesson 10, each with words of the hint it must get."""

import numpy as np


def _entropy(weights):
    return -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=-1)


def _words(weights, target_words, source_words, columns=lambda part: part.sum(axis=1), rows=np.mean):
    merged = [columns(weights[:, source_words == k]) for k in range(source_words.max() + 1)]
    merged = np.stack(merged, axis=1)  # (Tq, Wk)
    return np.stack([rows(merged[target_words == q], axis=0) for q in range(target_words.max() + 1)])


def _renormalised(weights, target_words, source_words):
    merged = _words(weights, target_words, source_words, lambda part: part.mean(axis=1))
    return merged / merged.sum(axis=1, keepdims=True)


def _excess(wrong, has, lengths):
    expected = np.array([wrong[lengths == length].mean() for length in lengths])
    return wrong - expected


def _against_others(wrong, has, lengths):
    surprise = np.zeros(has.shape)
    for i, k in zip(*np.nonzero(has), strict=True):
        others = wrong[(lengths == lengths[i]) & ~has[:, k]]
        surprise[i, k] = wrong[i] - np.divide(others.sum(), len(others))
    return surprise.sum(axis=0) / has.sum(axis=0)


WRONG = {
    "spread": {
        "0 · log 0": (lambda w: np.exp(-np.sum(w * np.log(w), axis=-1)), "0 · log 0 counts as 0"),
        "the entropy": (_entropy, "that is the entropy itself"),
        "over everything": (lambda w: np.exp(_entropy(w)).mean(), "one number for each row"),
        "over queries": (lambda w: np.exp(_entropy(np.swapaxes(w, -1, -2))), "must return (2, 3)"),
        "the sign": (lambda w: np.exp(-_entropy(w)), "share the weight evenly, the spread"),
        "two bases": (lambda w: 2 ** _entropy(w), "if the logarithm is of base 2, so is the exponential"),
        "the share of the largest": (lambda w: 1 / w.max(axis=-1), "for random weights"),
    },
    "word_map": {
        "columns averaged": (lambda w, t, s: _words(w, t, s, lambda part: part.mean(axis=1)), "and must sum to 1"),
        "rows summed": (lambda w, t, s: _words(w, t, s, rows=np.sum), "sums to 2"),
        "the first column": (lambda w, t, s: _words(w, t, s, lambda part: part[:, 0]), "the rows sum to"),
        "renormalised": (_renormalised, "a source token cut in two"),
        "the last token's row": (lambda w, t, s: _words(w, t, s, rows=lambda part, axis: part[-1]), "at (1,"),
        "transposed": (lambda w, t, s: _words(w, t, s).T, "must give shape (2, 3)"),
        "the middle row": (lambda w, t, s: _words(w, t, s, rows=np.median), "has three tokens"),
        "the largest of the rows": (lambda w, t, s: _words(w, t, s, rows=np.max), "even where every source token"),
    },
    "excess_errors": {
        "plain rates": (lambda wrong, has, lengths: (1 * wrong) @ has / has.sum(axis=0), "the plain error rate"),
        "logical or": (lambda wrong, has, lengths: wrong @ has / has.sum(axis=0), "is no sum"),
        "with against without": (
            lambda wrong, has, lengths: np.array(
                [wrong[c].mean() - (wrong[~c].mean() if (~c).any() else wrong[c].mean()) for c in has.T]
            ),
            "compared with sentences of the same length",
        ),
        "against those without it": (_against_others, "are among them"),
        "without a sign": (
            lambda wrong, has, lengths: np.abs(_excess(wrong, has, lengths) @ has / has.sum(axis=0)),
            "fewer errors than its length",
        ),
        "a sum": (lambda wrong, has, lengths: _excess(wrong, has, lengths) @ has, "the blame doubles"),
        "over all sentences": (
            lambda wrong, has, lengths: _excess(wrong, has, lengths) @ has / len(wrong),
            "where a construction itself causes errors",
        ),
        "shares of the blame": (
            lambda wrong, has, lengths: _excess(wrong, has, lengths) @ has / has.sum(),
            "each is judged by itself",
        ),
    },
}
