"""Prepared data: made once, damaged never used, and nobody else's file in its way replaced."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.cli_runs import write_corpus
from support.folders import contents, flips
from support.processes import killed_at

from minitransformer.data.preparation import (
    CorpusChoice,
    PreparedData,
    TextChoice,
    kept_choice,
    open_prepared,
    prepare,
)
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.system.sealed_json import seal, unseal

FILES = ("train/ids.bin", "train/offsets.bin", "train/meta.json", "valid/ids.bin", "valid/offsets.bin",
         "valid/meta.json", "tokenizer.json", "corpus.json")  # fmt: skip


@pytest.fixture(scope="module")
def choice(tmp_path_factory: pytest.TempPathFactory) -> CorpusChoice:
    """A text of twenty sentences."""
    text = write_corpus(tmp_path_factory.mktemp("text") / "text", train=20, valid=2)
    return CorpusChoice(dataset=None, data=str(text), vocab_size=330)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, choice: CorpusChoice) -> Path:
    """The data of that text; nobody changes it."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    prepare(folder, choice)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of the data."""
    return shutil.copytree(whole, tmp_path / "data")


def test_it_has_these_files(folder: Path) -> None:
    assert contents(folder).keys() == set(FILES)


def test_a_text_s_validation_is_not_a_blank_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a dog\n" * 30 + "\n \n", encoding="utf-8")
    text = TextChoice(dataset=None, text=str(tmp_path / "a.txt"))
    assert list(text.lines("train")) == ["a dog"] * 29
    assert next(text.lines("valid")) == "a dog"


def test_a_text_is_one_side_of_a_folder(tmp_path: Path) -> None:
    """No other language has to be there."""
    folder = write_corpus(tmp_path / "text", train=20, valid=2)
    german = TextChoice(dataset=None, data=str(folder), source="de", vocab_size=330)
    for path in folder.glob("*.en"):
        path.unlink()
    assert len(prepare(tmp_path / "data", german).train) == 20
    with pytest.raises(FileNotFoundError, match=r"lacks train in \.en, and valid or val or dev in \.en \(plain"):
        prepare(tmp_path / "other", replace(german, source="en"))


def test_data_is_made_again_only_where_something_is_different(tmp_path: Path) -> None:
    text, folder = write_corpus(tmp_path / "text", train=20, valid=2), tmp_path / "data"
    choice = CorpusChoice(dataset=None, data=str(text), vocab_size=330)

    def written(**changes: int) -> int:
        prepare(folder, replace(choice, **changes))
        return (folder / "train" / "meta.json").stat().st_ino

    first = written()
    assert written() == first
    second = written(vocab_size=331)
    assert second != first
    third = written(max_length=40)
    assert third != second
    for name, sentence in (("train.en", "The end.\n"), ("train.de", "Das Ende.\n")):
        with open(text / name, "a") as file:
            file.write(sentence)
    assert written(max_length=40) != third
    assert len(prepare(folder, choice).train) == 21


@pytest.mark.parametrize("name", FILES)
def test_no_changed_byte_goes_unnoticed(folder: Path, name: str) -> None:
    advice = rf"(move it elsewhere or )?delete (it|the folder {folder / name[:5]}), and the \w+ is made again"
    step = 1 if "/" not in name else 7  # that no byte of a dataset is, test_token_dataset.py tells
    for _ in flips(folder / name, step=step):
        with pytest.raises(ValueError, match=rf"{name} is damaged.*: {advice}"):
            open_prepared(folder)
    open_prepared(folder)


@pytest.mark.parametrize("damage", [bytes(3), b"[" * 10**5, b'{"choice": 7, "fingerprint": 7}', None])
@pytest.mark.parametrize("name", FILES)
def test_what_is_damaged_is_made_again_once_it_was_deleted_as_the_message_says(
    folder: Path, whole: Path, choice: CorpusChoice, name: str, damage: bytes | None
) -> None:
    """Or part of it was deleted without a word."""
    path = folder / name
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
        with pytest.raises(ValueError, match=f"{name} is damaged") as error:
            prepare(folder, choice)
        said = re.search(r"\bdelete (?:the folder (.*?),|it\b)", str(error.value))
        assert said
        shutil.rmtree(said[1]) if said[1] else path.unlink()
    assert kept_choice(folder) == choice
    if damage is None and path.name == "meta.json":  # nothing says any more what the other two files are
        with pytest.raises(FileExistsError, match=r"no meta\.json and .*: move it elsewhere or delete it"):
            prepare(folder, choice)
        shutil.rmtree(path.parent)
    prepare(folder, choice)
    again = contents(folder)
    assert {name: again[name] for name in again} == {name: contents(whole)[name] for name in again}
    assert again.keys() | {"corpus.json"} == set(FILES)


