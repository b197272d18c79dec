"""The folder of the Multi30k files, for the tests that read real text; the project does not redistribute them."""

import gzip
import os
from pathlib import Path

import pytest

from minitransformer.data.multi30k import default_cache_dir


def multi30k_dir() -> Path | None:
    """The folder with train.en.gz and the rest: $MULTI30K_DIR, or the cache of a download; None if there is none."""
    folder = Path(os.environ.get("MULTI30K_DIR", default_cache_dir()))
    return folder if (folder / "train.en.gz").is_file() else None


def multi30k_lines(name: str) -> list[str]:
    """The lines of one file, such as "train.de"; skips the test where the files are not at hand."""
    folder = multi30k_dir()
    if folder is None:
        pytest.skip("Multi30k is not on this machine: set MULTI30K_DIR to the folder of its .gz files")
    with gzip.open(folder / f"{name}.gz", "rt", encoding="utf-8", newline="\n") as file:
        return [line.removesuffix("\n") for line in file]
