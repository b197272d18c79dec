"""Files that `pretrained.load` must refuse."""

import tracemalloc
from pathlib import Path

import pytest

from minitransformer.pretrained import PretrainedError, load


def refused_by_load(path: Path, *parts: str, most: float = 20e6, errors: tuple = (PretrainedError,)) -> str:
    """Assert that `load` says one short line with one of these parts, in less than so many bytes; return the line."""
    tracemalloc.start()
    with pytest.raises(errors) as caught:
        load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    said = str(caught.value)
    assert any(part in said for part in parts), said
    assert "\n" not in said
    assert len(said) <= 1000
    assert peak < most
    return said
