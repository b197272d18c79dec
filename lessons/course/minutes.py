"""Estimate the minutes that a lesson takes a learner, from its source and at one pace for the whole course.

A minute is 100 words of prose, or 8 lines of code that are read and run; an exercise's minutes depend on its stars.
This is the pace of readers who took about seven hours for lessons 00 to 03 of the course's first edition. The weekend
path, followed from the README alone, took 9.75 hours, for which this pace says 9.8. A section whose heading ends with
"(optional)", with all below it, is not on the core path.
"""

import re
from typing import Any, NamedTuple

WORDS, LINES = 100, 8  # a minute
EXERCISE = {"★☆☆": 10, "★★☆": 20, "★★★": 45}  # minutes
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
STARS = re.compile(r"^### Exercise \d+ ([★☆]{3}): .+$")


class Minutes(NamedTuple):
    """Minutes of the whole lesson and of its core, rounded to five."""

    whole: int
    core: int


def minutes(notebook: Any) -> Minutes:
    """Return the minutes that a lesson takes a learner."""
    whole = core = 0.0
    optional = 0  # the level of the optional heading above; 0 for none
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            taken = len(cell["source"].splitlines()) / LINES
            whole, core = whole + taken, core + taken * (not optional)
            continue
        if "help" in cell["metadata"].get("tags", []):
            continue  # folded up, and not read by all
        for level, heading, text in sections(cell["source"]):
            if level and (not optional or level <= optional):
                optional = level if heading.endswith("(optional)") else 0
            stars = STARS.match(f"{'#' * level} {heading}")
            taken = len(re.findall(r"\w+", f"{heading} {text}")) / WORDS + (EXERCISE[stars[1]] if stars else 0)
            whole, core = whole + taken, core + taken * (not optional)
    return Minutes(5 * round(whole / 5), 5 * round(core / 5))


def sections(markdown: str) -> list[tuple[int, str, str]]:
    """Split a cell of prose into (level, heading, text below it); a line of code that begins with # is no heading."""
    parts = re.split(r"^(```.*?^```)$", markdown, flags=re.MULTILINE | re.DOTALL)
    safe = "".join(part.replace("#", " ") if part.startswith("```") else part for part in parts)
    found = HEADING.split(safe)
    return [(0, "", found[0])] + [
        (len(level), heading.strip(), text)
        for level, heading, text in zip(found[1::3], found[2::3], found[3::3], strict=True)
    ]
