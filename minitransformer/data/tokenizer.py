"""A tokenizer for any text: byte-pair encoding (Sennrich et al. 2016) with byte fallback, as in SentencePiece.

    ids 0–2       <pad>, <s>, </s>: no text is encoded as these, not even "<s>"
    ids 3–258     the 256 bytes: a character without a token is written as its UTF-8 bytes
    ids 259–…     the characters of the training text (sorted by code point), then the merges (oldest first)

Text is cut into words that keep the space before them. `encode` puts one space before the text, and `decode` takes it
off again: so a word has the same tokens at the start of a sentence as inside it, and `decode(encode(text)) == text` for
every str, even with lone surrogates. Within a word the oldest merge that applies is made first, everywhere in the word,
until none applies: this is the order in which merges were learned.

A tokenizer's file is one readable JSON object with one merge on each line. Ids are not stored: they follow from the
order.

    {"format": "minitransformer BPE tokenizer",
     "version": 1,
     "special_tokens": ["<pad>", "<s>", "</s>"],
     "word_pattern": the regular expression that cuts text into words,
     "characters": "…",
     "merges": [["a", "b"], …]}
"""

import json
import operator
import os
from collections.abc import Callable, Iterable
from itertools import chain, pairwise
from pathlib import Path

from ..system.atomic import atomic_write
from ..system.visible import printed
from .bpe import LONGEST_WORD, WORD_PATTERN, Pair, choose_characters, count_words, learn_merges, merge_pair, split_words

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")
FORMAT = "minitransformer BPE tokenizer"
FIXED = {"version": 1, "special_tokens": list(SPECIAL_TOKENS), "word_pattern": WORD_PATTERN}
FIRST_BYTE = len(SPECIAL_TOKENS)
FIRST_TEXT = FIRST_BYTE + 256  # ids from here on stand for the text of a character or of a merge
CACHED_WORDS = 1 << 17


