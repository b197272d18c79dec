"""A stranger's `tokenizer.json` is run in bounded time or refused in one sentence, when loaded and when used."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from minitransformer.pretrained import PretrainedError, PretrainedTokenizer
from minitransformer.pretrained.pipeline import charsmap_growth
from minitransformer.pretrained.tokenizers import load_tokenizer

WORDS: dict[str, Any] = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
    "vocab": {"[UNK]": 0, "a": 1, "##a": 2},
}
DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
MORE = {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "aaa"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
MARK = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}


def written(folder: Path, **parts: Any) -> Path:
    """A folder with a `tokenizer.json` of these parts."""
    values = {"version": "1.0", "added_tokens": [], "model": WORDS, **parts}
    (folder / "tokenizer.json").write_text(json.dumps(values))
    return folder


def sequence(kind: str, *steps: dict[str, Any]) -> dict[str, Any]:
    """Steps in a row; steps of the package's own kinds."""
    return {"type": "Sequence", kind: list(steps)}


def template(*single: dict[str, Any], **marks: Any) -> dict[str, Any]:
    """Return the part that puts tokens around a text."""
    return {"type": "TemplateProcessing", "single": list(single), "pair": [], "special_tokens": marks}


# Of twenty doublings a mistake here costs a million characters; of the 34 that a stranger would write, the machine.
HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("normalizer may make a text more than 100,000", {"normalizer": sequence("normalizers", *[DOUBLE] * 20)}),
    ("normalizer may make", {"normalizer": sequence("normalizers", sequence("normalizers", *[MORE] * 9))}),
    ("normalizer may make", {"normalizer": sequence("normalizers", *[{**DOUBLE, "content": ""}, *[DOUBLE] * 17])}),
    ("normalizer may make", {"normalizer": {"type": "Prepend", "prepend": "a" * 200_000}}),
    ("normalizer may make", {"pre_tokenizer": sequence("pretokenizers", *[BYTES] * 9)}),
    ("normalizer may make", {"post_processor": sequence("processors", *[template(TEXT, TEXT)] * 17)}),
    ("decoder may make a text more than 100,000", {"decoder": sequence("decoders", *[DOUBLE] * 20)}),
    ("more than 100 steps", {"normalizer": sequence("normalizers", *[{"type": "NFC"}] * 101)}),
    ("compares texts with pieces of 1,000,000", {"model": {**WORDS, "max_input_chars_per_word": 10**6}}),
    ("compares texts with pieces of 2,000", {"model": {"type": "Unigram", "vocab": [["a" * 2000, 0.0]], "unk_id": 0}}),
    ("holds no '[UNK]'", {"model": {**WORDS, "vocab": {"a": 0}}}),
    ("holds no '<unk>'", {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"}}),
    ("a token without an id: '[CLS]'", {"post_processor": template(MARK, TEXT)}),
    (
        "ids around a text that are not in its vocabulary",
        {"post_processor": template(MARK, TEXT, **{"[CLS]": {"id": "[CLS]", "ids": [9], "tokens": ["[CLS]"]}})},
    ),
    ("is not a tokenizer", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}),  # a panic
    ("can't encode this text", {"pre_tokenizer": {"type": "FixedLength", "length": 0}}),  # another
]


@pytest.mark.parametrize(("message", "parts"), HOSTILE)
def test_a_hostile_tokenizer_is_refused(message: str, parts: dict[str, Any], tmp_path: Path) -> None:
    folder = written(tmp_path, **parts)
    with pytest.raises(PretrainedError, match=re.escape(message)) as caught:
        load_tokenizer(folder, "bert", {}).encode("a")
    assert "\n" not in str(caught.value)


def test_what_grows_a_text_is_counted_as_it_grows(tmp_path: Path) -> None:
    """A tokenizer within the bound is read, and gives what the package does."""
    folder = written(tmp_path, normalizer=sequence("normalizers", *[DOUBLE] * 6, {"type": "Lowercase"}))
    tokenizer = load_tokenizer(folder, "bert", {})
    assert tokenizer.encode("a") == [1] + [2] * 63


def test_the_growth_of_sentencepieces_own_normalisation_is_known() -> None:
    proto: Any = sentencepiece_model_pb2.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    normalizer: Any = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc")  # pyright: ignore[reportAttributeAccessIssue]
    proto.ParseFromString(normalizer.serialized_model_proto())
    assert charsmap_growth(proto.normalizer_spec.precompiled_charsmap) == len(normalizer.normalize("\ufdfa")[1:]) == 18


@pytest.mark.parametrize("call", ["encode", "decode"])
def test_what_the_package_raises_becomes_one_sentence(call: str, tmp_path: Path) -> None:
    strip = {"type": "Strip", "content": "a", "start": 0, "stop": 9}
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = load_tokenizer(written(tmp_path, decoder=strip, pre_tokenizer=slow), "bert", {})
    with pytest.raises(PretrainedError, match=f"the tokenizer can't {call} th"):
        tokenizer.encode("a" * 30 + "b") if call == "encode" else tokenizer.decode([1])


def test_half_a_character_is_no_text(tmp_path: Path) -> None:
    tokenizer: PretrainedTokenizer = load_tokenizer(written(tmp_path), "bert", {})
    with pytest.raises(ValueError, match="lone surrogate"):
        tokenizer.encode("a \ud800")


def test_a_vocabulary_with_holes_is_as_long_as_its_last_id(tmp_path: Path) -> None:
    """Or a model with fewer rows would be asked for a row that it does not have."""
    holes = {**WORDS, "vocab": {"[UNK]": 0, "a": 900}}
    assert load_tokenizer(written(tmp_path, model=holes), "bert", {}).vocab_size == 901
