"""The tokenizers in GGUF files: byte pairs of bytes, as GPT-2's and Llama 3's, and sentencepiece's, as Llama's."""

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from .errors import PretrainedError
from .keys import Keys, words
from .pipeline import LONGEST_PIECE
from .vocabularies import add_marks, by_scores, flag, spaces, surround

PREFIX = "tokenizer.ggml."
CONTROL, USER_DEFINED = 3, 4
"""Kinds of tokens that are found in a text as they stand: the first is special, the second is text."""

KEYS = Keys(
    obeyed=words("model pre tokens token_type scores merges add_bos_token add_eos_token add_space_prefix"),
    supported={
        "remove_extra_whitespaces": False,
        "escape_whitespaces": True,
        "treat_whitespace_as_suffix": False,
        "precompiled_charsmap": None,
        "add_sep_token": False,
    },
    idle=words("token_type_count"),
)

MARKS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""The special tokens with a name, and their names in a file."""

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
DIGITS = ("smollm", "starcoder", "refact", "codeshell")
WORDS = {"gpt-2": None, **dict.fromkeys(DIGITS), **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), LLAMA3)}
WORDS |= dict.fromkeys(("qwen2", "deepseek-r1-qwen"), QWEN2)
"""How a text is cut into words, by `tokenizer.ggml.pre`; `None`: as GPT-2 does."""


def tokenizer_of(metadata: Mapping[str, Any]) -> tuple[Tokenizer, dict[str, Any]]:
    """Build a file's tokenizer, and the options that a folder's `tokenizer_config.json` would hold.

    Raises PretrainedError for another kind of tokenizer, and for options that are not supported.
    """
    given = {name.removeprefix(PREFIX): value for name, value in metadata.items() if name.startswith(PREFIX)}
    sized = {name: len(each) if isinstance(each, list | np.ndarray) else each for name, each in given.items()}
    KEYS.checked({name: value for name, value in sized.items() if not name.endswith("_token_id")})
    tokens, kinds = given.get("tokens"), given.get("token_type")
    if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
        raise PretrainedError(f"it has no {PREFIX}tokens")
    if not isinstance(kinds, np.ndarray) or len(kinds) != len(tokens):
        raise PretrainedError(f"{PREFIX}token_type does not give a kind for each of {len(tokens):,} tokens")
    if any(len(each) > LONGEST_PIECE for each in tokens):
        raise PretrainedError(f"it has a token of more than {LONGEST_PIECE:,} characters")
    builders = {"gpt2": _bytes, "llama": _pieces}
    kind = given["model"]
    if not isinstance(kind, str) or kind not in builders:
        raise PretrainedError(f"a tokenizer {shortened(kind)} is not supported, only {', '.join(builders)}")
    options: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for ours, theirs in MARKS.items():
        if (index := given.get(f"{theirs}_token_id")) is not None:
            if type(index) is not int or not 0 <= index < len(tokens):
                raise PretrainedError(f"{PREFIX}{theirs}_token_id is {index!r}, no token of {len(tokens):,}")
            options[f"{ours}_token"] = tokens[index]
    inner, begins = builders[kind](given, {token: index for index, token in enumerate(tokens)})
    fixed = [
        {"content": tokens[index], "special": bool(kinds[index] == CONTROL), "normalized": False}
        for index in np.flatnonzero((kinds == CONTROL) | (kinds == USER_DEFINED))
    ]
    marks = add_marks(inner, "it", options, *fixed)
    surround(inner, marks, flag(given, "add_bos_token", begins), flag(given, "add_eos_token", False))
    return inner, options


def _bytes(given: Mapping[str, Any], ids: dict[str, int]) -> tuple[Tokenizer, bool]:
    """Build byte pairs of a text's bytes, each written as a printable character; False: no mark begins a text."""
    merges, how = given.get("merges"), given.get("pre")
    if not isinstance(how, str) or how not in WORDS:
        raise PretrainedError(f"{PREFIX}pre {shortened(how)} is not supported, only {', '.join(WORDS)}")
    if not isinstance(merges, list) or not all(isinstance(each, str) and each.count(" ") == 1 for each in merges):
        raise PretrainedError(f"{PREFIX}merges is not a list of pairs")
    if flag(given, "add_space_prefix", False):
        raise PretrainedError(f"{PREFIX}add_space_prefix is not supported with byte pairs of bytes")
    pattern, llama3 = WORDS[how], WORDS[how] == LLAMA3
    pairs = [(left, right) for left, _, right in (each.partition(" ") for each in merges)]
    inner = Tokenizer(BPE(ids, pairs, ignore_merges=llama3))
    cut: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if how in DIGITS else []
    cut += [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    cut += [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)]
    inner.pre_tokenizer = pre_tokenizers.Sequence(cut)
    if pattern == QWEN2:
        inner.normalizer = normalizers.NFC()
    inner.decoder = decoders.ByteLevel()
    return inner, llama3


def _pieces(given: Mapping[str, Any], ids: dict[str, int]) -> tuple[Tokenizer, bool]:
    """Build sentencepiece's byte pairs; True: a mark begins a text."""
    scores = given.get("scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(given["tokens"]):
        raise PretrainedError(f"{PREFIX}scores does not give a score for each of {len(ids):,} tokens")
    inner = by_scores(ids, {token: float(scores[index]) for token, index in ids.items()})
    spaces(inner, {}, flag(given, "add_space_prefix", True))
    return inner, True
