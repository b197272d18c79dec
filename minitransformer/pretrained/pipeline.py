"""What a stranger's `tokenizer.json` may ask of the package tokenizers, which does whatever a file says.

A few lines of a file can double a text again and again, or name tokens that are not there, for which the package ends
with a panic. Regular expressions need no limit here: their engine stops a match after ten million steps.
"""

import base64
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .files import PretrainedError

MOST_STEPS, MOST_GROWTH = 100, 100_000
"""The steps of what encodes a text, or decodes ids, and the characters that they may make of one: 7,776 in ALBERT's."""

LONGEST_PIECE = 1000
"""Characters: a Unigram compares each place of a text with pieces as long as its longest."""

PARTS = ("normalizer", "pre_tokenizer", "post_processor"), ("decoder",)
SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")
GROWTH = {
    "NFC": 4,
    "NFD": 4,
    "NFKC": 18,
    "NFKD": 18,
    "Lowercase": 2,
    "BertNormalizer": 12,
    "ByteLevel": 4,
    "Metaspace": 2,
    "WordPiece": 2,
    "BertProcessing": 3,
    "RobertaProcessing": 3,
}
"""How many characters a step makes of one at most (UAX 15, table 10), where it depends on nothing else."""


def check_pipeline(path: Path, values: Any) -> None:
    """Raise PretrainedError for what a `tokenizer.json` says that can't be run, or that may take longer than its texts.

    Whatever else is wrong, the package says when it reads the file.
    """
    if not isinstance(values, dict):
        raise PretrainedError(f"{path} is not a JSON object")
    for parts in PARTS:
        steps = [step for part in parts for step in _steps(values.get(part))]
        if len(steps) > MOST_STEPS:
            raise PretrainedError(f"{path}: its {parts[0]} and what follows have more than {MOST_STEPS} steps")
        if math.prod(max(1, _growth(step)) for step in steps) > MOST_GROWTH:
            raise PretrainedError(f"{path}: its {parts[0]} may make a text more than {MOST_GROWTH:,} times as long")
        for step in steps:
            marks = [each["SpecialToken"]["id"] for each in step.get("single", ()) if "SpecialToken" in each]
            if missing := [mark for mark in marks if mark not in step["special_tokens"]]:
                raise PretrainedError(f"{path}: its template has a token without an id: {missing[0]!r}")
    model = values.get("model") or {}
    pieces, unknown = model.get("vocab") or {}, model.get("unk_token")
    if model.get("type") in ("WordPiece", "WordLevel") and unknown not in pieces:
        raise PretrainedError(f"{path}: its vocabulary holds no {unknown!r}, which stands for unknown words")
    longest = model.get("max_input_chars_per_word")
    if isinstance(pieces, list):
        longest = max((len(piece) for piece, _ in pieces), default=0)
    if longest is not None and longest > LONGEST_PIECE:
        most = f"more than {LONGEST_PIECE:,}"
        raise PretrainedError(f"{path} compares texts with pieces of {longest:,} characters, {most}")


def charsmap_growth(charsmap: bytes) -> int:
    """How many characters sentencepiece's table of a normalisation makes of one: a trie's size, the trie, and texts."""
    texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :]
    return max(len(text.decode(errors="replace")) for text in texts.split(b"\0"))


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a part of a tokenizer, which may be a sequence of sequences."""
    if not part:
        return
    inner = next((part[name] for name in SEQUENCES if name in part), None)
    if inner is None:
        yield part
    else:
        for each in inner:
            yield from _steps(each)


def _growth(step: dict[str, Any]) -> int:
    """How many characters a step makes of one at most, or a template tokens of one."""
    kind = step.get("type")
    if kind == "Replace":
        pattern = step["pattern"].get("String")  # a regular expression, as an empty text, is found between characters
        return math.ceil(len(step["content"]) / len(pattern)) if pattern else 1 + len(step["content"])
    if kind == "Prepend":
        return 1 + len(step["prepend"])
    if kind == "Precompiled":
        return charsmap_growth(base64.b64decode(step["precompiled_charsmap"] or ""))
    if kind == "TemplateProcessing":
        return len(step["single"])
    return GROWTH.get(str(kind), 1)
