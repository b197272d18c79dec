"""The grammar's short English sentences, in lower case, as rows of whole words' numbers."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from minitransformer.grammar import Example, sample

PAD, CLS, SEP, FIRST_WORD = 0, 1, 2, 3
MOST_WORDS = 9
LENGTH = MOST_WORDS + 2


def words_of(text: str) -> list[str]:
    """Return the words and punctuation marks of a sentence, in lower case."""
    return re.findall(r"[\w'-]+|[.,?]", text.lower())


def short(split: str, count: int) -> list[Example]:
    """Return the first `count` sentences of a split with at most MOST_WORDS words."""
    return list(islice((e for e in sample(split, 0) if len(words_of(e.english)) <= MOST_WORDS), count))


def encode(examples: Sequence[Example], number_of: Mapping[str, int]) -> np.ndarray:
    """Return ids (B, LENGTH): [CLS] words [SEP], padded."""
    ids = np.full((len(examples), LENGTH), PAD)
    for row, example in zip(ids, examples, strict=True):
        tokens = [CLS, *(number_of[word] for word in words_of(example.english)), SEP]
        row[: len(tokens)] = tokens
    return ids
