"""Plausible wrong answers to lesson 02, each with words of the hint it must get."""

from itertools import pairwise

import numpy as np

from minitransformer.data.bpe import merge_pair


def _only_the_first(symbols, pair, new):
    for i, two in enumerate(pairwise(symbols)):
        if two == pair:
            return [*symbols[:i], new, *symbols[i + 2 :]]
    return list(symbols)


def _overlapping(symbols, pair, new):
    merged, last = [], None
    for i, symbol in enumerate(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            merged.append(new)
        elif last != pair:
            merged.append(symbol)
        last = tuple(symbols[i : i + 2])
    return merged


def _from_the_right(symbols, pair, new):
    return merge_pair(list(symbols)[::-1], pair[::-1], new)[::-1]


def _last_symbol_lost(symbols, pair, new):
    merged, skip = [], False
    for two in pairwise(symbols):
        if skip:
            skip = False
        elif two == pair:
            merged.append(new)
            skip = True
        else:
            merged.append(two[0])
    return merged


def _by_letters(symbols, pair, new):
    if isinstance(new, int):
        return merge_pair(list(symbols), pair, new)
    text = " ".join(symbols).replace(" ".join(pair), new).split(" ")
    joined = "".join(symbols)
    return [new] if joined == new else [s for s in text if s]


def _skips_one_too_many(symbols, pair, new):
    merged, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            merged.append(new)
            i += 3
        else:
            merged.append(symbols[i])
            i += 1
    return merged


def _in_place(symbols, pair, new):
    i = 0
    while i < len(symbols) - 1:
        if tuple(symbols[i : i + 2]) == pair:
            symbols[i : i + 2] = [new]
        i += 1
    return symbols


def _pieces(word, characters, fallback):
    ids = []
    for character in word:
        ids += [characters[character]] if character in characters else fallback(character)
    return ids


def _utf8(character):
    return [3 + byte for byte in character.encode("utf-8")]


def _merged(ids, merges, choose):
    while candidates := [pair for pair in pairwise(ids) if pair in merges]:
        pair = choose(candidates)
        ids = merge_pair(ids, pair, merges[pair])
    return ids


def _right(word, characters, merges, fallback=_utf8):
    return _merged(_pieces(word, characters, fallback), merges, lambda pairs: min(pairs, key=lambda p: merges[p]))


def _leftmost(word, characters, merges):
    return _merged(_pieces(word, characters, _utf8), merges, lambda pairs: pairs[0])


def _one_round(word, characters, merges):
    ids = _pieces(word, characters, _utf8)
    for pair in sorted({pair for pair in pairwise(ids) if pair in merges}, key=lambda pair: merges[pair]):
        ids = merge_pair(ids, pair, merges[pair])
    return ids


def _overwrites(dy, ids, num_rows):
    dtable = np.zeros((num_rows, dy.shape[-1]))
    dtable[ids] += dy
    return dtable


def _averages(dy, ids, num_rows):
    dtable, count = np.zeros((num_rows, dy.shape[-1])), np.zeros((num_rows, 1))
    np.add.at(dtable, ids, dy)
    np.add.at(count, ids, 1)
    return dtable / np.maximum(count, 1)


def _over_the_batch(dy, ids, num_rows):
    dtable = np.zeros((num_rows, dy.shape[-1]))
    np.add.at(dtable, ids, dy)
    return dtable / len(ids)


def _only_rows_used(dy, ids, num_rows):
    dtable = np.zeros((ids.max() + 1, dy.shape[-1]))
    np.add.at(dtable, ids, dy)
    return dtable


def _off_by_one(dy, ids, num_rows):
    dtable = np.zeros((num_rows, dy.shape[-1]))
    np.add.at(dtable, ids + 1, dy)
    return dtable


WRONG = {
    "merge": {
        "only the first": (_only_the_first, "every occurrence"),
        "overlapping": (_overlapping, "no symbol is used twice"),
        "from the right": (_from_the_right, "from left to right"),
        "the last symbol is lost": (_last_symbol_lost, "has no pair (e, s) and must stay as it is"),
        "letters, not symbols": (_by_letters, "though the letters do"),
        "skips one too many": (_skips_one_too_many, "must give n e w es t"),
        "in place": (_in_place, "writes into its argument symbols"),
        "a string": (lambda symbols, pair, new: "".join(map(str, symbols)), "must return a list"),
    },
    "encode": {
        "unknown ones are dropped": (lambda w, c, m: _right(w, c, m, lambda x: []), "an unknown character is lost"),
        "code points": (lambda w, c, m: _right(w, c, m, lambda x: [3 + ord(x)]), "comes back as the bytes"),
        "bytes without their offset": (lambda w, c, m: _right(w, c, m, lambda x: [*x.encode()]), "in UTF-8 it is"),
        "another offset": (lambda w, c, m: _right(w, c, m, lambda x: [259 + b for b in x.encode()]), "no byte"),
        "no merges": (lambda w, c, m: _pieces(w, c, _utf8), "no merge is made"),
        "leftmost first": (_leftmost, "is older: it goes first"),
        "one round": (_one_round, "go on until none"),
        "one id for all": (lambda w, c, m: [c.get(x, 0) for x in w], "is the id of no byte"),
    },
    "embedding_backward": {
        "repeated ids are lost": (_overwrites, "they must add"),
        "averaged": (_averages, "add, do not average"),
        "divided by the batch": (_over_the_batch, "is 0.5 times what it should be"),
        "only the rows in use": (_only_rows_used, "looked up or not"),
        "off by one": (_off_by_one, "never looked up"),
    },
}
