"""Byte-pair encoding: learning the merges from text (Sennrich, Haddow & Birch 2016, §3.2).

Every word starts as a sequence of characters. Again and again the most frequent pair of neighbours, over all words,

    (a, b) = argmax  Σ_w count(w) · #{i : w_i = a, w_{i+1} = b}

becomes one new token `ab`, until there are enough tokens. Equally frequent pairs are taken in the order of their
ids, `(a, b)` with the smaller `a` first, then with the smaller `b`: characters are numbered by code point and merges
by age, so the outcome depends on nothing but the text.

Counting all pairs anew for each of the M merges costs O(M·N) for N symbols of text. Here each distinct word is kept
once with its count; an index tells which words hold a pair, so a merge visits only those and corrects the counts of
the pairs they gained and lost. A heap gives the next pair. Its entries are lazy: one whose count has fallen since it
was pushed is pushed again with its present count when it comes up. The whole costs O((N' + changes) · log pairs),
where N' is the length of the distinct words and every change is a symbol that a merge touched.

No two merges ever write the same string, so a token can be named by its text. As long as no merge crosses the ends
of a stretch of text, the merges inside it run as they would on that text alone, for each is applied from left to
right; the same text is therefore always put together in the same way.
"""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise

# Words, the units that no merge crosses: letters, digits, or other signs, each with the one space before them; what
# is left is white space. Every character is in exactly one word. None is longer than 64 characters, which bounds the
# work on it: encoding takes time linear in the text, whatever the text is.
WORD_PATTERN = r" ?[^\W\d_]{1,63}| ?\d{1,63}| ?[^\w\s]{1,63}| ?_{1,63}|\s{1,64}(?!\S)|\s"
split_words = re.compile(WORD_PATTERN).findall
LONGEST_WORD = 64

# A character rarer than this in the training text gets no token: it is spelled in bytes, like an unseen one.
MIN_CHARACTER_FREQUENCY = 1e-6

Pair = tuple[int, int]


def count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs in `texts`, every text with one space put before it. Raises TypeError."""
    if isinstance(texts, str):
        raise TypeError("texts must be an iterable of str, such as lines, not one str")
    counts: Counter[str] = Counter()
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts must hold str, but item {number} is of type {type(text).__name__}")
        if text:
            counts.update(split_words(" " + text))
    return counts


def choose_characters(word_counts: Mapping[str, int]) -> str:
    """The characters that get a token, sorted: at least one in a million, and not half of a surrogate pair."""
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            counts[character] += count
    fewest = MIN_CHARACTER_FREQUENCY * counts.total()
    return "".join(sorted(c for c, n in counts.items() if n >= fewest and not "\ud800" <= c <= "\udfff"))


def learn_merges(
    word_counts: Mapping[str, int], characters: str, num_merges: int, progress: bool = False
) -> list[tuple[str, str]]:
    """The first `num_merges` merges, as pairs of strings; fewer if every word has become one token before.

    A character outside `characters` (sorted) takes no part: what is left and right of it are words of their own.
    """
    from tqdm.std import tqdm

    tokens = list(characters)
    words, counts = _as_ids(word_counts, characters)
    pair_counts, words_with = _count_pairs(words, counts)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    merges: list[tuple[str, str]] = []
    with tqdm(total=num_merges, desc="learning merges", unit="merge", disable=not progress) as bar:
        while len(merges) < num_merges and (pair := _pop_most_frequent(heap, pair_counts)):
            left, right = tokens[pair[0]], tokens[pair[1]]
            new = len(tokens)
            tokens.append(left + right)
            merges.append((left, right))
            gained: set[Pair] = set()
            for index in set(words_with.pop(pair)):
                for old in pairwise(words[index]):
                    pair_counts[old] -= counts[index]
                words[index] = merge_pair(words[index], pair, new)
                for now in pairwise(words[index]):
                    pair_counts[now] += counts[index]
                    if new in now:  # no other pair can be new to this word
                        words_with[now].append(index)
                        gained.add(now)
            for grown in gained:
                heapq.heappush(heap, (-pair_counts[grown], grown))
            bar.update()
    return merges


def merge_pair(word: list[int], pair: Pair, new: int) -> list[int]:
    """`word` with each `pair` replaced by `new`, an unused id, from left to right: (a, a) makes aaa into (aa)a."""
    left, right = pair
    merged = word[:1]
    for symbol in word[1:]:
        if symbol == right and merged[-1] == left:
            merged[-1] = new
        else:
            merged.append(symbol)
    return merged


def _as_ids(word_counts: Mapping[str, int], characters: str) -> tuple[list[list[int]], list[int]]:
    """The distinct words as lists of character numbers, and their counts."""
    id_of = {character: index for index, character in enumerate(characters)}
    fragments: Counter[str] = Counter()
    for word, count in word_counts.items():
        for inside, fragment in groupby(word, id_of.__contains__):
            if inside:
                fragments["".join(fragment)] += count
    words = [[id_of[character] for character in fragment] for fragment in fragments]
    return words, list(fragments.values())


def _count_pairs(
    words: list[list[int]], counts: list[int]
) -> tuple[defaultdict[Pair, int], defaultdict[Pair, list[int]]]:
    """How often each pair occurs, and the numbers of the words that hold it, once for each place."""
    pair_counts: defaultdict[Pair, int] = defaultdict(int)
    words_with: defaultdict[Pair, list[int]] = defaultdict(list)  # a set would take six times the memory
    for index, (word, count) in enumerate(zip(words, counts, strict=True)):
        for pair in pairwise(word):
            pair_counts[pair] += count
            words_with[pair].append(index)
    return pair_counts, words_with


def _pop_most_frequent(heap: list[tuple[int, Pair]], pair_counts: Mapping[Pair, int]) -> Pair | None:
    """Take the most frequent pair off the heap, the smallest of equals; None when no pair is left."""
    while heap:
        negated, pair = heapq.heappop(heap)
        count = pair_counts[pair]
        if count == -negated:
            return pair
        if count > 0:
            heapq.heappush(heap, (-count, pair))
    return None
