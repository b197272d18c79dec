"""The token ids of a corpus, on disk, and their batches: a dataset may be larger than memory.

A dataset is a folder of three files: `ids.bin`, the ids of source 0, target 0, source 1, … without gaps or special
tokens; `offsets.bin`, the starts of these 2N sentences and the end of the last; `meta.json`. It is written as a stream
and then memory-mapped: a pass over it needs only eight bytes of memory for each pair, for the lengths.

`meta.json` holds the SHA-256 of the other two, and its own checksum (see `minitransformer.system.sealed_json`): a
dataset with a changed byte does not open.
"""

import hashlib
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..system import WEBASSEMBLY
from ..system.atomic import unfinished, unfinished_name
from ..system.progress import tqdm
from ..system.sealed_json import seal, unseal
from .batching import OURS, Batch, Marks, as_ids, check_special_ids, collate
from .sentence_pairs import StrPath

FORMAT, VERSION = "minitransformer token dataset", 2
META, NUMBERS = "meta.json", ("ids.bin", "offsets.bin")
DTYPES = ("<u2", "<u4")
COUNTS = ("num_pairs", "num_ids", "max_id", "num_too_long", "num_empty")
CHECKSUM_BLOCK = 1 << 20  # numbers

# Pairs with the same longer side are sorted by the difference of their sides plus a random number below this.
# With 0 there is least padding, but then every epoch groups nearly the same sentences.
LENGTH_NOISE = np.float32(3)


class Tokenizer(Protocol):
    """Anything that turns text into ids below `vocab_size`, none of them 0 (padding), as `BPETokenizer` does.

    `encode_target`, where it has one, turns the target of a pair into ids.
    """

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> Sequence[int]: ...

    def to_json(self) -> str: ...


