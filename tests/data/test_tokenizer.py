"""The tokenizer: any text round-trips, specials cannot be forged, merges are those of an independent library.

And its file: what was saved loads, a failed save loses nothing, anything else is refused in one sentence.
"""

import json
import random
import sys
import threading
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.folders import largest_file
from support.multi30k_files import multi30k_lines
from tokenizers import Tokenizer, models, trainers

from minitransformer.data import BPETokenizer
from minitransformer.data.bpe import choose_characters, count_words, learn_merges, merge_pair, split_words
from minitransformer.data.tokenizer import FIRST_BYTE, FIRST_TEXT

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "the dogs, the foxes and the 12 lazy cats: jumping, jumped, over 2024 boxes",
    "Der schnelle braune Fuchs springt über den faulen Hund, größer als 7 Füchse.",
    "dog",
]
ANY_TEXT = st.text(st.characters())  # surrogates too
FEW_LETTERS = st.text("ab c", max_size=40)
HARD_TEXTS = [
    "", " ", "  ", "   a", "a   ", "\n", " \n\t\r\n  x", "\0", "a\0b", "\u2028\x85\xa0", "\ufeffBOM", "\ufffd",
    "e\u0301 n\u0303o", "👩\u200d👩\u200d👧\u200d👦", "漢字かな交じり文", "हिन्दी", "²½Ⅷ٣", "_ __a_b_",
    "\ud800", "\udfff\ud800", "\ud83d\ude00", "x\udc80y", "</s>", "<pad><s></s>", "<0xC3>", "▁dog",
    "a" * 1000, " " * 1000, "1" * 129, "!?" * 70,
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    return BPETokenizer.train(CORPUS, vocab_size=380)


@pytest.fixture(scope="module")
def abc_tokenizer() -> BPETokenizer:
    return BPETokenizer.train(random_texts(seed=0), vocab_size=600)


def random_texts(seed: int) -> list[str]:
    """Words of few letters, so that nearly every merge competes with another."""
    draw = random.Random(seed)
    return [" ".join("".join(draw.choices("abcä", k=draw.randint(1, 9))) for _ in range(8)) for _ in range(200)]


def library_merges(word_counts: dict[str, int]) -> list[tuple[str, str]]:
    """Return the merges that `tokenizers` learns of the same words, each given as a text that nothing splits.

    It takes the most frequent pair, of equals the one with the smallest ids, and numbers characters by code point,
    as ours does; it goes on until nothing is left to merge.
    """
    library = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=10**6, show_progress=False)  # pyright: ignore[reportCallIssue]
    library.train_from_iterator(chain.from_iterable([w] * n for w, n in word_counts.items()), trainer)
    return [(left, right) for left, right in json.loads(library.to_str())["model"]["merges"]]


class TestWords:
    @given(ANY_TEXT)
    def test_no_character_is_lost(self, text):
        assert "".join(split_words(text)) == text

    @pytest.mark.parametrize("text", HARD_TEXTS)
    def test_no_character_of_a_hard_text_is_lost(self, text):
        words = split_words(text)
        assert "".join(words) == text
        assert all(1 <= len(word) <= 64 for word in words)

    def test_a_word_keeps_the_one_space_before_it(self):
        assert split_words(" A dog,  2 cats_\n\n don't") == [
            " A", " dog", ",", " ", " 2", " cats", "_", "\n\n", " don", "'", "t",
        ]  # fmt: skip

    def test_counts(self):
        assert count_words(["a dog", "dog a", ""]) == {" a": 2, " dog": 2}

    def test_rare_characters_and_surrogates_get_no_token(self):
        assert choose_characters({"ab": 10**6, "é": 3, "è": 2, "\ud800": 9}) == "abé"
        assert choose_characters({"ab": 499_999, "é": 1, "è": 1}) == "abèé", "one in a million is enough"


