"""Solutions of lesson 02."""

from itertools import pairwise

import numpy as np


def merge(symbols, pair, new):
    merged = []
    i = 0
    while i < len(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return merged


def encode(word, characters, merges):
    ids = []
    for character in word:
        if character in characters:
            ids.append(characters[character])
        else:
            ids.extend(3 + byte for byte in character.encode("utf-8"))
    while candidates := [pair for pair in pairwise(ids) if pair in merges]:
        oldest = min(candidates, key=merges.get)
        ids = merge(ids, oldest, merges[oldest])
    return ids


def embedding_backward(dy, ids, num_rows):
    dtable = np.zeros((num_rows, dy.shape[-1]), dy.dtype)
    np.add.at(dtable, ids, dy)
    return dtable
