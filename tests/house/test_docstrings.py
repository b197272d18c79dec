"""Openings that no docstring may have."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["minitransformer", "kernels", "lessons", "tests"])
def test_a_docstring_says_what_a_thing_is_and_does_not_begin_with_an_inversion(folder):
    for path in (ROOT / folder).rglob("*.py"):
        found = re.search(r'^\s*r?"""(Of|Whose|By how) .*', path.read_text(encoding="utf-8"), re.MULTILINE)
        assert not found, f"{path}: {found and found[0]}"
