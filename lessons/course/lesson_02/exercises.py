"""Lesson 02: the gradient of a look-up; a merge, an encoding that loses nothing."""

from itertools import pairwise

import numpy as np

from minitransformer import ops
from minitransformer.data import bpe

from ..checks import require, require_close, require_gradients, require_vectorized, type_name
from ..exercise import Attempt, exercise

FIRST_BYTE, FIRST_TEXT = 3, 259


def _encode(word, characters, merges):
    ids = []
    for character in word:
        known = character in characters
        ids += [characters[character]] if known else [FIRST_BYTE + byte for byte in character.encode("utf-8")]
    while candidates := [(merges[pair], pair) for pair in pairwise(ids) if pair in merges]:
        new, pair = min(candidates)
        ids = bpe.merge_pair(ids, pair, new)
    return ids


def _embedding_backward(dy, ids, num_rows):
    return ops.embedding_backward(dy, (ids, np.empty((num_rows, dy.shape[-1])), 1.0))


@exercise(answer=_embedding_backward)
def embedding_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    ids = np.array([[2, 0, 2], [2, 4, 1]])
    dy = rng.standard_normal((2, 3, 3))
    dtable = attempt(dy, ids, 6)
    require(isinstance(dtable, np.ndarray), f"it must return one array, not {type_name(dtable)}")
    require(
        dtable.shape == (6, 3),
        f"dtable has shape {dtable.shape}, and the table (6, 3): a row for each id, looked up or not",
    )
    require(
        not dtable[[3, 5]].any(), "a row that was never looked up moves nothing: its gradient is 0, and here it is not"
    )
    require(dtable[0].any(), "id 0 is an id as any other, and its row is 0 although it was looked up")
    mean = {"1 / ids.size: nothing is averaged, each row gets what its places send": 1 / 6}
    require_close("the row of an id that occurs once", dtable[[0, 1, 4]], dy[[0, 1, 1], [1, 2, 1]], factors=mean)
    total = dy[0, 0] + dy[0, 2] + dy[1, 0]
    require(
        not np.allclose(dtable[2], dy[1, 0]) and not np.allclose(dtable[2], dy[0, 0]),
        "id 2 occurs three times and only one of its gradients is there: they must add, and `dtable[ids] += dy` writes "
        "each row once (`np.add.at` writes for each id)",
    )
    require_close(
        "the row of id 2, which occurs three times,", dtable[2], total, factors={"1/3: add, do not average": 1 / 3}
    )
    flat = attempt(dy.reshape(6, 3), ids.reshape(6), 6)
    require_close("dtable for ids of one axis", flat, dtable)
    require_close("dtable for ids of three axes", attempt(dy.reshape(2, 1, 3, 3), ids.reshape(2, 1, 3), 6), dtable)
    require_gradients(
        lambda ids, table: (table[ids], (ids, len(table))),
        lambda dy, cache: attempt(dy, *cache),
        {"ids": ids, "table": rng.standard_normal((6, 3))},
    )
    few, many = np.arange(6), np.arange(206)
    require_vectorized(
        lambda: attempt(np.ones((6, 3)), few, 206),
        lambda: attempt(np.ones((206, 3)), many, 206),
        "it is right, and loops over the ids in Python, which is too slow for what follows: `np.add.at` adds them all",
    )
    require_vectorized(
        lambda: attempt(np.ones((6, 3)), few, 6),
        lambda: attempt(np.ones((6, 3)), few, 206),
        "it is right, and loops over the rows of the table in Python, which has thousands: `np.add.at` adds all ids to "
        "their rows",
    )


