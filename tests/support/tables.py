"""Tables of mistakes as text, a line for each: its name, the edits that make it, and what else is to be said of it.

[heading]
name of the mistake | before → after | …

An edit puts `after` in the place of `before`, or nothing where it is left out, and \\n is the end of a line. A line
that is indented by four spaces holds more columns, one by eight goes on the column before.
"""

import re


def sections(table: str) -> dict[str, list[list[str]]]:
    """The lines under each heading, as lists of columns."""
    table = table.replace("\n        ", " ").replace("\n    ", " | ")
    _, *parts = re.split(r"^\[(.+)\]\n", table, flags=re.MULTILINE)  # a heading, its lines, a heading, …
    assert len(parts) == 2 * len(set(parts[::2])), "a heading stands twice: the lines of the first would be lost"
    return {
        heading: [[column.strip() for column in line.split(" | ")] for line in lines.splitlines()]
        for heading, lines in zip(parts[::2], parts[1::2], strict=True)
    }


def before_and_after(edit: str) -> list[str]:
    """Both sides of an edit, as they stand in a file."""
    return [side.replace("\\n", "\n") for side in re.split(" →(?: |$)", edit)]
