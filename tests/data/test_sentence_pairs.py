"""Parallel text: streamed exactly, and refused clearly."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.data import sentence_pairs
from minitransformer.data.sentence_pairs import ParallelFiles, SentencePair, corpus_from_folder, read_lines


def write(path: Path, content: str | bytes) -> Path:
    """A file of this content, compressed where its name says so."""
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb", ["a", "b"]),
        ("a\r\r\n", ["a\r"]),
        ("\n\n", ["", ""]),
        ("\ufeffa\n\ufeffb\n", ["a", "\ufeffb"]),
        ("a\u2028b\x0bc\x85d\re\n", ["a\u2028b\x0bc\x85d\re"]),
        ("", []),
    ],
)
def test_a_line_ends_in_a_newline_and_nowhere_else(tmp_path: Path, suffix: str, content: str, lines: list[str]) -> None:
    assert list(read_lines(write(tmp_path / f"text{suffix}", content))) == lines


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff\0")), min_size=1))
def test_any_text_is_read_as_written(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = write(tmp_path_factory.mktemp("text") / "text", "".join(line + "\n" for line in lines))
    assert list(read_lines(path)) == lines


def test_pairs_from_a_plain_and_a_compressed_file(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.en", "one\ntwo\n"), write(tmp_path / "a.de.gz", "eins\nzwei\n")
    pairs = list(ParallelFiles(source, target).read())
    assert pairs == [SentencePair("one", "eins"), SentencePair("two", "zwei")]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("1\n2\n3\n", "1\n2\n", r"de(\.gz)? ends after 2 lines, but .*en(\.gz)? has a line 3"),
        ("1\n", "1\n\n", r"en(\.gz)? ends after 1 lines, but .*de(\.gz)? has a line 2"),
        ("", "1\n", r"en(\.gz)? ends after 0 lines"),
        ("", "", r"en(\.gz)? and .*de(\.gz)? are empty"),
        ("1\n2\n", b"1\nf\xfcnf\n", r"de(\.gz)?, line 2: not UTF-8, byte 2 is 0xfc"),
        ("1\n".encode("utf-16"), "1\n", r"en(\.gz)?, line 1: not UTF-8, byte 1 is 0xff"),
        ("1\n".encode("utf-16-le"), "1\n", r"en(\.gz)?, line 1: no text in UTF-8, it has a NUL"),
        ("1\n".encode("utf-16-be"), "1\n", r"en(\.gz)?, line 1: no text in UTF-8, it has a NUL"),
        ("1\n2\n", "1\n2\0\n", r"de(\.gz)?, line 2: no text in UTF-8, it has a NUL"),
        (b"1\xe2\x80", "1\n", r"en(\.gz)?, line 1: not UTF-8, byte 2 is 0xe2 \(unexpected end of data\)"),
    ],
)
def test_bad_text_is_told_by_file_and_line(
    tmp_path: Path, suffix: str, source: str | bytes, target: str | bytes, message: str
) -> None:
    paths = write(tmp_path / f"en{suffix}", source), write(tmp_path / f"de{suffix}", target)
    with pytest.raises(ValueError, match=message) as error:
        list(ParallelFiles(*paths).read())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "not gzip", "trailing garbage"])
def test_damaged_compression(tmp_path: Path, damage: str) -> None:
    text = "".join(f"{number * 7919 % 1000}\n" for number in range(5_000)).encode()
    data = gzip.compress(text)
    middle = len(data) // 2
    damaged = {
        "truncated": data[:middle],
        "flipped": data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :],
        "not gzip": text,
        "trailing garbage": data + b"garbage",
    }
    (tmp_path / "text.gz").write_bytes(damaged[damage])
    with pytest.raises(ValueError, match=r"text\.gz, after line \d+: damaged gzip data"):
        list(read_lines(tmp_path / "text.gz"))


def test_no_line_is_endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_pairs, "MAX_LINE_BYTES", 10)
    assert list(read_lines(write(tmp_path / "fits", "123456789\n"))) == ["123456789"]
    with pytest.raises(ValueError, match="line 2: longer than 10 bytes"):
        list(read_lines(write(tmp_path / "long", "1\n" + "9" * 11)))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.de"):
        list(ParallelFiles(write(tmp_path / "a.en", "1\n"), tmp_path / "absent.de").read())


def test_corpus_from_folder(tmp_path: Path) -> None:
    names = "train.en train.de.gz valid.de val.en val.de test_2016_flickr.en test_2016_flickr.de"
    for name in names.split():
        write(tmp_path / name, f"{name}\n")
    corpus = corpus_from_folder(tmp_path, "en", "de")
    assert list(corpus.train.read()) == [("train.en", "train.de.gz")]
    assert list(corpus.valid.read()) == [("val.en", "val.de")]
    assert corpus.test is not None
    assert list(corpus.test.read()) == [("test_2016_flickr.en", "test_2016_flickr.de")]
    (tmp_path / "test_2016_flickr.de").unlink()
    assert corpus_from_folder(tmp_path, "en", "de").test is None
    message = r"lacks train in \.en and \.fr, and valid or val or dev in \.en and \.fr"
    with pytest.raises(FileNotFoundError, match=message):
        corpus_from_folder(tmp_path, "en", "fr")
    with pytest.raises(FileNotFoundError, match="absent is not a folder"):
        corpus_from_folder(tmp_path / "absent", "en", "fr")