@exercise(answer=bpe.merge_pair)
def merge(attempt: Attempt) -> None:
    def merged(symbols: list, pair: tuple, new: str | int) -> list:
        result = attempt(symbols, pair, new)
        require(isinstance(result, list), f"it must return a list of symbols, and returns {type_name(result)}")
        return result

    def shown(symbols: list) -> str:
        return " ".join(map(str, symbols)) or "nothing"

    absent = merged(["l", "o", "w"], ("e", "s"), "es")
    require(absent == ["l", "o", "w"], f"l o w has no pair (e, s) and must stay as it is, but becomes {shown(absent)}")
    given = list("low")
    first = merged(given, (given[0], given[1]), "lo")
    require(first != given, "l o w with (l, o) stays as it is: are two neighbours compared with it as a tuple?")
    used = ": both symbols of the pair are used up, so go on behind the second" * (first == ["lo", "o", "w"])
    require(first == ["lo", "w"], f"l o w with (l, o) must give lo w, not {shown(first)}{used}")
    first = merged(["".join("lo"), "".join("we"), "r"], ("".join("lo"), "".join("we")), "lowe")
    require(first == ["lowe", "r"], f"lo we r with (lo, we) must give lowe r, not {shown(first)}: == is meant, not is")
    once = merged(list("newest"), ("e", "s"), "es")
    require(
        once == ["n", "e", "w", "es", "t"],
        f"n e w e s t with (e, s) must give n e w es t, not {shown(once)}: an e comes first that no s follows",
    )
    turned = merged(list("ses"), ("e", "s"), "es")
    require(turned == ["s", "es"], f"s e s with (e, s) must give s es, not {shown(turned)}: s e is another pair")
    twice = merged(list("banana"), ("a", "n"), "an")
    require(
        twice == ["b", "an", "an", "a"],
        f"b a n a n a with (a, n) must give b an an a, every occurrence, and gives {shown(twice)}",
    )
    end = merged(list("see"), ("e", "e"), "ee")
    require(end == ["s", "ee"], f"s e e with (e, e) must give s ee, and gives {shown(end)}: is the last symbol seen?")
    run = merged(list("aaa"), ("a", "a"), "aa")
    require(
        run == ["aa", "a"],
        f"a a a with (a, a) must give aa a, and gives {shown(run)}: from left to right, and no symbol is used twice",
    )
    apart = merged(["a", "bc"], ("ab", "c"), "abc")
    require(
        apart == ["a", "bc"],
        f"the pair (ab, c) does not occur in the symbols a bc, though the letters do; it gives {shown(apart)}",
    )
    apart = merged(["the", "s", "e", "s"], ("e", "s"), "es")
    require(
        apart == ["the", "s", "es"],
        f"the s e s with (e, s) must give the s es, not {shown(apart)}: a symbol is more than its last letter",
    )
    other = merged(list("low"), ("l", "o"), "ol")
    require(other == ["ol", "w"], f"l o w with (l, o) and new = 'ol' must give ol w: `new` itself, not {shown(other)}")
    kept = merged([" ", "L", "o"], ("l", "o"), "lo")
    require(kept == [" ", "L", "o"], f"the symbols ' ' L o with (l, o) must stay as they are, and become {kept}")
    numbers = merged([7, 3, 5, 3, 5], (3, 5), 9)
    require(numbers == [7, 9, 9], f"symbols may be numbers: 7 3 5 3 5 with (3, 5) → 9 gives {shown(numbers)}")
    numbers = merged([0, 5, 1, 0], (0, 5), 0)
    require(numbers == [0, 1, 0], f"0 is a number as any other: 0 5 1 0 with (0, 5) → 0 gives {shown(numbers)}")
    require(merged(given, ("e", "s"), "es") is not given, "where nothing is merged it returns the list itself, no copy")
    for few in ([], ["a"]):
        found = merged(few, ("a", "b"), "ab")
        require(found == few, f"{shown(few)} must stay {shown(few)}, and becomes {shown(found)}")