def test_parts_of_two_texts_are_not_taken_together(folder: Path, choice: CorpusChoice, tmp_path: Path) -> None:
    other = tmp_path / "other"
    prepare(other, replace(choice, max_length=40))
    for name in ("train", "valid"):
        shutil.rmtree(folder / name)
        shutil.copytree(other / name, folder / name)
        with pytest.raises(ValueError, match=f"{name} is not of the text that .*corpus.json names: delete the folder"):
            open_prepared(folder)
        shutil.rmtree(folder / name)
        prepare(folder, choice)


@pytest.mark.parametrize("name", ["train/thesis.txt", "valid/thesis.txt", "train", "tokenizer.json", "corpus.json"])
@pytest.mark.parametrize("beside", ["nothing", "stale data"])
def test_a_stranger_s_file_is_named_and_left_before_any_work(
    folder: Path, choice: CorpusChoice, monkeypatch: pytest.MonkeyPatch, name: str, beside: str
) -> None:
    path = folder / name
    if beside == "nothing":
        shutil.rmtree(folder)
    elif path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("years of work")
    before = contents(folder)
    with monkeypatch.context() as patch:
        patch.setattr(BPETokenizer, "train", lambda *_: pytest.fail("it works before it refuses"))
        with pytest.raises((FileExistsError, ValueError), match=f"{path} (is|was) .*(move|delete) it"):
            prepare(folder, replace(choice, max_length=40))
    assert contents(folder) == before
    path.unlink()  # as it says
    assert prepare(folder, replace(choice, max_length=40)).choice.max_length == 40


def test_somebody_s_own_tokenizer_is_not_written_over(tmp_path: Path, choice: CorpusChoice, whole: Path) -> None:
    """Though it be one of ours: it was not made for this data."""
    (tmp_path / "data").mkdir()
    shutil.copy(whole / "tokenizer.json", tmp_path / "data")
    with pytest.raises(FileExistsError, match=r"tokenizer.json was not made with the data in .*: move it elsewhere or"):
        prepare(tmp_path / "data", choice)


def test_files_beside_it_do_not_matter(folder: Path, choice: CorpusChoice) -> None:
    (folder / "notes.txt").write_text("mine")
    prepare(folder, replace(choice, max_length=40))
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("change", [b"", b"{}", b"[]", {"choice": {}}, {"choice": 1}, {"choice": {"a": 1}}])
def test_a_description_that_says_something_else_is_refused(
    folder: Path, choice: CorpusChoice, change: bytes | dict[str, object]
) -> None:
    path = folder / "corpus.json"
    path.write_bytes(change if isinstance(change, bytes) else seal(unseal(path.read_bytes()) | change))
    for opens in (open_prepared, kept_choice, lambda folder: prepare(folder, choice)):
        with pytest.raises(ValueError, match=r"corpus\.json is damaged"):
            opens(folder)
    path.unlink()
    assert kept_choice(folder) == choice
    assert prepare(folder, choice).choice == choice


def test_a_choice_is_read_back_only_whole(choice: CorpusChoice) -> None:
    values = json.loads(json.dumps(choice.__dict__))
    assert CorpusChoice.from_dict(values) == choice
    for change in ({"sentences": "7"}, {"source": None}, {"more": 1}):
        with pytest.raises(ValueError, match="does not say which text"):
            CorpusChoice.from_dict(values | change)


def same(data: PreparedData, other: PreparedData) -> bool:
    return all(
        getattr(data, split).checksum() == getattr(other, split).checksum() for split in ("train", "valid")
    ) and (data.tokenizer == other.tokenizer)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX (Linux, macOS): it forks and kills")
@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_file_operation_it_is_made_the_next_time(
    tmp_path: Path, folder: Path, whole: Path, choice: CorpusChoice, stride: int
) -> None:
    """From nothing, and in the place of other data; then nothing is left of what the killed ones began."""
    changed = replace(choice, max_length=40)
    prepare(tmp_path / "other", changed)
    begun = tmp_path / "killed"
    for before, wanted, expected in ((None, choice, whole), (folder, changed, tmp_path / "other")):
        for number in range(0, 1000, stride):  # until there is no such operation
            shutil.rmtree(begun, ignore_errors=True)
            if before is not None:
                shutil.copytree(before, begun)
            if not killed_at(number, begun, lambda wanted=wanted: print(prepare(begun, wanted))):
                assert number > 30
                break
            assert same(prepare(begun, wanted), open_prepared(expected))
            assert contents(begun) == contents(expected)
