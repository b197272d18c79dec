"""Tokenizers from and to other libraries' files: `tokenizer.json` through the package tokenizers, and Marian's."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..atomic import atomic_write
from ..data.bpe import LONGEST_WORD
from ..data.tokenizer import SPECIAL_TOKENS, BPETokenizer
from .files import PretrainedError, read_json, write_json

FILE = "tokenizer.json"


class PretrainedTokenizer:
    """A tokenizer of the package tokenizers with the methods of ours; `inner` is the package's own."""

    def __init__(self, inner: Any, pad_id: int | None = None, bos_id: int | None = None, eos_id: int | None = None):
        self.inner, self.pad_id, self.bos_id, self.eos_id = inner, pad_id, bos_id, eos_id

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return self.inner.get_vocab_size()

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """The ids of a text; with `special_tokens` those that its model expects around it, such as BERT's [CLS]."""
        return self.inner.encode(text, add_special_tokens=special_tokens).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special tokens are left out."""
        return self.inner.decode([int(each) for each in ids], skip_special_tokens=True)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Each id as the vocabulary writes it."""
        return [str(self.inner.id_to_token(int(each))) for each in ids]


class MarianTokenizer:
    """Marian's tokenizer: sentencepiece cuts source and target texts, and `vocab.json` numbers the pieces of both."""

    def __init__(self, folder: Path, pad_id: int | None, bos_id: int | None, eos_id: int | None):
        try:
            from sentencepiece import SentencePieceProcessor  # pyright: ignore[reportMissingImports]
        except ImportError:
            message = "Marian's tokenizer needs the package sentencepiece: pip install sentencepiece"
            raise PretrainedError(f"{folder}: {message}") from None
        self.pad_id, self.bos_id, self.eos_id = pad_id, bos_id, eos_id
        self.source, self.target = (
            SentencePieceProcessor(model_file=str(folder / f"{name}.spm")) for name in ("source", "target")
        )
        self.ids: dict[str, int] = read_json(folder / "vocab.json")
        if "<unk>" not in self.ids or not all(type(each) is int for each in self.ids.values()):
            raise PretrainedError(f"{folder / 'vocab.json'} does not number pieces, with <unk> among them")
        self.pieces = {index: piece for piece, index in self.ids.items()}

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self.ids)

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """The ids of a source text; with `special_tokens` its end mark after them."""
        ids = [self.ids.get(piece, self.ids["<unk>"]) for piece in self.source.encode(text, out_type=str)]
        return ids + [self.eos_id] * (special_tokens and self.eos_id is not None)  # pyright: ignore

    def decode(self, ids: Iterable[int]) -> str:
        """The target text of ids; special tokens are left out."""
        special = (self.pad_id, self.bos_id, self.eos_id)
        text = self.target.decode_pieces([self.pieces.get(int(i), "") for i in ids if int(i) not in special])
        return text.replace("▁", " ").strip()  # a piece of the source's language alone keeps its mark

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Each id as the vocabulary writes it."""
        return [self.pieces.get(int(each), "<unk>") for each in ids]


def load_tokenizer(folder: Path, kind: str, values: Mapping[str, Any]) -> Any:
    """The tokenizer in a folder, `None` if there is none. Raises PretrainedError for a package that is missing."""
    specials = [values.get(f"{name}_token_id") for name in ("pad", "bos", "eos")]
    pad, bos, eos = (each if type(each) is int else None for each in specials)
    if (folder / FILE).is_file():
        try:
            from tokenizers import Tokenizer
        except ImportError:
            message = "its tokenizer needs the package tokenizers: pip install tokenizers"
            raise PretrainedError(f"{folder}: {message}") from None
        try:
            inner = Tokenizer.from_file(str(folder / FILE))
        except Exception as error:  # the package raises bare Exceptions
            raise PretrainedError(f"{folder / FILE} is not a tokenizer: {error}") from None
        return PretrainedTokenizer(inner, pad, bos, eos)
    if kind == "marian" and (folder / "source.spm").is_file():
        return MarianTokenizer(folder, pad, bos, eos)
    return None


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer, ours or one that was loaded, as `tokenizer.json`."""
    if isinstance(tokenizer, BPETokenizer):
        with atomic_write(folder / FILE) as file:
            file.write(json.dumps(bpe_as_json(tokenizer), ensure_ascii=False).encode())
        names = {f"{name}_token": token for name, token in zip(("pad", "bos", "eos"), SPECIAL_TOKENS, strict=True)}
        write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    elif isinstance(tokenizer, PretrainedTokenizer):
        with atomic_write(folder / FILE) as file:
            file.write(tokenizer.inner.to_str().encode())
    else:
        raise PretrainedError(f"a {type(tokenizer).__name__} can't be written as {FILE}")


def bpe_as_json(tokenizer: BPETokenizer) -> dict[str, Any]:
    """Our tokenizer in the format of the package tokenizers, which gives the same ids for every text.

    Special tokens are in the vocabulary but not "added", so that no text is encoded as one.
    """
    words = [*SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256)), *tokenizer.characters]
    words += [left + right for left, right in tokenizer.merges]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Prepend", "prepend": " "},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": _words()}, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {word: index for index, word in enumerate(words)},
            "merges": [list(merge) for merge in tokenizer.merges],
        },
    }


def _words() -> str:
    """`WORD_PATTERN` for another engine, with every class of characters spelt out as Python means it."""
    letter, digit, space = (_characters(re.compile(each)) for each in (r"[^\W\d_]", r"\d", r"\s"))
    most = LONGEST_WORD - 1
    return (
        f" ?[{letter}]{{1,{most}}}| ?[{digit}]{{1,{most}}}| ?[^{letter}{digit}{space}_]{{1,{most}}}| ?_{{1,{most}}}"
        f"|[{space}]{{1,{LONGEST_WORD}}}(?![^{space}])|[{space}]"
    )


def _characters(pattern: Any) -> str:
    """The characters that a pattern matches, as ranges for a class of a regular expression."""
    ranges: list[list[int]] = []
    for code in range(0x110000):
        if not 0xD800 <= code <= 0xDFFF and pattern.match(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"\\x{{{first:X}}}-\\x{{{last:X}}}" for first, last in ranges)