class TestMerges:
    def test_the_example_of_the_paper(self):
        """Sennrich et al. 2016, figure 1's words; es, t· and es·t· come first with 9, as in the paper up to ties."""
        words = {"low·": 5, "lower·": 2, "newest·": 6, "widest·": 3}
        merges = learn_merges(words, choose_characters(words), 5)
        assert merges == [("e", "s"), ("t", "·"), ("es", "t·"), ("l", "o"), ("lo", "w")]

    def test_ties_go_to_the_smaller_left_then_the_smaller_right(self):
        assert learn_merges({"cd": 1, "ba": 1, "bc": 1}, "abcd", 3) == [("b", "a"), ("b", "c"), ("c", "d")]

    def test_repeats_merge_from_left_to_right(self):
        assert merge_pair([7, 7, 7, 7, 7, 3, 7], (7, 7), 9) == [9, 9, 7, 3, 7]
        assert learn_merges({"aaaaa": 1}, "a", 9) == [("a", "a"), ("aa", "a"), ("aa", "aaa")]

    def test_no_merge_crosses_a_word_or_a_character_without_token(self):
        assert learn_merges({"ab": 9, "ba": 1}, "ab", 9) == [("a", "b"), ("b", "a")]
        assert learn_merges({"axb": 9, "cd": 1}, "abcd", 9) == [("c", "d")]

    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | FEW_LETTERS, min_size=1))
    def test_merges_are_those_of_the_library(self, texts):
        words = count_words(texts)
        assert learn_merges(words, "".join(sorted(set("".join(words)))), 100_000) == library_merges(words)

    @pytest.mark.parametrize("seed", range(5))
    def test_merges_are_those_of_the_library_on_a_random_corpus(self, seed):
        words = count_words(random_texts(seed))
        assert learn_merges(words, choose_characters(words), 100_000) == library_merges(words)

    def test_merges_are_those_of_the_library_on_multi30k(self):
        words = count_words(chain(multi30k_lines("train.en"), multi30k_lines("train.de")))
        every_character = "".join(sorted(set("".join(words))))
        assert learn_merges(words, every_character, 7_000) == library_merges(words)[:7_000]


class TestTraining:
    def test_ids(self, tokenizer):
        """Specials, bytes, sorted characters, merges in the order they were learned; exactly as many as asked for."""
        assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2)
        assert len(tokenizer) == tokenizer.vocab_size == 380
        names = tokenizer.tokens(range(380))
        assert names[:3] == ["<pad>", "<s>", "</s>"]
        assert names[3:259] == [f"<0x{byte:02X}>" for byte in range(256)]
        characters = sorted(set(" ".join(CORPUS)))
        assert tokenizer.characters == "".join(characters)
        texts = characters + [left + right for left, right in tokenizer.merges]
        assert names[259:] == [text.replace(" ", "▁") for text in texts]

    def test_a_word_has_the_same_tokens_at_the_start_and_inside(self, tokenizer):
        assert tokenizer.encode("the dogs the dogs") == tokenizer.encode("the dogs") * 2

    def test_training_words_become_single_tokens_at_the_largest_vocabulary(self):
        with pytest.raises(ValueError, match="at most") as raised:
            BPETokenizer.train(CORPUS, vocab_size=10_000)
        largest = int(str(raised.value).split("at most ")[1].split()[0])
        tokenizer = BPETokenizer.train(CORPUS, vocab_size=largest)
        assert len(tokenizer.encode(CORPUS[1])) == len(split_words(" " + CORPUS[1]))

    def test_smallest_vocabulary(self):
        smallest = 259 + len(set(" ".join(CORPUS)))
        tokenizer = BPETokenizer.train(CORPUS, vocab_size=smallest)
        assert tokenizer.merges == ()
        assert len(tokenizer.encode(CORPUS[0])) == len(CORPUS[0]) + 1
        with pytest.raises(ValueError, match=rf"vocab_size must be at least {smallest} .* is {smallest - 1}"):
            BPETokenizer.train(CORPUS, vocab_size=smallest - 1)

    def test_a_stream_will_do_and_progress_changes_nothing(self, tokenizer, capsys, monkeypatch):
        assert BPETokenizer.train(iter(CORPUS), 380, progress=True) == tokenizer
        assert not capsys.readouterr().err  # which is no terminal
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert BPETokenizer.train(iter(CORPUS), 380, progress=True) == tokenizer
        assert "merge" in capsys.readouterr().err

    @pytest.mark.parametrize("texts", [[], [""], ["\ud800"]])
    def test_no_text(self, texts):
        with pytest.raises(ValueError, match=r"texts|vocab_size"):
            BPETokenizer.train(texts, vocab_size=262)

    @pytest.mark.parametrize(("texts", "vocab_size"), [("one str", 300), ([b"x"], 300), ([None], 300), (["x"], 300.0)])
    def test_wrong_kind(self, texts, vocab_size):
        with pytest.raises(TypeError, match=r"texts|vocab_size"):
            BPETokenizer.train(texts, vocab_size)


