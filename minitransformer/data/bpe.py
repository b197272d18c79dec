"""Byte-pair encoding: learning the merges from text (Sennrich, Haddow & Birch 2016, §3.2).

Every word starts as a sequence of characters. Then the most frequent pair of neighbours, over all words,

    (a, b) = argmax  Σ_w count(w) · #{i : w_i = a, w_{i+1} = b}

becomes one new token `ab`, again and again, until there are enough tokens. Of equally frequent pairs the one with the
smallest `a` is taken first, then the one with the smallest `b`, by their ids: characters are numbered by code point and
merges by age, so the result depends only on the text.

To count all pairs again for each of the M merges would cost O(M·N) for N symbols of text. Instead each distinct word is
kept once with its count. An index tells which words hold a pair; a merge visits only these, and corrects the counts of
the pairs that they gained and lost. A heap gives the next pair. Its entries are lazy: an entry whose count has fallen
is pushed again with its present count when it comes up. The whole costs O((N' + changes) · log pairs), where N' is the
length of the distinct words and every change is a symbol that a merge touched.

No two merges make the same string, so a token can be named by its text. Merges are applied from left to right, and as
long as none crosses the ends of a stretch of text, those inside it run as they would on this stretch alone. So the same
text is always put together in the same way.
"""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise

from ..system.progress import tqdm

# Words, which no merge crosses: letters, digits, or other signs, with one space before them; the rest is white space.
# Every character is in exactly one word. No word is longer than 64 characters, which bounds the work on it: encoding
# takes time linear in the text, whatever the text is.
WORD_PATTERN = r" ?[^\W\d_]{1,63}| ?\d{1,63}| ?[^\w\s]{1,63}| ?_{1,63}|\s{1,64}(?!\S)|\s"
split_words = re.compile(WORD_PATTERN).findall
LONGEST_WORD = 64

# A character rarer than this in the training text gets no token: it is encoded as bytes, like an unseen one.
MIN_CHARACTER_FREQUENCY = 1e-6

Pair = tuple[int, int]


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the words of `texts`, with one space before each text. Raises TypeError if a text is not a str."""
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
    """Return the characters that get a token, sorted: those that are one in a million or more, without surrogates."""
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            counts[character] += count
    fewest = MIN_CHARACTER_FREQUENCY * counts.total()
    return "".join(sorted(c for c, n in counts.items() if n >= fewest and not "\ud800" <= c <= "\udfff"))


def learn_merges(
    word_counts: Mapping[str, int], characters: str, num_merges: int, progress: bool = False
) -> list[tuple[str, str]]:
    """Return the first `num_merges` merges, as pairs of strings; fewer if every word is one token before that.

    A character outside `characters` (sorted) is never merged: the text left and right of it counts as two words.
    """
    tokens = list(characters)
    words, counts = _as_ids(word_counts, characters)
    pair_counts, words_with = _count_pairs(words, counts)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    merges: list[tuple[str, str]] = []
    with tqdm(total=num_merges, desc="learning merges", unit="merge", disable=None if progress else True) as bar:
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
    """Return `word` with each `pair` replaced by the id `new`, from left to right: (a, a) makes aaa into (aa)a."""
    left, right = pair
    merged = word[:1]
    for symbol in word[1:]:
        if symbol == right and merged[-1] == left:
            merged[-1] = new
        else:
            merged.append(symbol)
    return merged


def _as_ids(word_counts: Mapping[str, int], characters: str) -> tuple[list[list[int]], list[int]]:
    """Return the distinct words as lists of character numbers, and their counts."""
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
    """Return each pair's count, and the numbers of the words that hold it, one for each occurrence."""
    pair_counts: defaultdict[Pair, int] = defaultdict(int)
    words_with: defaultdict[Pair, list[int]] = defaultdict(list)  # a set would take six times the memory
    for index, (word, count) in enumerate(zip(words, counts, strict=True)):
        for pair in pairwise(word):
            pair_counts[pair] += count
            words_with[pair].append(index)
    return pair_counts, words_with


def _pop_most_frequent(heap: list[tuple[int, Pair]], pair_counts: Mapping[Pair, int]) -> Pair | None:
    """Take the most frequent pair off the heap, the smallest of equals; None if no pair is left."""
    while heap:
        negated, pair = heapq.heappop(heap)
        count = pair_counts[pair]
        if count == -negated:
            return pair
        if count > 0:
            heapq.heappush(heap, (-count, pair))
    return None
