"""A file with one byte changed, each in turn."""

import random
from collections.abc import Iterator
from pathlib import Path


def flips(path: Path, seed: int = 0, step: int = 1) -> Iterator[int]:
    """Change every `step`-th byte of a file, one bit of it or any, and put it back; yields its place."""
    content, rng = path.read_bytes(), random.Random(seed)
    for place in range(0, len(content), step):
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8) if rng.random() < 0.5 else rng.randrange(1, 256)
        path.write_bytes(changed)
        yield place
    path.write_bytes(content)
