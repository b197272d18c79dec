"""The tokenizer's file: one JSON object, readable, one merge a line.

    {"format": "minitransformer BPE tokenizer",
     "version": 1,
     "special_tokens": ["<pad>", "<s>", "</s>"],
     "word_pattern": the regular expression that cuts text into words,
     "characters": "…",
     "merges": [["a", "b"], …]}

Ids are not stored: they follow from the order.
"""

import json
from collections.abc import Iterable

from .bpe import WORD_PATTERN

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")
FORMAT = "minitransformer BPE tokenizer"
FIXED = {"version": 1, "special_tokens": list(SPECIAL_TOKENS), "word_pattern": WORD_PATTERN}


def to_json(characters: str, merges: Iterable[tuple[str, str]]) -> str:
    """The file's text."""
    fields = {"format": FORMAT, **FIXED, "characters": characters}
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    pairs = ",\n  ".join(json.dumps(pair, ensure_ascii=False) for pair in merges)
    return "{\n" + ",\n".join([*lines, f'"merges": [\n  {pairs}\n]']) + "\n}\n"


def from_json(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The characters and merges in a file's text. Raises ValueError if it is another format or version."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a tokenizer must be valid JSON, but this is not: {error}") from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise ValueError(f'a tokenizer must be a JSON object with "format": "{FORMAT}", but this is another one')
    for name, expected in FIXED.items():
        if fields.get(name) != expected or fields[name] is True:  # which equals 1
            raise ValueError(f"the tokenizer's {name} must be {expected!r}, but is {fields.get(name)!r}")
    characters, merges = fields.get("characters"), fields.get("merges")
    if not isinstance(characters, str):
        raise ValueError(f"the tokenizer's characters must be one string, but are {type(characters).__name__}")
    if not isinstance(merges, list) or not all(map(_is_pair, merges)):
        raise ValueError("the tokenizer's merges must be a list of pairs of strings, but are not")
    return characters, [(left, right) for left, right in merges]


def _is_pair(merge: object) -> bool:
    return isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge)