@exercise(answer=_encode)
def encode(attempt: Attempt) -> None:
    alphabet = " abcdefghijklmnopqrstuvwxyzö"
    oldest = FIRST_TEXT + len(alphabet)  # the id of the first merge
    characters = {character: FIRST_TEXT + n for n, character in enumerate(alphabet)}
    texts = [*alphabet]

    def decoded(ids: list) -> bytes:
        bad = [i for i in ids if not (isinstance(i, int | np.integer) and FIRST_BYTE <= i < FIRST_TEXT + len(texts))]
        require(
            not bad,
            f"{bad[:1]} is the id of no byte ({FIRST_BYTE} to {FIRST_TEXT - 1}), character or merge: byte b has the id "
            f"{FIRST_BYTE} + b",
        )
        return b"".join(bytes([i - FIRST_BYTE]) if i < FIRST_TEXT else texts[i - FIRST_TEXT].encode() for i in ids)

    def encoded(word: str, merges: dict) -> list:
        result = attempt(word, characters, merges)
        require(isinstance(result, list), f"it must return a list of ids, and returns {type_name(result)}")
        return result

    known = encoded(" dog", {})
    require(
        known == [characters[c] for c in " dog"],
        f"without merges ' dog' is its four characters' ids {[characters[c] for c in ' dog']}, and it gives {known}",
    )
    known = encoded("hör", {})
    require(
        known == [characters[c] for c in "hör"],
        f"'ö' is in characters, so 'hör' has three ids, {[characters[c] for c in 'hör']}, and it gives {known}",
    )
    for text in ("naïve", "straße", "日本", "🦔", "e\u0301", "\x00\n", "Ω≈ç√", ""):
        ids = encoded(text, {})
        data = decoded(ids)
        lost = len(data) < len("".join(c for c in text if c in characters).encode()) + sum(
            c not in characters for c in text
        )
        back = data.decode("utf-8", "replace")
        require(not lost, f"of {text!r} only {back!r} comes back: an unknown character is lost")
        right = text.encode()
        off = {(a - b) % 256 for a, b in zip(data, right, strict=False) if a != b}
        likely = ""
        if data in (text.encode("latin-1", "replace"), text.encode("utf-16")):
            likely = ": that is another encoding"
        elif len(data) == len(right) and len(off) == 1:
            likely = f": byte b has the id {FIRST_BYTE} + b"
        elif sorted(data) == sorted(right):
            likely = ": the bytes of a character keep their order"
        require(
            data == right, f"{text!r} comes back as the bytes {data[:8]!r}, and in UTF-8 it is {right[:8]!r}{likely}"
        )
    texts += ["bc", "ab"]
    younger = {(characters["b"], characters["c"]): oldest, (characters["a"], characters["b"]): oldest + 1}
    pieces = [texts[i - FIRST_TEXT] for i in encoded("abc", younger)]
    require(pieces != ["a", "b", "c"], "no merge is made: 'abc' stays a b c though the pair (b, c) has an id in merges")
    require(
        pieces == ["a", "bc"],
        f"'abc' becomes {' '.join(pieces)}, and the merge of (b, c), whose id is smaller, is older: it goes first",
    )
    turned = dict(reversed(younger.items()))
    pieces = [texts[i - FIRST_TEXT] for i in encoded("abc", turned)]
    require(
        pieces == ["a", "bc"],
        f"with the same merges in another order in their dict 'abc' becomes {' '.join(pieces)}: a merge's age is its "
        "new id, not its place",
    )
    texts[-2:] = [("abc" * 6)[:length] for length in (2, 3, 6, 12, 18)]
    chain = {
        (characters["a"], characters["b"]): oldest,
        (oldest, characters["c"]): oldest + 1,
        (oldest + 1, oldest + 1): oldest + 2,
        (oldest + 2, oldest + 2): oldest + 3,
        (oldest + 3, oldest + 2): oldest + 4,
    }
    for word in ("abcabc", "abc" * 6):
        pieces = [texts[i - FIRST_TEXT] for i in encoded(word, chain)]
        require(
            pieces == [word],
            f"{word!r} stops at {' '.join(pieces)}: a merge makes new pairs, so go on until none of them can be merged",
        )
    texts[-5:] = ["bc", "ab"]
    mixed = encoded("ébc→abc", younger)
    require(
        mixed == _encode("ébc→abc", characters, younger),
        f"'ébc→abc' gives {mixed} and should give {_encode('ébc→abc', characters, younger)}",
    )
    first, second = (FIRST_BYTE + byte for byte in "é".encode())
    of_bytes = {(first, second): oldest, (oldest, characters["b"]): oldest + 1}
    for word, right in (("é", [oldest]), ("éb", [oldest + 1])):
        found = encoded(word, of_bytes)
        require(
            found == right,
            f"the pair ({first}, {second}), the two bytes of 'é', has the id {oldest} in merges, ({oldest}, b) has "
            f"{oldest + 1}, and {word!r} gives {found} and must give {right}: bytes are merged as characters are, so "
            "they become ids first",
        )
    first, second, third = (FIRST_BYTE + byte for byte in "本".encode())
    found = encoded("本", {(first, second): oldest, (oldest, third): oldest + 1})
    require(
        found == [oldest + 1],
        f"the three bytes of '本' take two merges to become one id, and it stops at {len(found)} ids: the number of "
        "merges has no limit, go on until none applies",
    )
