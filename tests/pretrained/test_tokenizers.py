"""Tokenizers: ours in the package tokenizers gives the same ids, and theirs are read beside their models."""

import random
import re
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import tokenizers
import transformers
from support.pretrained_cases import random_model

from minitransformer.data.masked import MASK
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.decoding import Filler, SpanFiller
from minitransformer.models import BERT, BERTConfig, T5Config, Transformer, TransformerConfig, build_model
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
    assert fast(TEXTS[1])["input_ids"] == [*ours.encode(TEXTS[1]), ours.eos_id]
    assert fast.decode([*ours.encode(TEXTS[1]), ours.eos_id], skip_special_tokens=True) == TEXTS[1]
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@hypothesis.given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
@hypothesis.example(text="")
@hypothesis.example(text="<s> </s><pad> <0x41> \n\t\x1c\x85\u2028 ²½x 12①")
@hypothesis.example(text="a" * 200 + " " * 200 + "1" * 100)
def test_same_ids_for_any_text(text: str, ours: BPETokenizer, theirs: tokenizers.Tokenizer) -> None:
    ids = ours.encode(text)
    assert theirs.encode(text, add_special_tokens=False).ids == ids
    assert theirs.decode(ids) == ours.decode(ids)


def test_every_character_is_of_the_same_kind(ours: BPETokenizer, theirs: tokenizers.Tokenizer) -> None:
    letters = [chr(code) for code in range(0x20000) if not 0xD800 <= code <= 0xDFFF]
    random.Random(1).shuffle(letters)
    for start in range(0, len(letters), 4096):
        text = "a".join(letters[start : start + 4096])
        assert theirs.encode(text, add_special_tokens=False).ids == ours.encode(text)


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


def test_what_a_file_says_of_cutting_and_padding_is_not_done(tmp_path: Path) -> None:
    """As in `transformers`, where each call says it."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.enable_truncation(3)
    inner.enable_padding(length=3)
    random_model("bert", 0).save_pretrained(tmp_path)
    inner.save(str(tmp_path / "tokenizer.json"))
    _, tokenizer = load(tmp_path)
    assert tokenizer is not None
    assert tokenizer.encode("ab") == [1, 2]
    assert tokenizer.encode("ab ab ab") == [1, 2] * 3


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


def test_a_bert_of_ours_fills_gaps_there_and_from_its_folder(ours: BPETokenizer, tmp_path: Path) -> None:
    size = ours.vocab_size
    config = BERTConfig(size + 1, d_model=8, num_heads=2, d_ff=8, num_layers=1, max_length=40, mask_id=size)
    filler = Filler(BERT(config, seed=3), ours)
    filler.model.parameters.data *= 8
    save(filler.model, tmp_path, ours)
    again: Any = Filler(*load(tmp_path))
    there = transformers.pipeline("fill-mask", str(tmp_path))
    for text in ("The [MASK] teacher reads [MASK].", "[MASK] Hund bellt; [MASK]  [MASK] schläft!", "eins [MASK]"):
        guesses = filler.fill(text)
        assert again.fill(text) == guesses
        theirs: Any = there(text)
        for gap, found in zip(guesses, theirs if text.count(MASK) > 1 else [theirs], strict=True):
            for each, guess in zip(found, gap, strict=True):
                shown = each["token_str"].strip()
                assert guess.text == shown or (shown in ("", "\ufffd") and re.fullmatch("<0x..>|▁", guess.text))
            assert [each["score"] for each in found] == pytest.approx([guess.probability for guess in gap], rel=1e-4)


def test_a_t5_of_ours_fills_gaps_from_its_folder(ours: BPETokenizer, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1, "bos_id": 1, "eos_id": 2}
    filler: Any = SpanFiller(build_model(T5Config(ours.vocab_size + 100, **sizes), seed=3), ours)
    save(filler.model, tmp_path, ours)
    again: Any = SpanFiller(*load(tmp_path))
    there = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "The <extra_id_0> teacher reads <extra_id_1>."
    assert again.fill(text, 3) == filler.fill(text, 3)
    assert again.tokenizer.encode(text, special_tokens=True) == there(text)["input_ids"]
    assert there(text)["input_ids"].count(ours.vocab_size + 98) == 1