class TokenDataset:
    """Sentence pairs as token ids: `dataset[i]` is (source ids, target ids), without special tokens.

    ids (M,), integers, and offsets (2N + 1,), int64, are those of the module's docstring, in memory or memory-mapped.
    meta is the content of `meta.json`, if the dataset was opened from a folder. `marks` are the ids around sentences
    in its batches, which those of a text or of gaps take from here too: set them to those of another library's model.
    """

    marks: Marks = OURS

    def __init__(
        self,
        ids: NDArray[np.integer],
        offsets: NDArray[np.int64],
        max_id: int,
        num_too_long: int = 0,
        num_empty: int = 0,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.meta = meta or {}
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
    def ids(self) -> NDArray[np.integer]:
        """The ids of all sentences, one after another, `(M,)`."""
        return self._ids

    @property
    def num_dropped(self) -> int:
        """The number of pairs of the corpus that are not in the dataset: too long, or with an empty side."""
        return self.num_too_long + self.num_empty

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> "Batches":
        """Return the batches for an encoder–decoder of this configuration; a `seed` of None, for validation, is 0.

        Raises ValueError as `Batches` does, and if the model's special ids are not those of the data.
        """
        check_special_ids(config.pad_id, config.bos_id, config.eos_id, self.marks)
        return Batches(self, tokens_per_batch, seed or 0, config.vocab_size, config.max_length)

    def checksum(self) -> int:
        """Return the CRC-32 of all ids and offsets as 64-bit integers, whatever type they are stored in."""
        crc = 0
        for array in (self._ids, self._offsets):
            for start in range(0, len(array), CHECKSUM_BLOCK):
                crc = zlib.crc32(array[start : start + CHECKSUM_BLOCK].astype("<i8").tobytes(), crc)
        return crc

    @classmethod
    def from_pairs(
        cls, pairs: Iterable[tuple[ArrayLike, ArrayLike]], least: int = 1, marks: Marks = OURS
    ) -> "TokenDataset":
        """Make a dataset in memory, of pairs of ids, `least` or more, without special tokens, which `marks` are.

        Raises ValueError if there is no pair, and as `as_ids` does.
        """
        sentences = [as_ids(ids, least) for pair in pairs for ids in pair]
        if not sentences:
            raise ValueError("pairs must not be empty")
        ids = np.concatenate(sentences)
        offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        dataset = cls(ids, offsets, int(ids.max(initial=0)))
        dataset.marks = marks
        return dataset

    @classmethod
    def build(
        cls,
        pairs: Iterable[tuple[str, str]],
        tokenizer: Tokenizer,
        folder: StrPath,
        max_length: int = 512,
        progress: bool = False,
        fingerprint: str = "",
        notes: Mapping[str, Any] | None = None,
        one_sided: bool = False,
    ) -> "TokenDataset":
        """Write a dataset as a stream, in a folder that appears once it is complete, and open it.

        A pair is left out, and counted, if a side is blank or has more than `max_length` tokens with its special one;
        the target of `one_sided` pairs may be blank. `fingerprint` and `notes`, which JSON must be able to hold, go
        into `meta`. Raises ValueError if no pair is left or the tokenizer yields an id outside its vocabulary, and as
        `check_replaceable` does.
        """
        with _complete_folder(Path(folder)) as beside:
            meta = _write(pairs, tokenizer, beside, max_length, progress, one_sided)
            meta |= {"format": FORMAT, "version": VERSION, "fingerprint": fingerprint, "notes": dict(notes or {})}
            meta |= {"tokenizer": sha256(tokenizer.to_json().encode()), "sha256": _checksums(beside)}
            with open(beside / META, "wb") as file:
                file.write(seal(meta, indent=2))
                os.fsync(file.fileno())
        return cls.open(folder)

    @classmethod
    def open(cls, folder: StrPath) -> "TokenDataset":
        """Memory-map a dataset that `build` wrote. Raises FileNotFoundError, or ValueError if it is damaged."""
        folder = Path(folder)
        meta = read_meta(folder)
        ids = _map(folder, "ids.bin", meta["dtype"], meta["num_ids"])
        offsets = _map(folder, "offsets.bin", "<i8", 2 * meta["num_pairs"] + 1)
        for name, checksum in _checksums(folder).items():
            if meta["sha256"].get(name) != checksum:
                raise _damaged(folder, name, "it does not match its checksum")
        if offsets[0] != 0 or offsets[-1] != len(ids) or np.any(offsets[1:] < offsets[:-1]):
            raise _damaged(folder, "offsets.bin", f"offsets must rise from 0 to {len(ids)}")
        return cls(ids, offsets, meta["max_id"], meta["num_too_long"], meta["num_empty"], meta)


class Batches:
    """A dataset's batches: every pair once an epoch, with pairs of about the same length together (Vaswani 2017, §5.1).

    A batch is a rectangle of token ids, so a short sentence beside a long one is mostly padding. Therefore an epoch's
    pairs are sorted by length, with ties in random order, and cut into batches; these are shuffled. The padded size of
    a batch, its longest side (with </s> or <s>) × its pairs, is at most `tokens_per_batch`. All of this follows from
    (seed, epoch): a batch does not depend on those made before it, so a stopped training resumes exactly. Every epoch
    has `len(batches)` batches, so batch i of a whole training is `batches.batch(*divmod(i, len(batches)))`.

    Raises ValueError if the dataset is empty, if its longest sentence does not fit into a batch or has more than
    `max_length` tokens (with </s> or <s>), or if it holds an id outside a vocabulary of `vocab_size`.
    """

    def __init__(
        self,
        dataset: TokenDataset,
        tokens_per_batch: int,
        seed: int = 0,
        vocab_size: int | None = None,
        max_length: int | None = None,
    ) -> None:
        if len(dataset) == 0:
            raise ValueError("the dataset has no sentence pairs")
        if vocab_size is not None and dataset.max_id >= vocab_size:
            raise ValueError(f"the dataset holds token id {dataset.max_id}, but the vocabulary has {vocab_size} tokens")
        self._dataset = dataset
        self._seed = seed
        self._longer = np.maximum(dataset.source_lengths, dataset.target_lengths) + 1  # (N,)
        longest = self._longer.max()
        if max_length is not None and longest > max_length:
            raise ValueError(f"max_length is {max_length}, but the longest sentence has {longest} tokens")
        self._edges = _cut(np.sort(self._longer), tokens_per_batch)
        self._epoch_order = lru_cache(maxsize=1)(self._shuffle)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._edges) - 1

    def indices(self, epoch: int, index: int) -> NDArray[np.int64]:
        """Return the numbers of the pairs in batch `index` of `epoch`, sorted by source length, then by target length.

        Sorted rows need less padding once the batch is split. Raises IndexError if the epoch has fewer batches.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"an epoch has batches 0 to {len(self) - 1}, got {index}")
        pairs, batches = self._epoch_order(epoch)
        start, stop = self._edges[batches[index] :][:2]
        chosen = pairs[start:stop]
        by_length = (self._dataset.target_lengths[chosen], self._dataset.source_lengths[chosen])
        return chosen[np.lexsort(by_length)]

    def batch(self, epoch: int, index: int) -> Batch:
        """Return batch `index` of `epoch`; the batches before it are not made."""
        sources, targets = zip(*map(self._dataset.__getitem__, self.indices(epoch, index)), strict=True)
        return collate(sources, targets, marks=self._dataset.marks)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Return the batches of `epoch` in order, from batch `start` on."""
        return (self.batch(epoch, index) for index in range(start, len(self)))

    def _shuffle(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of all pairs (N,), sorted by length with random ties, and the order of the batches."""
        rng = np.random.default_rng([self._seed, epoch])
        ties = LENGTH_NOISE * rng.random(len(self._longer), dtype=np.float32)
        ties += self._dataset.source_lengths - self._dataset.target_lengths
        # The cuts depend only on the sorted longer sides, which are the same in every epoch.
        pairs = np.lexsort((ties, self._longer))
        return pairs, rng.permutation(len(self))


def _cut(lengths: NDArray[np.integer], tokens_per_batch: int) -> NDArray[np.int64]:
    """Return the edges of the largest batches of ascending `lengths` with longest × sentences ≤ tokens_per_batch."""
    if lengths[-1] > tokens_per_batch:
        raise ValueError(f"tokens_per_batch is {tokens_per_batch}, but the longest sentence has {lengths[-1]} tokens")
    edges = [0]
    while edges[-1] < len(lengths):
        start = edges[-1]
        candidates = lengths[start : start + tokens_per_batch // int(lengths[start])]
        padded_sizes = candidates.astype(np.int64) * np.arange(1, len(candidates) + 1)
        edges.append(start + int(np.searchsorted(padded_sizes, tokens_per_batch, side="right")))
    return np.array(edges)


def _write(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    folder: Path,
    max_length: int,
    progress: bool,
    one_sided: bool,
) -> dict[str, Any]:
    """Write `ids.bin` and `offsets.bin`; return the type and the counts for `meta.json`."""
    encode_target = getattr(tokenizer, "encode_target", tokenizer.encode)
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    count = dict.fromkeys(COUNTS, 0)
    with (folder / "ids.bin").open("wb") as ids_file, (folder / "offsets.bin").open("wb") as offsets_file:
        offsets_file.write(struct.pack("<q", 0))
        for pair in tqdm(pairs, desc="tokenizing", unit=" pairs", disable=None if progress else True):
            if not all(text.strip() for text in pair[: 2 - one_sided]):
                count["num_empty"] += 1
                continue
            source, target = tokenizer.encode(pair[0]), [] if one_sided else encode_target(pair[1])
            if max(len(source), len(target)) + 1 > max_length:
                count["num_too_long"] += 1
                continue
            ids = as_ids([*source, *target], least=1 - one_sided)
            if ids.max(initial=0) >= tokenizer.vocab_size:
                raise ValueError(f"token id {ids.max()} is outside the vocabulary of {tokenizer.vocab_size}")
            ids_file.write(ids.astype(dtype).tobytes())
            offsets_file.write(struct.pack("<qq", count["num_ids"] + len(source), count["num_ids"] + len(ids)))
            count["num_pairs"] += 1
            count["num_ids"] += len(ids)
            count["max_id"] = int(ids.max(initial=count["max_id"]))
        for file in (ids_file, offsets_file):
            file.flush()
            os.fsync(file.fileno())
    if count["num_pairs"] == 0:
        raise ValueError(
            f"no {'line' if one_sided else 'sentence pair'} is left: {count['num_empty']} "
            f"{'were blank' if one_sided else 'had an empty side'}, {count['num_too_long']} "
            f"{'had ' if one_sided else ''}more than {max_length} tokens"
        )
    return {"dtype": dtype, **count}


def read_meta(folder: Path) -> dict[str, Any]:
    """Read a dataset's `meta.json`. Raises FileNotFoundError, or ValueError if it is damaged."""
    try:
        meta = unseal((folder / META).read_bytes())
        if meta.get("format") != FORMAT or meta.get("version") != VERSION:
            raise ValueError(f"it does not describe a {FORMAT} of version {VERSION}")
        if meta["dtype"] not in DTYPES or any(type(meta[name]) is not int or meta[name] < 0 for name in COUNTS):
            raise ValueError("it does not say how many numbers there are")
        if not {"fingerprint", "notes", "tokenizer", "sha256"} <= meta.keys():
            raise ValueError("it lacks checksums")
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, META, str(error)) from None
    return meta


