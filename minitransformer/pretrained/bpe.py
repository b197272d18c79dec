"""Our tokenizer as a file of the package tokenizers, which gives the same ids for every text."""

import re
from functools import cache
from typing import Any

from ..data.bpe import LONGEST_WORD
from ..data.masked import MASK
from ..data.spans import SENTINELS
from ..data.tokenizer import SPECIAL_TOKENS, BPETokenizer
from ..models import BERTConfig, GPTConfig, ModelConfig, T5Config


def bpe_as_json(tokenizer: BPETokenizer, config: ModelConfig) -> dict[str, Any]:
    """Return our tokenizer in the package's format; `config` is that of the model that reads its ids.

    Special tokens are in the vocabulary but not "added", so that no text is encoded as one. The marks of gaps are
    added, `[MASK]` for a BERT and `<extra_id_0>`, … for a T5: a text has them at its beginning or after a space, which
    becomes part of the mark. With special tokens, `<s>` stands before the text of a BERT and of a GPT whose `bos_id` it
    is, and `</s>` after the text of any encoder.
    """
    gaps: dict[str, int] = {}
    if isinstance(config, BERTConfig) and config.mask_id == tokenizer.vocab_size:
        gaps = {MASK: tokenizer.vocab_size}
    elif isinstance(config, T5Config) and config.vocab_size == tokenizer.vocab_size + SENTINELS:
        gaps = {f"<extra_id_{number}>": config.vocab_size - 1 - number for number in reversed(range(SENTINELS))}
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": True}
    words = [*SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256)), *tokenizer.characters]
    words += [left + right for left, right in tokenizer.merges]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": mark, **added} for mark, index in gaps.items()],
        "normalizer": {"type": "Prepend", "prepend": " "},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": _words()}, "behavior": "Isolated", "invert": False},
        "post_processor": _around(_begins(config, tokenizer), not isinstance(config, GPTConfig)),
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


def _begins(config: ModelConfig, tokenizer: BPETokenizer) -> bool:
    """Return True if `<s>` stands before each of a model's texts."""
    if isinstance(config, GPTConfig):
        return config.bos_id == tokenizer.bos_id != config.eos_id
    return isinstance(config, BERTConfig)


def _around(begins: bool, ends: bool) -> dict[str, Any]:
    """Return the template that puts `<s>` before a text, and `</s>` after it."""
    first, last = (
        [{"SpecialToken": {"id": token, "type_id": 0}}] * asked for token, asked in (("<s>", begins), ("</s>", ends))
    )
    text, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    marks = {token: {"id": token, "ids": [index], "tokens": [token]} for index, token in ((1, "<s>"), (2, "</s>"))}
    single = [*first, text, *last]
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, second, *last], "special_tokens": marks}


@cache
def _words() -> str:
    """Return `WORD_PATTERN` for the package's engine, with all characters of Python's classes spelt out."""
    letter, digit, space = (_characters(re.compile(each)) for each in (r"[^\W\d_]", r"\d", r"\s"))
    most = LONGEST_WORD - 1
    return (
        f" ?[{letter}]{{1,{most}}}| ?[{digit}]{{1,{most}}}| ?[^{letter}{digit}{space}_]{{1,{most}}}| ?_{{1,{most}}}"
        f"|[{space}]{{1,{LONGEST_WORD}}}(?![^{space}])|[{space}]"
    )


def _characters(pattern: Any) -> str:
    """Return the characters that a pattern matches, as ranges for a class of a regular expression."""
    ranges: list[list[int]] = []
    for code in range(0x110000):
        if not 0xD800 <= code <= 0xDFFF and pattern.match(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"\\x{{{first:X}}}-\\x{{{last:X}}}" for first, last in ranges)
