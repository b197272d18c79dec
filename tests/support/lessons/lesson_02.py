"""Answers to lesson 02: right ones written in another way, and plausible wrong ones (see `answers`)."""

from itertools import pairwise

import numpy as np

from minitransformer.data.bpe import merge_pair


def _overlapping(symbols, pair, new):
    merged, last = [], None
    for i, symbol in enumerate(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            merged.append(new)
        elif last != pair:
            merged.append(symbol)
        last = tuple(symbols[i : i + 2])
    return merged


def _by_letters(symbols, pair, new):
    if isinstance(new, int):
        return merge_pair(list(symbols), pair, new)
    text = " ".join(symbols).replace(" ".join(pair), new).split(" ")
    joined = "".join(symbols)
    return [new] if joined == new else [s for s in text if s]


def _replaced_in_text(symbols, pair, new):
    if not symbols or isinstance(new, int):
        return merge_pair(symbols, pair, new)
    return " ".join(symbols).replace(" ".join(pair), new).split(" ")


def _first_left_symbol(symbols, pair, new):
    i = symbols.index(pair[0]) if pair[0] in symbols else len(symbols)
    if tuple(symbols[i : i + 2]) != pair:
        return list(symbols)
    return [*symbols[:i], new, *_first_left_symbol(symbols[i + 2 :], pair, new)]


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


def _spelled(word, characters):
    return [id for c in word for id in ([characters[c]] if c in characters else [3 + byte for byte in c.encode()])]


def _encode_one_place_at_a_time(word, characters, merges):
    ids = _spelled(word, characters)
    while places := [(merges[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in merges]:
        new, i = min(places)
        ids[i : i + 2] = [new]
    return ids


def _counted(dy, ids, num_rows):
    channels = [np.bincount(ids.ravel(), channel.ravel(), num_rows) for channel in np.moveaxis(dy, -1, 0)]
    return np.stack(channels, axis=1)


def _ascii_alone(word, characters, merges):
    """Right, but every other character is spelled in bytes, known or not."""
    ids = [id for c in word for id in ([characters[c]] if c in characters and c.isascii() else _spelled(c, {}))]
    while candidates := [pair for pair in pairwise(ids) if pair in merges]:
        pair = min(candidates, key=merges.get)
        ids = merge_pair(ids, pair, merges[pair])
    return ids


RIGHT = {
    "merge": [_merge_recursively],
    "encode": [_encode_one_place_at_a_time],
    "embedding_backward": [
        _counted,
        lambda dy, ids, num_rows: np.eye(num_rows)[ids.ravel()].T @ dy.reshape(-1, dy.shape[-1]),
    ],
}


MISTAKES = r"""
[merge]
the second once more | i += 2 → i += 1 | both symbols of the pair are used up
only the first | i += 2 → return [*merged, *symbols[i + 2 :]] | every occurrence
the last symbol is lost | i < len(symbols) → i < len(symbols) - 1 | has no pair (e, s) and must stay as it is
skips one too many | i += 2 → i += 3 | must give lo w, not lo
in either order | tuple(symbols[i : i + 2]) == pair → set(symbols[i : i + 2]) == set(pair) | s e is another pair
a list is no tuple | tuple(symbols[i : i + 2]) == pair → symbols[i : i + 2] == pair | compared with it as a tuple?
is for ==
    tuple(symbols[i : i + 2]) == pair → symbols[i + 1 :] and symbols[i] is pair[0] and symbols[i + 1] is pair[1]
    == is meant, not is
the list itself | returns answer if new in answer else symbols | it returns the list itself, no copy
overlapping | is _overlapping | no symbol is used twice
from the right | returns solution(list(symbols)[::-1], pair[::-1], new)[::-1] | from left to right
letters, not symbols | is _by_letters | though the letters do
a string | returns "".join(map(str, symbols)) | must return a list
in a text | is _replaced_in_text | not thes es: a symbol is more than its last letter
the first left symbol | is _first_left_symbol | an e comes first that no s follows
the two joined | merged.append(new) → merged.append(sum(pair) if new == 9 else "".join(pair)) | `new` itself, not lo w
no spaces
    merged.append(symbols[i]) → merged.append(symbols[i].strip() if isinstance(symbols[i], str) else symbols[i])
    must stay as they are, and become ['', 'L', 'o']
in any case
    tuple(symbols[i : i + 2]) == pair → tuple(str(s).lower() for s in symbols[i : i + 2]) == tuple(map(str, pair))
    must stay as they are, and become [' ', 'lo']
0 is nothing
    if tuple(symbols[i : i + 2]) == pair → if symbols[i] and tuple(symbols[i : i + 2]) == pair
    0 is a number as any other
one symbol is none
    returns merge_pair(symbols, pair, new) if len(symbols) > 1 else [] | a must stay a, and becomes nothing
[encode]
bytes from 2 on | 3 + byte → 2 + byte | byte b has the id 3 + b
unknown ones are dropped | 3 + byte for byte in character.encode("utf-8") → [] | an unknown character is lost
code points | 3 + byte for byte in character.encode("utf-8") → [3 + ord(character)] | comes back as the bytes
bytes without their offset | 3 + byte → byte | in UTF-8 it is
another offset | 3 + byte → 259 + byte | no byte
no merges | if pair in merges] → if pair in []] | no merge is made
leftmost first | min(candidates, key=merges.get) → candidates[0] | is older: it goes first
one round
    while candidates := [pair for pair in pairwise(ids) if pair in merges]:\n        oldest = min(candidates,
        key=merges.get) → for oldest in sorted(set(pairwise(ids)) & set(merges), key=merges.get):
    go on until none
in the dict's order
    while candidates := [pair for pair in pairwise(ids) if pair in merges]:\n        oldest = min(candidates,
        key=merges.get) → for oldest in merges:
    a merge's age is its new id, not its place
lower case | for character in word: → for character in word.lower(): | 'Ω≈ç√' comes back as the bytes
fails where nothing is known | returns [characters[x] for x in word] | it raises KeyError: 'ï'; line
only ASCII is known | is _ascii_alone | so 'hör' has three ids
three merges at most
    while candidates := [pair for pair in pairwise(ids) if pair in merges]: →
        for _ in range(3):\n        candidates = [pair for pair in pairwise(ids) if pair in merges] or [None]
    oldest = min(candidates, key=merges.get)\n        ids = →
        oldest = min(candidates, key=merges.get)\n        ids = ids if oldest is None else
    'abcabcabcabcabcabc' stops at
as many merges as letters
    while candidates := [pair for pair in pairwise(ids) if pair in merges]: →
        for _ in word:\n        candidates = [pair for pair in pairwise(ids) if pair in merges] or [None]
    oldest = min(candidates, key=merges.get)\n        ids = →
        oldest = min(candidates, key=merges.get)\n        ids = ids if oldest is None else
    it stops at 2 ids
bytes come last | is _bytes_last | bytes are merged as characters are
[embedding_backward]
repeated ids are lost | np.add.at(dtable, ids, dy) → dtable[ids] += dy | they must add
averaged | ids, dy) → ids, dy / np.bincount(ids.ravel())[ids][..., None]) | add, do not average
only the rows in use | (num_rows, → (ids.max() + 1, | looked up or not
off by one | dtable, ids → dtable, ids + 1 | never looked up
a loop over the ids
    np.add.at(dtable, ids, dy) → for i, d in zip(ids.ravel(), dy.reshape(-1, dy.shape[-1])):\n        dtable[i] += d
    loops over the ids in Python
padding has no gradient | return dtable → dtable[0] = 0\n    return dtable | id 0 is an id as any other
scaled | returns answer * dy.shape[-1] ** 0.5 | is 1.73205 times what it should be
a loop over the rows
    returns np.stack([dy[ids == row].sum(axis=0) for row in range(num_rows)])
    loops over the rows of the table in Python
two axes or one
    np.add.at(dtable, ids, dy) → B, T = ids.shape if ids.ndim > 1 else (1, len(ids));
        np.add.at(dtable, ids.reshape(B, T), dy.reshape(B, T, -1))
    it raises ValueError: too many values to unpack
nothing is returned | return dtable → dtable | it returns None
one axis of ids only
    np.add.at(dtable, ids, dy) → np.add.at(dtable, ids[0], dy[0])
    the row of an id that occurs once
"""
