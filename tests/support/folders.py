"""The contents of a folder, files with a byte changed, and a disk that is full."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minitransformer.training import read_log

WALL_CLOCK = ("seconds", "tokens_per_second")


def contents(folder: Path) -> dict[str, bytes]:
    """The content of every file, by its name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same_training(folder: Path, expected: Path) -> None:
    """Assert equal files and folders with equal bytes; of the log all but the times. Pictures are drawn from it."""
    assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == sorted(
        path.relative_to(expected) for path in expected.rglob("*")
    )
    ours, theirs = contents(folder), contents(expected)
    for name in theirs:
        assert name.endswith(("log.jsonl", ".png")) or ours[name] == theirs[name], name
    logs = [read_log(path / "log.jsonl") for path in (folder, expected)]
    for record in [*logs[0], *logs[1]]:
        for name in WALL_CLOCK:
            del record[name]
    assert logs[0] == logs[1]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Within it no file of this process grows beyond `size` bytes, as on a disk that is full."""
    resource = pytest.importorskip(
        "resource", reason="needs POSIX (Linux, macOS): Windows has no limit on a file's size"
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def flips(path: Path, seed: int = 0, step: int = 1) -> Iterator[int]:
    """Change every `step`-th byte of a file, one bit of it or any, and put it back; yields its place."""
    content, rng = path.read_bytes(), random.Random(seed)
    for place in range(0, len(content), step):
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8) if rng.random() < 0.5 else rng.randrange(1, 256)
        path.write_bytes(changed)
        yield place
    path.write_bytes(content)