class BPETokenizer:
    """Text to token ids and back. `train`, `load` or `from_json` make it; it does not change afterwards.

    characters: a sorted str without repetition; merges: pairs of strings, each a character or an earlier merge.
    Raises ValueError for other characters or merges.
    """

    pad_id, bos_id, eos_id = range(FIRST_BYTE)

    def __init__(self, characters: str, merges: Iterable[tuple[str, str]]):
        self.characters = characters
        self.merges = tuple(merges)
        if list(characters) != sorted(set(characters)) or any("\ud800" <= c <= "\udfff" for c in characters):
            raise ValueError("characters must be sorted, without repetition and without surrogates")
        self._ids = {character: FIRST_TEXT + index for index, character in enumerate(characters)}
        self._merged: dict[Pair, int] = {}  # (left, right) -> the merge's id, smaller for an older one
        for left, right in self.merges:
            if left not in self._ids or right not in self._ids:
                raise ValueError(f"merges must join characters or earlier merges, but one is {left!r} + {right!r}")
            if left + right in self._ids:
                raise ValueError(f"merges must differ in what they make, but two make {left + right!r}")
            if len(left + right) > LONGEST_WORD:
                raise ValueError(f"merges must stay within words, of {LONGEST_WORD} characters, but one makes more")
            new = FIRST_TEXT + len(self._ids)
            self._merged[self._ids[left], self._ids[right]] = self._ids[left + right] = new
        self._bytes = [b""] * FIRST_BYTE + [bytes([byte]) for byte in range(256)]
        self._bytes += [text.encode() for text in self._ids]
        self._ids_of_word = _Cache(self._encode_word)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, progress: bool = False) -> "BPETokenizer":
        """Learn a vocabulary of exactly `vocab_size` tokens, including the special tokens and the bytes.

        texts: strings, such as lines, read once as a stream; only the distinct words are held in memory. Characters
        rarer than one in a million get no token. progress: show a bar on a terminal while the merges are learned.
        Raises TypeError if a text is not a str or `vocab_size` not an int, ValueError if there is no text, or if
        `vocab_size` is less than the text's characters need or more than its words can give.
        """
        if not isinstance(vocab_size, int):
            raise TypeError(f"vocab_size must be an int, but is of type {type(vocab_size).__name__}")
        word_counts = count_words(texts)
        if not word_counts:
            raise ValueError("texts must hold some text to train a tokenizer on, but they are empty")
        characters = choose_characters(word_counts)
        smallest = FIRST_TEXT + len(characters)
        if vocab_size < smallest:
            raise ValueError(
                f"vocab_size must be at least {smallest} for this text ({FIRST_BYTE} specials, 256 bytes and "
                f"{len(characters)} characters), but is {vocab_size}"
            )
        merges = learn_merges(word_counts, characters, vocab_size - smallest, progress)
        if smallest + len(merges) < vocab_size:
            raise ValueError(
                f"vocab_size must be at most {smallest + len(merges)} for this text, whose words give no more "
                f"tokens, but is {vocab_size}"
            )
        return cls(characters, merges)

    @property
    def vocab_size(self) -> int:
        """The number of ids: special tokens, bytes, characters and merges."""
        return len(self._bytes)

    def __len__(self) -> int:
        return len(self._bytes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BPETokenizer):
            return NotImplemented
        return (self.characters, self.merges) == (other.characters, other.merges)

    def __hash__(self) -> int:
        return hash((self.characters, self.merges))

    def encode(self, text: str) -> list[int]:
        """Return the token ids of `text`, without <s> and </s>; empty text has none. Raises TypeError for no str."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, but is of type {type(text).__name__}")
        return self.encode_words(" " + text) if text else []

    def encode_words(self, text: str) -> list[int]:
        """Return the token ids of a piece of text as it stands, without a space put before it."""
        return list(chain.from_iterable(map(self._ids_of_word.__getitem__, split_words(text))))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids` (a list or a 1-D integer array), the inverse of `encode`, without special tokens.

        Bytes that are not UTF-8, which a model may well produce, become U+FFFD. The one space that `encode` put first
        is removed. Raises ValueError for an id outside the vocabulary, TypeError for one that is not an integer.
        """
        data = b"".join(map(self._bytes.__getitem__, self._checked(ids)))
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
        return text.removeprefix(" ")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return each id as readable text: ▁dog for " dog", <0xC3> for a byte, <s> itself. Raises as `decode` does."""
        return [self._readable(index) for index in self._checked(ids)]

    def to_json(self) -> str:
        """Return the tokenizer as readable JSON: see the module's docstring."""
        fields = {"format": FORMAT, **FIXED, "characters": self.characters}
        lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
        merges = ",\n  ".join(json.dumps(merge, ensure_ascii=False) for merge in self.merges)
        return "{\n" + ",\n".join([*lines, f'"merges": [\n  {merges}\n]']) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "BPETokenizer":
        """Return the tokenizer that `to_json` wrote. Raises ValueError for any other text."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"a tokenizer must be valid JSON, but this is not: {error}") from None
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise ValueError(f'a tokenizer must be a JSON object with "format": "{FORMAT}", but this is another one')
        for name, expected in FIXED.items():
            if fields.get(name) != expected or fields[name] is True:  # True == 1, a version
                raise ValueError(f"the tokenizer's {name} must be {expected!r}, but is {fields.get(name)!r}")
        characters, merges = fields.get("characters"), fields.get("merges")
        if not isinstance(characters, str):
            raise ValueError(f"the tokenizer's characters must be one string, but are {type(characters).__name__}")
        if not isinstance(merges, list) or not all(
            isinstance(merge, list) and [type(part) for part in merge] == [str, str] for merge in merges
        ):
            raise ValueError("the tokenizer's merges must be a list of pairs of strings, but are not")
        return cls(characters, map(tuple, merges))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file under a temporary name and rename it to `path`. Raises OSError if that fails."""
        with atomic_write(path) as file:
            file.write(self.to_json().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "BPETokenizer":
        """Read a file that `save` wrote. Raises ValueError, naming the file, for any other content."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is not a tokenizer: {error}") from None

    def _encode_word(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        for character in word:
            if character in self._ids:
                ids.append(self._ids[character])
            else:
                ids.extend(FIRST_BYTE + byte for byte in character.encode("utf-8", "surrogatepass"))
        while candidates := [(self._merged[pair], pair) for pair in pairwise(ids) if pair in self._merged]:
            new, pair = min(candidates)
            ids = merge_pair(ids, pair, new)
        return tuple(ids)

    def _checked(self, ids: Iterable[int]) -> list[int]:
        try:
            checked = list(map(operator.index, ids))
        except TypeError:
            raise TypeError("ids must be integers, a list or a 1-D array of them") from None
        if checked and not (min(checked) >= 0 and max(checked) < len(self)):
            wrong = next(index for index in checked if not 0 <= index < len(self))
            raise ValueError(f"ids must be at least 0 and less than {len(self)}, but one is {wrong}")
        return checked

    def _readable(self, index: int) -> str:
        if index < FIRST_BYTE:
            return SPECIAL_TOKENS[index]
        if index < FIRST_TEXT:
            return f"<0x{index - FIRST_BYTE:02X}>"
        return printed(self._bytes[index].decode().replace(" ", "▁"))


class _Cache(dict[str, tuple[int, ...]]):
    """A function's first `CACHED_WORDS` results by argument: faster than `lru_cache`, and safe among threads."""

    def __init__(self, function: Callable[[str], tuple[int, ...]]):
        super().__init__()
        self._function = function

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self._function(word)
        if len(self) < CACHED_WORDS:
            self[word] = ids
        return ids
