"""Parallel text: two line-aligned files, read as one stream of sentence pairs.

Line n of the source file is translated by line n of the target file. The files are UTF-8, plain or gzip
(`.gz`), of any size: one pair at a time is in memory. Whatever is wrong with them is told in one sentence that
names the file and the line.
"""

import gzip
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import NamedTuple

MAX_LINE_BYTES = 1 << 20  # a longer line is no sentence, and would break the promise of bounded memory
BYTE_ORDER_MARK = "\ufeff"


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def read_lines(path: str | PathLike[str]) -> Generator[str]:
    r"""Stream the lines of a UTF-8 text file, gzip if its name ends in `.gz`.

    A line ends in \n or \r\n and nowhere else: U+2028 and its like belong to the text. A leading byte order mark
    is dropped. Raises FileNotFoundError, or ValueError naming the line that is not text in UTF-8 or longer than any
    sentence, or after which compressed data is damaged.
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
    r"""A line of UTF-8 without its \n or \r\n; raises ValueError, naming its `place`, for what is no sentence.

    A NUL is valid UTF-8 and in no text; it is half of UTF-16's letters, which without a byte order mark look like it.
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


def read_parallel(source: str | PathLike[str], target: str | PathLike[str]) -> Iterator[SentencePair]:
    """Stream the sentence pairs of two line-aligned files (see `read_lines`).

    Raises ValueError where a file is empty or ends before the other, besides what `read_lines` raises.
    """
    number = 0
    with closing(read_lines(source)) as source_lines, closing(read_lines(target)) as target_lines:
        for number, (source_line, target_line) in enumerate(zip_longest(source_lines, target_lines), start=1):
            if source_line is None or target_line is None:
                shorter, longer = (source, target) if source_line is None else (target, source)
                raise ValueError(
                    f"{shorter} ends after {number - 1} lines, but {longer} has a line {number}: "
                    "parallel files must have as many lines"
                )
            yield SentencePair(source_line, target_line)
    if number == 0:
        raise ValueError(f"{source} and {target} are empty")
