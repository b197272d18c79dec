"""The token ids of a corpus, on disk: as large as the disk allows, whatever the memory.

A dataset is a folder of three files: `ids.bin`, the ids of source 0, target 0, source 1, … without gaps or special
tokens; `offsets.bin`, where each of these 2N sentences starts, and the end; `meta.json`. It is written as a stream
and then memory-mapped: what a pass over it needs in memory is eight bytes a pair, for the lengths.
"""

import hashlib
import json
import os
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .parallel import SentencePair, read_parallel

FORMAT, VERSION = "minitransformer token dataset", 1
CHECKSUM_BLOCK = 1 << 20  # numbers
StrPath = str | os.PathLike[str]


class Tokenizer(Protocol):
    """What turns text into ids below `vocab_size`, none of them 0 (padding); `BPETokenizer` is one."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> Sequence[int]: ...

    def to_json(self) -> str: ...


class TokenDataset:
    """Sentence pairs as token ids: `dataset[i]` is (source ids, target ids), without special tokens.

    ids: (M,) integers and offsets: (2N + 1,) int64, as the module's docstring says, in memory or memory-mapped.
    """

    def __init__(
        self,
        ids: NDArray[np.integer],
        offsets: NDArray[np.int64],
        max_id: int,
        num_too_long: int = 0,
        num_empty: int = 0,
    ) -> None:
        self._ids = ids
        self._offsets = offsets
        lengths = np.diff(offsets).astype(np.int32).reshape(-1, 2)
        self.source_lengths, self.target_lengths = np.ascontiguousarray(lengths.T)  # (N,) each
        self.max_id = max_id
        self.num_too_long = num_too_long
        self.num_empty = num_empty

    def __len__(self) -> int:
        return len(self.source_lengths)

    def __getitem__(self, index: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not 0 <= index < len(self):
            raise IndexError(f"a dataset of {len(self)} pairs has no pair {index}")
        start, middle, stop = self._offsets[2 * index : 2 * index + 3]
        return self._ids[start:middle], self._ids[middle:stop]

    def __iter__(self) -> Iterator[tuple[NDArray[np.integer], NDArray[np.integer]]]:
        return map(self.__getitem__, range(len(self)))

    @property
    def num_dropped(self) -> int:
        """Pairs of the corpus that are not in the dataset: those too long, and those with an empty side."""
        return self.num_too_long + self.num_empty

    def checksum(self) -> int:
        """CRC-32 of every id and every sentence's place, whatever integers hold them; read in blocks."""
        crc = 0
        for array in (self._ids, self._offsets):
            for start in range(0, len(array), CHECKSUM_BLOCK):
                crc = zlib.crc32(array[start : start + CHECKSUM_BLOCK].astype("<i8").tobytes(), crc)
        return crc

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[ArrayLike, ArrayLike]]) -> "TokenDataset":
        """A dataset in memory, of pairs of ids without special tokens.

        Raises ValueError where there is no pair, and as `as_ids`.
        """
        sentences = [as_ids(ids) for pair in pairs for ids in pair]
        if not sentences:
            raise ValueError("pairs must not be empty")
        ids = np.concatenate(sentences)
        offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        return cls(ids, offsets, int(ids.max(initial=0)))

    @classmethod
    def build(
        cls,
        pairs: Iterable[SentencePair],
        tokenizer: Tokenizer,
        folder: StrPath,
        max_length: int = 512,
        progress: bool = False,
        fingerprint: str = "",
    ) -> "TokenDataset":
        """Write a dataset as a stream, in a folder that appears once it is complete, and open it.

        A pair is left out, and counted, where a side is blank or has more than `max_length` tokens, the special
        one included. Raises ValueError where no pair is left or the tokenizer breaks its word, FileExistsError
        where the folder holds something else.
        """
        with _complete_folder(Path(folder)) as unfinished:
            meta = _write(pairs, tokenizer, unfinished, max_length, progress)
            meta |= {"format": FORMAT, "version": VERSION, "fingerprint": fingerprint}
            (unfinished / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        return cls.open(folder)

    @classmethod
    def open(cls, folder: StrPath, fingerprint: str | None = None) -> "TokenDataset":
        """Memory-map a dataset that `build` wrote, if given only one built with this `fingerprint`.

        Raises FileNotFoundError, or ValueError where it is another or not a whole dataset.
        """
        folder = Path(folder)
        meta = _read_meta(folder)
        if fingerprint is not None and meta["fingerprint"] != fingerprint:
            raise ValueError(f"{folder} holds another dataset: its corpus, tokenizer or options differ")
        ids = _map(folder / "ids.bin", meta["dtype"], meta["num_ids"])
        offsets = _map(folder / "offsets.bin", "<i8", 2 * meta["num_pairs"] + 1)
        if offsets[0] != 0 or offsets[-1] != len(ids) or np.any(offsets[1:] < offsets[:-1]):
            raise ValueError(f"{folder}/offsets.bin is damaged: offsets must rise from 0 to {len(ids)}")
        return cls(ids, offsets, meta["max_id"], meta["num_too_long"], meta["num_empty"])

    @classmethod
    def from_files(
        cls,
        source: StrPath,
        target: StrPath,
        tokenizer: Tokenizer,
        folder: StrPath,
        max_length: int = 512,
        progress: bool = False,
    ) -> "TokenDataset":
        """The dataset of two line-aligned files: opened if `folder` holds the same, otherwise built there.

        The same is: of the same text, tokenizer and `max_length`, by SHA-256. Raises as `read_parallel` and `build`.
        """
        fingerprint = _fingerprint(source, target, tokenizer, max_length)
        with suppress(FileNotFoundError, ValueError):
            return cls.open(folder, fingerprint)
        pairs = read_parallel(source, target)
        return cls.build(pairs, tokenizer, folder, max_length, progress, fingerprint)


def as_ids(ids: ArrayLike) -> NDArray[np.int64]:
    """A sentence's token ids as a new array (T,).

    Raises TypeError where they are not integers, ValueError where one is not positive (0 is padding).
    """
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"token ids must be integers, got {array.dtype}")
    if array.min() <= 0:
        raise ValueError(f"token ids must be positive (0 is padding), got {array.min()}")
    return array.astype(np.int64)


