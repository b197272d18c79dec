"""Parallel text: files of sentences and their translations, found in a folder and read as a stream.

Line n of the target file is the translation of line n of the source file. The files are UTF-8, plain or gzip (`.gz`),
of any size: one pair at a time is in memory. An error's message is one sentence that names the file and the line.
"""

import gzip
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import NamedTuple

# The names of a split's files, each with a language suffix: train.en, or train.en.gz.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test", "test_2016_flickr")}
MAX_LINE_BYTES = 1 << 20  # a longer line is not a sentence, and memory must stay bounded
BYTE_ORDER_MARK = "\ufeff"
StrPath = str | PathLike[str]


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class ParallelFiles:
    """Two line-aligned text files."""

    source: Path
    target: Path

    def read(self) -> Iterator[SentencePair]:
        """Stream the sentence pairs.

        Raises ValueError if a file is empty or ends before the other, and as `read_lines` does.
        """
        number = 0
        with closing(read_lines(self.source)) as sources, closing(read_lines(self.target)) as targets:
            for number, (source, target) in enumerate(zip_longest(sources, targets), start=1):
                if source is None or target is None:
                    shorter, longer = (self.source, self.target) if source is None else (self.target, self.source)
                    raise ValueError(
                        f"{shorter} ends after {number - 1} lines, but {longer} has a line {number}: "
                        "parallel files must have as many lines"
                    )
                yield SentencePair(source, target)
        if number == 0:
            raise ValueError(f"{self.source} and {self.target} are empty")


@dataclass(frozen=True)
class Corpus:
    """The files of a translation task; `test` is optional."""

    train: ParallelFiles
    valid: ParallelFiles
    test: ParallelFiles | None = None


def is_language(text: object) -> bool:
    """Return True if this can name a language, and so end a file's name: a short text without path separators."""
    return isinstance(text, str) and re.fullmatch(r"[\w.+-]{1,64}", text) is not None


def corpus_from_folder(folder: StrPath, source: str, target: str) -> Corpus:
    """Find a corpus in a folder: `train.<source>`, `train.<target>`, and likewise `valid` and `test`, plain or `.gz`.

    Validation files may also be called `val` or `dev`, test files `test_2016_flickr`; test files are optional.
    Raises FileNotFoundError with a list of what is missing.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    found: dict[str, ParallelFiles] = {}
    for split, names in NAMES.items():
        for name in reversed(names):  # if there are several, the first name counts
            sides = [_plain_or_compressed(folder / f"{name}.{language}") for language in (source, target)]
            if sides[0] and sides[1]:
                found[split] = ParallelFiles(sides[0], sides[1])
    if missing := [split for split in ("train", "valid") if split not in found]:
        sides = " and ".join(dict.fromkeys((f".{source}", f".{target}")))
        lacking = ", and ".join(f"{' or '.join(NAMES[split])} in {sides}" for split in missing)
        raise FileNotFoundError(f"{folder} lacks {lacking} (plain or .gz)")
    return Corpus(**found)


def _plain_or_compressed(path: Path) -> Path | None:
    return next((each for each in (path, path.with_name(f"{path.name}.gz")) if each.is_file()), None)


def read_lines(path: StrPath) -> Generator[str]:
    r"""Stream the lines of a UTF-8 text file, compressed with gzip if its name ends in `.gz`.

    Only \n and \r\n end a line; U+2028 and its like belong to the text. A leading byte order mark is dropped. Raises
    FileNotFoundError, or ValueError naming the line that is not UTF-8 text, is longer than any sentence, or after which
    compressed data is damaged.
    """
    path = Path(path)
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                text = decode_line(line, f"{path}, line {number}")
                yield text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}, after line {number}: damaged gzip data ({error})") from None


def decode_line(line: bytes, place: str) -> str:
    r"""Decode a line of UTF-8 and drop its \n or \r\n. Raises ValueError, naming its `place`, if it is not a sentence.

    NUL is valid UTF-8 but occurs in no text. It is half of each Latin letter in UTF-16, so it shows a file in UTF-16.
    """
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"{place}: longer than {MAX_LINE_BYTES} bytes")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        byte = line[error.start]
        raise ValueError(f"{place}: not UTF-8, byte {error.start + 1} is 0x{byte:02x} ({error.reason})") from None
    if "\0" in text:
        raise ValueError(f"{place}: no text in UTF-8, it has a NUL (if it is UTF-16, save it as UTF-8)")
    return text.removesuffix("\n").removesuffix("\r")