def check_replaceable(folder: Path) -> None:
    """Raise unless `build` may write to `folder`: it does not exist, is empty or holds a dataset.

    FileExistsError names a file that belongs to no dataset; ValueError says that `meta.json` is damaged. A dataset is
    recognised by the names of its files and by its `meta.json`.
    """
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise FileExistsError(f"{folder} is not a token dataset: move it elsewhere, or choose another folder")
    names = {path.name for path in folder.iterdir()}
    for name in sorted(names - {META, *NUMBERS}):
        raise FileExistsError(f"{folder / name} is not part of a token dataset: move it elsewhere")
    if names and META not in names:
        raise FileExistsError(f"{folder} has no {META} and is not a token dataset: move it elsewhere or delete it")
    if names:
        read_meta(folder)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksums(folder: Path) -> dict[str, str]:
    return {name: file_sha256(folder / name) for name in NUMBERS}


def _damaged(folder: Path, name: str, reason: str) -> ValueError:
    return ValueError(
        f"{folder / name} is damaged ({reason}): delete the folder {folder}, and the dataset is made again"
    )


def _map(folder: Path, name: str, dtype: str, size: int) -> NDArray[Any]:
    """Memory-map a file of `size` numbers; read it in a browser. Raises ValueError if it has another size."""
    path, expected = folder / name, size * np.dtype(dtype).itemsize
    if path.stat().st_size != expected or not expected:
        raise _damaged(folder, name, f"it must have {expected} bytes, but has {path.stat().st_size}")
    if WEBASSEMBLY:
        return np.frombuffer(path.read_bytes(), dtype)
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)


@contextmanager
def _complete_folder(folder: Path) -> Iterator[Path]:
    """Make a new folder, which replaces the dataset in `folder` if the block ends without error; else it is removed."""
    check_replaceable(folder)
    for left in unfinished(folder.parent, rf"\.{re.escape(folder.name)}"):
        with suppress(OSError):  # other files in the folder keep it
            _remove(left)
    beside = folder.with_name(unfinished_name(f".{folder.name}"))
    beside.mkdir(parents=True)
    try:
        yield beside
        _remove(folder)
        beside.rename(folder)
    except OSError as error:
        if error.filename is None:  # a write that failed does not say where, unlike a file that did not open
            raise OSError(error.errno, f"cannot write {folder}: {error.strerror}") from None
        raise
    finally:
        with suppress(OSError):
            _remove(beside)


def _remove(folder: Path) -> None:
    """Remove a dataset's files and folder; `meta.json`, by which a dataset is recognised, goes last."""
    if folder.is_dir():
        for name in (*NUMBERS, META):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
