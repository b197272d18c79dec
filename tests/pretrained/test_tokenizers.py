"""Tokenizers: ours in the package tokenizers gives the same ids, and theirs are read beside their models."""

import random
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
import tokenizers
import transformers
from support.pretrained_cases import random_model

from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.pretrained import PretrainedError, PretrainedTokenizer, load, save

TEXTS = ["The old teacher reads a book. <s> 1234 __init__", "Der Hund bellt; die Katze schläft!", "eins, zwei — drei  "]


@pytest.fixture(scope="module")
def ours() -> BPETokenizer:
    return BPETokenizer.train(TEXTS * 3, 330)


@pytest.fixture(scope="module")
def theirs(ours: BPETokenizer, tmp_path_factory: pytest.TempPathFactory) -> tokenizers.Tokenizer:
    folder = tmp_path_factory.mktemp("saved")
    config = TransformerConfig(ours.vocab_size, d_model=8, num_heads=2, d_ff=8, num_layers=1)
    save(Transformer(config), folder, ours)
    _, tokenizer = load(folder)
    assert isinstance(tokenizer, PretrainedTokenizer)
    assert (tokenizer.vocab_size, tokenizer.pad_id, tokenizer.eos_id) == (ours.vocab_size, ours.pad_id, ours.eos_id)
    assert tokenizer.decode(tokenizer.encode(TEXTS[0])) == TEXTS[0]
    fast = transformers.AutoTokenizer.from_pretrained(folder)
    assert fast(TEXTS[1])["input_ids"] == ours.encode(TEXTS[1])
    assert fast.decode([*ours.encode(TEXTS[1]), ours.eos_id], skip_special_tokens=True) == TEXTS[1]
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@hypothesis.given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
@hypothesis.example(text="")
@hypothesis.example(text="<s> </s><pad> <0x41> \n\t\x1c\x85\u2028 ²½x 12①")
@hypothesis.example(text="a" * 200 + " " * 200 + "1" * 100)
def test_same_ids_for_any_text(text: str, ours: BPETokenizer, theirs: tokenizers.Tokenizer) -> None:
    ids = ours.encode(text)
    assert theirs.encode(text).ids == ids
    assert theirs.decode(ids) == ours.decode(ids)


def test_every_character_is_of_the_same_kind(ours: BPETokenizer, theirs: tokenizers.Tokenizer) -> None:
    letters = [chr(code) for code in range(0x20000) if not 0xD800 <= code <= 0xDFFF]
    random.Random(1).shuffle(letters)
    for start in range(0, len(letters), 4096):
        text = "a".join(letters[start : start + 4096])
        assert theirs.encode(text).ids == ours.encode(text)


def test_a_loaded_tokenizer_is_written_as_it_was(tmp_path: Path) -> None:
    model = tokenizers.models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]")
    inner = tokenizers.Tokenizer(model)
    random_model("bert", 0).save_pretrained(tmp_path / "one")
    inner.save(str(tmp_path / "one" / "tokenizer.json"))
    there, tokenizer = load(tmp_path / "one")
    assert tokenizer is not None
    assert tokenizer.encode("ab") == [1, 2]
    save(there, tmp_path / "two", tokenizer)
    _, again = load(tmp_path / "two")
    assert again is not None
    assert again.inner.to_str() == inner.to_str()


def test_a_damaged_tokenizer_is_refused(tmp_path: Path) -> None:
    random_model("gpt2", 0).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": 3}')
    with pytest.raises(PretrainedError, match="is not a tokenizer"):
        load(tmp_path)


def test_marians_tokenizer_names_the_package_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random_model("marian", 0).save_pretrained(tmp_path)
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).touch()
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    with pytest.raises(PretrainedError, match="pip install sentencepiece"):
        load(tmp_path)
