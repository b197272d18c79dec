"""Openings that no docstring may have."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ["minitransformer", "kernels", "lessons", "tests"]
ASKING = re.compile(r'(?:\A|:(?:  # .*)?\n)[ ]*r?"""((?:What|The same|Those|Whether|How|Where|Which|Who)\b.*)')
MOST_ASKING = 30


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_docstring_says_what_a_thing_is_and_does_not_begin_with_an_inversion(folder):
    for path in (ROOT / folder).rglob("*.py"):
        found = re.search(r'^\s*r?"""(Of|Whose|By how) .*', path.read_text(encoding="utf-8"), re.MULTILINE)
        assert not found, f"{path}: {found and found[0]}"


def test_docstrings_say_what_a_thing_does_or_is_and_do_not_ask():
    """They begin "Return True if …" or "The number of …", not "Whether …" or "How many …"."""
    found = [
        f"{path.relative_to(ROOT)}: {asking[1]}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for asking in ASKING.finditer(path.read_text(encoding="utf-8"))
    ]
    assert len(found) <= MOST_ASKING, "\n".join([f"{len(found)} docstrings ask, at most {MOST_ASKING} may:", *found])
