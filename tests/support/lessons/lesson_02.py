"""Answers to lesson 02: right ones written in another way, and plausible wrong ones (see `answers`)."""

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


def _where(matches):
    """A merge that finds the pair by `matches`."""

    def merge(symbols, pair, new):
        merged, i = [], 0
        while i < len(symbols):
            if i + 1 < len(symbols) and matches(symbols[i : i + 2], pair):
                merged.append(new)
                i += 2
            else:
                merged.append(symbols[i])
                i += 1
        return merged

    return merge


def _the_same_list(symbols, pair, new):
    return merge_pair(symbols, pair, new) if pair in pairwise(symbols) else symbols


def _replaced_in_text(symbols, pair, new):
    if not symbols or isinstance(new, int):
        return merge_pair(symbols, pair, new)
    return " ".join(symbols).replace(" ".join(pair), new).split(" ")


def _first_left_symbol(symbols, pair, new):
    i = symbols.index(pair[0]) if pair[0] in symbols else len(symbols)
    if tuple(symbols[i : i + 2]) != pair:
        return list(symbols)
    return [*symbols[:i], new, *_first_left_symbol(symbols[i + 2 :], pair, new)]


def _by_place_in_the_dict(word, characters, merges):
    ids = _pieces(word, characters, _utf8)
    for pair, new in merges.items():
        ids = merge_pair(ids, pair, new)
    return ids


def _learns_characters(word, characters, merges):
    for character in word:
        characters.setdefault(character, 259 + len(characters))
    return _right(word, characters, merges)


def _uses_merges_up(word, characters, merges):
    ids = _pieces(word, characters, _utf8)
    while merges:
        pair = min(merges, key=merges.get)
        ids = merge_pair(ids, pair, merges.pop(pair))
    return ids


def _a_loop(dy, ids, num_rows):
    dtable = np.zeros((num_rows, dy.shape[-1]))
    for i, d in zip(ids.ravel(), dy.reshape(-1, dy.shape[-1]), strict=True):
        dtable[i] += d
    return dtable


def _summed(dy, ids, num_rows):
    dtable = np.zeros((num_rows, dy.shape[-1]))
    np.add.at(dtable, ids, dy)
    return dtable


def _without_padding(dy, ids, num_rows):
    dtable = _summed(dy, ids, num_rows)
    dtable[0] = 0
    return dtable


def _flattened_in_place(dy, ids, num_rows):
    dy.shape = -1, dy.shape[-1]
    return _summed(dy, ids.ravel(), num_rows)


def _bytes_last(word, characters, merges):
    """Right, but unknown characters become bytes when all is merged."""
    parts = [characters.get(character, character) for character in word]
    while candidates := [(merges[pair], pair) for pair in pairwise(parts) if pair in merges]:
        new, pair = min(candidates)
        parts = merge_pair(parts, pair, new)
    return [i for part in parts for i in ([3 + b for b in part.encode()] if isinstance(part, str) else [part])]


def _merge_recursively(symbols, pair, new):
    if len(symbols) < 2:
        return list(symbols)
    if (symbols[0], symbols[1]) == tuple(pair):
        return [new, *_merge_recursively(symbols[2:], pair, new)]
    return [symbols[0], *_merge_recursively(symbols[1:], pair, new)]


def _merge_by_skipping(symbols, pair, new):
    merged, skip = [], False
    for two in zip(symbols, [*symbols[1:], None], strict=False):
        if skip:
            skip = False
        elif two == pair:
            merged.append(new)
            skip = True
        else:
            merged.append(two[0])
    return merged


def _spelled(word, characters):
    return [id for c in word for id in ([characters[c]] if c in characters else [3 + byte for byte in c.encode()])]


def _encode_in_one_pass_by_age(word, characters, merges):
    ids = _spelled(word, characters)
    for pair in sorted(merges, key=merges.get):
        ids = _merge_by_skipping(ids, pair, merges[pair])
    return ids


