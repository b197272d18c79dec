"""Sentences of a split, drawn from the grammar, with their translations and parse trees."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from typing import Literal

from . import english, french, german
from .constructions import constructions_of
from .lexicon import Lexicon
from .parsing import Vocabulary, parse
from .rules import Grammar
from .syntax import Sentence

SPLITS = ("train", "valid", "test")
HELD_OUT = 16  # one sentence in 16 is for validation, one for test
DIGITS = 48  # bytes of randomness; the longest derivation uses 27


@dataclass(frozen=True)
class Example:
    """A sentence of the grammar: each property is computed from the derivation when it is first read."""

    derivation: Sentence

    @cached_property
    def english(self) -> str:
        """The English sentence."""
        return english.sentence_text(english.sentence_tree(self.derivation))

    @cached_property
    def german(self) -> str:
        """The German translation."""
        return german.sentence_text(self.derivation)

    @cached_property
    def french(self) -> str:
        """The French translation."""
        return french.sentence_text(self.derivation)

    @cached_property
    def tree(self) -> str:
        """The English parse tree in brackets: (S (NP (D the) (N dog)) …)."""
        return english.bracketed(english.sentence_tree(self.derivation))

    @cached_property
    def constructions(self) -> frozenset[str]:
        """The names, from CONSTRUCTIONS, of the constructions in the sentence."""
        return constructions_of(self.derivation)


@cache
def grammar() -> Grammar:
    """Return the grammar over the whole lexicon, built at the first call."""
    return Grammar(Lexicon())


def count_sentences() -> int:
    """Return the exact number of English sentences: one for each derivation, since no sentence has two."""
    return grammar().sentences.size


def split_of(sentence: str) -> str:
    """Return an English sentence's split, by a hash of its text: 1 in 16 is valid, 1 in 16 test, the others train."""
    bucket = blake2b(sentence.encode(), digest_size=8).digest()[0] % HELD_OUT
    return ("valid", "test", "train")[min(bucket, 2)]


@cache
def _vocabulary() -> Vocabulary:
    return Vocabulary(Lexicon())


def translate(sentence: str) -> Example:
    """Parse an English sentence and return its example: translate("She sleeps.").german is "Sie schläft.".

    Raises ValueError if the grammar does not form this sentence with this spelling.
    """
    readings = parse(sentence, _vocabulary())
    if not readings:
        raise ValueError(f"sentence must be one that the grammar can form, got {sentence!r}")
    return Example(readings[0])


def sample(split: str, seed: int, start: int = 0) -> Iterator[Example]:
    """Yield endless examples of a split, from number `start` on.

    Number n, counted from 0, depends only on (seed, split, n), so a late start costs nothing. Raises ValueError for an
    unknown split or a negative start.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    if start < 0:
        raise ValueError(f"start must not be negative, got {start}")
    return _sample(split, seed, start)


def _sample(split: str, seed: int, start: int) -> Iterator[Example]:
    draw = grammar().sentences.draw
    for n in itertools.count(start):
        for attempt in itertools.count():
            key = f"{seed} {split} {n} {attempt}".encode()
            derivation, _ = draw(int.from_bytes(blake2b(key, digest_size=DIGITS).digest(), "little"))
            drawn = Example(derivation)
            if split_of(drawn.english) == split:
                yield drawn
                break


def pairs(
    split: str, seed: int, language: Literal["german", "french"] = "german", count: int | None = None, start: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield `count` sentence pairs, English and German or French; endless if `count` is None.

    Raises ValueError for an unknown language, and as `sample` does.
    """
    if language not in ("german", "french"):
        raise ValueError(f"language must be 'german' or 'french', got {language!r}")
    examples = itertools.islice(sample(split, seed, start), count)
    return ((each.english, getattr(each, language)) for each in examples)
