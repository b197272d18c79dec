"""Text that somebody else wrote: what a terminal would obey is shown, and all else stays as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.cli.common import one_line
from minitransformer.system.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("two\r\nlines\ttab", r"two\r\nlines\ttab"),
        ("one\u2028two", r"one\u2028two"),
        ("\u202etxt.exe", r"\u202etxt.exe"),
        ("\ud800\udcff", r"\ud800\udcff"),
    ],
)
def test_what_a_terminal_obeys_is_shown(text, shown):
    assert visible(text) == shown


def test_all_else_stays():
    text = "ein Schütze, 10\xa0000 € · 射手 💥 e\u0301 a\u200db \\"
    assert visible(text) == text


@given(st.text(st.characters()))
def test_any_text_is_one_line_that_no_terminal_obeys(text):
    for line in (visible(text), one_line(text)):
        assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in line)
        assert line.splitlines() in ([line], [])
        assert line.encode().decode() == line
    assert visible(visible(text)) == visible(text)
