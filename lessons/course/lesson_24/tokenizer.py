"""Lesson 24: GPT-2's tokenizer, byte-pair encoding of bytes that are written as printable characters."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
CHARACTER = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(256 + n) for n, byte in enumerate(_OTHERS)}
"""The character of each byte: itself if it is printable, else one from 256 on."""
BYTE = {character: byte for byte, character in CHARACTER.items()}

# GPT-2's own pattern writes \p{L} and \p{N}, which Python's `re` lacks; they differ for signs such as ² or Ⅷ only.
WORDS = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")

Pair = tuple[str, str]


def words(text: str) -> list[str]:
    """Cut a text into words, each with the space before it, a character for each byte."""
    return ["".join(CHARACTER[byte] for byte in word.encode()) for word in WORDS.findall(text)]


def merged(word: str, age: Mapping[Pair, int]) -> list[str]:
    """Return the pieces of a word: the oldest merge that applies is made, again and again."""
    pieces = list(word)
    while known := [pair for pair in pairwise(pieces) if pair in age]:
        oldest, joined = min(known, key=lambda pair: age[pair]), list[str]()
        for piece in pieces:
            if joined and (joined[-1], piece) == oldest:
                joined[-1] += piece
            else:
                joined.append(piece)
        pieces = joined
    return pieces


def read_tokenizer(folder: Path) -> tuple[Callable[[str], list[int]], Callable[[Sequence[int]], str]]:
    """Return two functions: a text's ids, and the text of ids."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model, marks = content["model"], {token["id"] for token in content["added_tokens"]}
    vocabulary = model["vocab"]
    piece_of = {number: piece for piece, number in vocabulary.items() if number not in marks}
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    age = {(left, right): n for n, (left, right) in enumerate(pairs)}  # the smaller, the older

    def encode(text: str) -> list[int]:
        return [vocabulary[piece] for word in words(text) for piece in merged(word, age)]

    def decode(ids: Sequence[int]) -> str:
        characters = "".join(piece_of.get(int(number), "") for number in ids)  # the end mark is no text
        return bytes(BYTE[character] for character in characters).decode(errors="replace")

    return encode, decode
