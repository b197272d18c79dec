"""The tokenizer's file: what was saved loads, a failed save loses nothing, anything else is refused in one sentence."""

import errno
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.data import BPETokenizer
from minitransformer.data.bpe import choose_characters, count_words, learn_merges

CORPUS = ["The quick brown fox jumps over the lazy dog.", "Die Füchse springen über 12 faule Hunde."]


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    return BPETokenizer.train(CORPUS, vocab_size=310)


@given(st.lists(st.text(st.characters()) | st.text("ab c", max_size=40), min_size=1).filter(any), st.integers(0, 9))
def test_json_round_trips(texts, num_merges):
    words = count_words(texts)
    characters = choose_characters(words)
    tokenizer = BPETokenizer(characters, learn_merges(words, characters, num_merges))
    assert BPETokenizer.from_json(tokenizer.to_json()) == tokenizer


def test_a_saved_tokenizer_is_the_same(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("what was there before")
    tokenizer.save(path)
    loaded = BPETokenizer.load(str(path))
    assert loaded == tokenizer
    assert hash(loaded) == hash(tokenizer)
    assert [loaded.encode(text) for text in CORPUS] == [tokenizer.encode(text) for text in CORPUS]
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"


def test_a_save_that_fails_leaves_the_old_file(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        BPETokenizer.train(["x"], 261).save(path)
    assert BPETokenizer.load(path) == tokenizer
    assert list(tmp_path.iterdir()) == [path]


def test_every_truncation_is_refused(tokenizer):
    text = tokenizer.to_json().rstrip()
    for length in range(0, len(text), 7):
        with pytest.raises(ValueError, match="tokenizer"):
            BPETokenizer.from_json(text[:length])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "other", "format"),
        ("version", 2, "version must be 1, but is 2"),
        ("special_tokens", ["<s>", "<pad>", "</s>"], "special_tokens must be"),
        ("word_pattern", ".*", "word_pattern must be"),
        ("characters", ["a"], "characters must be one string"),
        ("characters", "ba", "sorted"),
        ("characters", "aab", "repetition"),
        ("characters", "a\ud800", "surrogates"),
        ("merges", None, "list of pairs"),
        ("merges", ["ab"], "list of pairs"),
        ("merges", [["a", "b", "c"]], "list of pairs"),
        ("merges", [["a", 1]], "list of pairs"),
        ("merges", [["a", "x"]], "'a' \\+ 'x'"),
        ("merges", [["a", ""]], "'a' \\+ ''"),
        ("merges", [["ab", "a"], ["a", "b"]], "'ab' \\+ 'a'"),
        ("merges", [["a", "b"], ["a", "b"]], "two make 'ab'"),
        ("merges", [["a" * 2**n, "a" * 2**n] for n in range(8)], "merges must stay within words, of 64 characters"),
        ("version", True, "version must be 1, but is True"),
        ("merges", [["a", "b"], ["b", "a"], ["ab", "a"], ["a", "ba"]], "two make 'aba'"),
    ],
)
def test_foreign_fields_are_refused(field, value, message):
    fields = json.loads(BPETokenizer("ab", [("a", "b")]).to_json())
    assert len(BPETokenizer.from_json(json.dumps(fields))) == 262
    with pytest.raises(ValueError, match=message):
        BPETokenizer.from_json(json.dumps({**fields, field: value}))


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b'"text"'])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "foreign.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"foreign\.json is not a tokenizer"):
        BPETokenizer.load(path)