class TestEncoding:
    @given(ANY_TEXT | FEW_LETTERS | st.text(st.sampled_from("thedogsüÜ <pad/>\n\t\ud83d\ude00")))
    def test_any_text_round_trips(self, tokenizer, text):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(id >= FIRST_BYTE for id in ids), "no text yields a special"

    @pytest.mark.parametrize("text", HARD_TEXTS)
    def test_hard_text_round_trips(self, tokenizer, text):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == tokenizer.decode(np.array(ids, dtype=np.int32)) == text
        assert all(id >= FIRST_BYTE for id in ids)

    def test_text_that_spells_specials_or_bytes_is_ordinary_text(self):
        tokenizer = BPETokenizer.train(["</s> <s> <pad> <0xC3>"] * 9, vocab_size=276)
        for text in ("</s>", "<s>", "<pad>", "<0xC3>"):
            assert min(tokenizer.encode(text)) >= FIRST_TEXT
            assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_unseen_characters_are_their_bytes(self, tokenizer):
        assert tokenizer.tokens(tokenizer.encode("Ω")) == ["▁", "<0xCE>", "<0xA9>"]
        assert tokenizer.tokens(tokenizer.encode("\ud800")) == ["▁", "<0xED>", "<0xA0>", "<0x80>"]

    def test_the_oldest_merge_is_made_first(self):
        tokenizer = BPETokenizer(" abc", [("b", "c"), ("a", "b")])
        assert tokenizer.tokens(tokenizer.encode("abc ab")) == ["▁", "a", "bc", "▁", "ab"]

    @given(st.text("abcä", min_size=1))
    def test_ids_are_those_of_the_library(self, abc_tokenizer, text):
        texts = [*abc_tokenizer.characters, *(left + right for left, right in abc_tokenizer.merges)]
        vocabulary = {piece: FIRST_TEXT + index for index, piece in enumerate(texts)}
        library = Tokenizer(models.BPE(vocabulary, list(abc_tokenizer.merges)))
        expected = chain.from_iterable(library.encode(word).ids for word in split_words(" " + text))
        assert abc_tokenizer.encode(text) == list(expected)

    def test_a_full_cache_changes_nothing(self, monkeypatch):
        monkeypatch.setattr("minitransformer.data.tokenizer.CACHED_WORDS", 2)
        small, large = (BPETokenizer.train(CORPUS, vocab_size=380) for _ in range(2))
        expected = [large.encode(text) for text in CORPUS + CORPUS]
        assert [small.encode(text) for text in CORPUS + CORPUS] == expected
        assert len(small._ids_of_word) == 2

    def test_threads_share_a_tokenizer(self):
        shared, results = BPETokenizer.train(CORPUS, vocab_size=380), {}
        texts = [f"{text} {number}" for number in range(200) for text in CORPUS]

        def encode(worker: int) -> None:
            results[worker] = [shared.encode(text) for text in texts]

        threads = [threading.Thread(target=encode, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone = BPETokenizer.train(CORPUS, vocab_size=380)
        assert [results[worker] for worker in range(4)] == [[alone.encode(text) for text in texts]] * 4

    @pytest.mark.parametrize("text", [None, b"bytes", 3, ["a"]])
    def test_wrong_kind(self, tokenizer, text):
        with pytest.raises(TypeError, match="text must be a str"):
            tokenizer.encode(text)


class TestDecoding:
    @given(st.lists(st.integers(0, 379)))
    def test_any_ids_decode(self, tokenizer, ids):
        assert isinstance(tokenizer.decode(ids), str)
        assert all(piece.isprintable() and piece for piece in tokenizer.tokens(ids))

    def test_broken_bytes_become_replacement_characters(self, tokenizer):
        start, end = FIRST_BYTE + 0xC3, FIRST_BYTE + 0xBC
        assert tokenizer.decode([start, end]) == "ü"
        assert tokenizer.decode([end, start]) == "\ufffd\ufffd"
        assert tokenizer.decode([start, *tokenizer.encode("dog")]) == "\ufffd dog"

    def test_specials_add_nothing_and_one_space_is_dropped(self, tokenizer):
        dog = tokenizer.encode("dog")
        assert tokenizer.decode([1, *dog, 2, 0, 0]) == "dog"
        assert tokenizer.decode(dog + dog) == "dog dog"
        assert tokenizer.decode([]) == ""
        assert tokenizer.encode("") == []

    def test_tokens_show_what_cannot_be_seen(self, tokenizer):
        tabbed = BPETokenizer.train(["a\tb"], vocab_size=263)
        assert tabbed.tokens(tabbed.encode("a\tb")) == ["▁", "a", "\\t", "b"]
        assert tokenizer.tokens([1, *tokenizer.encode("dog"), 2]) == ["<s>", "▁dog", "</s>"]

    @pytest.mark.parametrize("method", ["decode", "tokens"])
    def test_ids_out_of_range(self, tokenizer, method):
        for wrong in (-1, 380, 10**30):
            with pytest.raises(ValueError, match=f"less than 380, but one is {wrong}"):
                getattr(tokenizer, method)([5, wrong])
        for wrong in ([1.0], ["a"], 3, np.zeros((2, 2), int)):
            with pytest.raises(TypeError, match="ids must be integers"):
                getattr(tokenizer, method)(wrong)


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
    with largest_file(1000), pytest.raises(OSError, match="cannot write"):
        tokenizer.save(path)
    assert BPETokenizer.load(path) == tokenizer, "the old file is there"
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"


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
