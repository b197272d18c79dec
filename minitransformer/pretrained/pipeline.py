"""Limits on a stranger's `tokenizer.json`, since the package tokenizers does whatever a file says.

A few lines of a file can double a text again and again, or name tokens that are not there, on which the package
panics. Regular expressions need no limit here: their engine stops a match after ten million steps.
"""

import base64
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .files import PretrainedError

MOST_STEPS, MOST_GROWTH = 100, 100_000
"""The most steps that encode a text, or decode ids, and the most characters that they make of one; ALBERT: 7,776."""

LONGEST_PIECE = 1000
"""In characters: a Unigram compares each place of a text with pieces up to the length of its longest."""

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
"""The most characters that a step makes of one (UAX 15, table 10), for steps without options that change it."""


def check_pipeline(path: Path | str, values: Any) -> None:
    """Raise PretrainedError for a `tokenizer.json` that can't be run, or whose work may grow beyond its texts' length.

    The package reports other faults when it reads the file.
    """
    if not isinstance(values, dict):
        raise PretrainedError(f"{path} is not a JSON object")
    for parts in PARTS:
        steps = [step for part in parts for step in steps_of(values.get(part))]
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
    """Return the most characters that sentencepiece's normalisation makes of one.

    Its table is the size of a trie, the trie, and the texts that replace others.
    """
    texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :]
    return max(len(text.decode(errors="replace")) for text in texts.split(b"\0"))


def steps_of(part: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a part of a tokenizer's JSON, which may be a sequence of sequences."""
    if not part:
        return
    inner = next((part[name] for name in SEQUENCES if name in part), None)
    if inner is None:
        yield part
    else:
        for each in inner:
            yield from steps_of(each)


def _growth(step: dict[str, Any]) -> int:
    """Return the most characters that a step makes of one, or the most tokens that a template makes of one."""
    kind = step.get("type")
    if kind == "Replace":
        pattern = step["pattern"].get("String")  # a regular expression can match between characters
        return math.ceil(len(step["content"]) / len(pattern)) if pattern else 1 + len(step["content"])
    if kind == "Prepend":
        return 1 + len(step["prepend"])
    if kind == "Precompiled":
        return charsmap_growth(base64.b64decode(step["precompiled_charsmap"] or ""))
    if kind == "TemplateProcessing":
        return len(step["single"])
    return GROWTH.get(str(kind), 1)