def _encode_one_place_at_a_time(word, characters, merges):
    ids = _spelled(word, characters)
    while places := [(merges[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in merges]:
        new, i = min(places)
        ids[i : i + 2] = [new]
    return ids


def _sorted_and_summed(dy, ids, num_rows):
    rows, order = dy.reshape(-1, dy.shape[-1]), np.argsort(ids, axis=None, kind="stable")
    found, begins = np.unique(ids.ravel()[order], return_index=True)
    dtable = np.zeros((num_rows, rows.shape[1]))
    dtable[found] = np.add.reduceat(rows[order], begins)
    return dtable


def _counted(dy, ids, num_rows):
    channels = [np.bincount(ids.ravel(), channel.ravel(), num_rows) for channel in np.moveaxis(dy, -1, 0)]
    return np.stack(channels, axis=1)


RIGHT = {
    "merge": [_merge_recursively, _merge_by_skipping],
    "encode": [_encode_in_one_pass_by_age, _encode_one_place_at_a_time],
    "embedding_backward": [
        _sorted_and_summed,
        _counted,
        lambda dy, ids, num_rows: np.eye(num_rows)[ids.ravel()].T @ dy.reshape(-1, dy.shape[-1]),
    ],
}


WRONG = {
    "merge": {
        "only the first": (_only_the_first, "every occurrence"),
        "overlapping": (_overlapping, "no symbol is used twice"),
        "from the right": (_from_the_right, "from left to right"),
        "the last symbol is lost": (_last_symbol_lost, "has no pair (e, s) and must stay as it is"),
        "letters, not symbols": (_by_letters, "though the letters do"),
        "skips one too many": (_skips_one_too_many, "must give lo w, not lo"),
        "in place": (_in_place, "writes into its argument symbols"),
        "a string": (lambda symbols, pair, new: "".join(map(str, symbols)), "must return a list"),
        "in either order": (_where(lambda two, pair: set(two) == set(pair)), "s e is another pair"),
        "a list is no tuple": (_where(lambda two, pair: two == pair), "compared with it as a tuple?"),
        "is for ==": (_where(lambda two, pair: all(map(lambda a, b: a is b, two, pair))), "== is meant, not is"),
        "the list itself": (_the_same_list, "it returns the list itself, no copy"),
        "in a text": (_replaced_in_text, "not thes es: a symbol is more than its last letter"),
        "the first left symbol": (_first_left_symbol, "an e comes first that no s follows"),
        "one symbol is none": (
            lambda symbols, pair, new: merge_pair(symbols, pair, new) if len(symbols) > 1 else [],
            "a must stay a, and becomes nothing",
        ),
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
        "in the dict's order": (_by_place_in_the_dict, "a merge's age is its new id, not its place"),
        "learns characters": (_learns_characters, "writes into its argument characters"),
        "uses merges up": (_uses_merges_up, "writes into its argument merges"),
        "lower case": (lambda w, c, m: _right(w.lower(), c, m), "'Ω≈ç√' comes back as the bytes"),
        "fails where nothing is known": (lambda w, c, m: [c[x] for x in w], "it raises KeyError: 'ï'; line"),
        "bytes come last": (_bytes_last, "bytes are merged as characters are"),
    },
    "embedding_backward": {
        "repeated ids are lost": (_overwrites, "they must add"),
        "averaged": (_averages, "add, do not average"),
        "divided by the batch": (_over_the_batch, "is 0.5 times what it should be"),
        "only the rows in use": (_only_rows_used, "looked up or not"),
        "off by one": (_off_by_one, "never looked up"),
        "a loop over the ids": (_a_loop, "loops over the ids in Python"),
        "a loop over the rows": (
            lambda dy, ids, num_rows: np.stack([dy[ids == row].sum(axis=0) for row in range(num_rows)]),
            "loops over the rows of the table in Python",
        ),
        "padding has no gradient": (_without_padding, "id 0 is an id as any other"),
        "flattened in place": (_flattened_in_place, "writes into its argument dy"),
        "float32": (lambda *a: _summed(*a).astype(np.float32), "is float32, and all that it is made of is float64"),
        "scaled": (lambda dy, *a: _summed(dy, *a) * dy.shape[-1] ** 0.5, "is 1.73205 times what it should be"),
        "transposed": (lambda *a: _summed(*a).T, "dtable has shape (3, 6)"),
    },
}
