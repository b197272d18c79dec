"""Where a translation task's files are: training, validation and test text in two languages."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from .parallel import SentencePair, read_parallel

# The names that a split's files go by, each with a language suffix: train.en, or train.en.gz.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test", "test_2016_flickr")}


def is_language(text: str) -> bool:
    """Whether a text can name a language: the suffix of a file, so neither empty nor with a path's separators."""
    return re.fullmatch(r"[\w.+-]{1,64}", text) is not None


@dataclass(frozen=True)
class ParallelFiles:
    """Two line-aligned text files."""

    source: Path
    target: Path

    def read(self) -> Iterator[SentencePair]:
        """Stream the sentence pairs; raises as `read_parallel` does."""
        return read_parallel(self.source, self.target)


@dataclass(frozen=True)
class Corpus:
    """The files of a translation task; it may have no `test` set."""

    train: ParallelFiles
    valid: ParallelFiles
    test: ParallelFiles | None = None


def corpus_from_folder(folder: str | PathLike[str], source: str, target: str) -> Corpus:
    """Find a corpus in a folder: `train.<source>` and `train.<target>`, likewise `valid` and `test`, plain or `.gz`.

    Validation files may also be called `val` or `dev`, test files `test_2016_flickr`; test files are optional.
    Raises FileNotFoundError listing what is missing.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    train, valid, test = (_find_split(folder, split, source, target) for split in NAMES)
    if train is None or valid is None:
        missing = [
            f"{' or '.join(NAMES[split])} in .{source} and .{target}"
            for split, files in (("train", train), ("valid", valid))
            if files is None
        ]
        raise FileNotFoundError(f"{folder} lacks {', and '.join(missing)} (plain or .gz)")
    return Corpus(train, valid, test)


def _find_split(folder: Path, split: str, source: str, target: str) -> ParallelFiles | None:
    for name in NAMES[split]:
        source_path, target_path = _find(folder, f"{name}.{source}"), _find(folder, f"{name}.{target}")
        if source_path and target_path:
            return ParallelFiles(source_path, target_path)
    return None


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
