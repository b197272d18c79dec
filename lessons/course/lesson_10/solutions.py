"""Solutions of lesson 10."""

import numpy as np


def spread(weights):
    safe = np.where(weights > 0, weights, 1)  # log 1 = 0
    entropy = -np.sum(weights * np.log(safe), axis=-1)
    return np.exp(entropy)


def word_map(weights, target_words, source_words):
    merged = np.zeros((target_words.max() + 1, source_words.max() + 1))
    for q, target in enumerate(target_words):
        for k, source in enumerate(source_words):
            merged[target, source] += weights[q, k]
    return merged / np.bincount(target_words)[:, None]


def excess_errors(wrong, has, lengths):
    expected = np.zeros(len(wrong))
    for length in np.unique(lengths):
        expected[lengths == length] = wrong[lengths == length].mean()
    surprise = wrong - expected  # (N,)
    return np.array([surprise[column].mean() for column in has.T])