def _write(
    pairs: Iterable[SentencePair], tokenizer: Tokenizer, folder: Path, max_length: int, progress: bool
) -> dict[str, Any]:
    """Write `ids.bin` and `offsets.bin`; the rest of what `open` must know."""
    from tqdm.std import tqdm

    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    num_pairs = num_ids = num_too_long = num_empty = max_id = 0
    with (folder / "ids.bin").open("wb") as ids_file, (folder / "offsets.bin").open("wb") as offsets_file:
        offsets_file.write(struct.pack("<q", 0))
        for pair in tqdm(pairs, desc="tokenizing", unit=" pairs", disable=not progress):
            if not (pair.source.strip() and pair.target.strip()):
                num_empty += 1
                continue
            source, target = tokenizer.encode(pair.source), tokenizer.encode(pair.target)
            if max(len(source), len(target)) + 1 > max_length:
                num_too_long += 1
                continue
            ids = as_ids([*source, *target])
            if ids.max(initial=0) >= tokenizer.vocab_size:
                raise ValueError(f"token id {ids.max()} is outside the vocabulary of {tokenizer.vocab_size}")
            ids_file.write(ids.astype(dtype).tobytes())
            offsets_file.write(struct.pack("<qq", num_ids + len(source), num_ids + len(ids)))
            num_pairs += 1
            num_ids += len(ids)
            max_id = int(ids.max(initial=max_id))
        for file in (ids_file, offsets_file):
            file.flush()
            os.fsync(file.fileno())
    if num_pairs == 0:
        raise ValueError(
            f"no sentence pair is left: {num_empty} had an empty side, {num_too_long} more than {max_length} tokens"
        )
    return {
        "dtype": dtype,
        "num_pairs": num_pairs,
        "num_ids": num_ids,
        "max_id": max_id,
        "num_too_long": num_too_long,
        "num_empty": num_empty,
    }


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    try:
        meta = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(meta, dict) or (meta.get("format"), meta.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"{path} does not describe a {FORMAT} of version {VERSION}")
    return meta


def _map(path: Path, dtype: str, size: int) -> NDArray[Any]:
    """Memory-map a file of `size` numbers. Raises ValueError where it has another size."""
    expected = size * np.dtype(dtype).itemsize
    if path.stat().st_size != expected:
        raise ValueError(f"{path} must have {expected} bytes, but has {path.stat().st_size}")
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)


def _fingerprint(source: StrPath, target: StrPath, tokenizer: Tokenizer, max_length: int) -> str:
    digest = hashlib.sha256(f"{VERSION} {max_length} {tokenizer.to_json()}".encode())
    for path in (source, target):
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@contextmanager
def _complete_folder(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` that takes its name, replacing an older dataset, if the block ends without an error."""
    if folder.exists() and not (folder / "meta.json").is_file() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} exists and is not a token dataset")
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    except OSError as error:
        if error.filename is None:  # a write that failed does not say where, unlike a file that did not open
            raise OSError(error.errno, f"cannot write {folder}: {error.strerror}") from None
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
