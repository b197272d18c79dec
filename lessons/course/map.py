"""The course's map in `lessons/README.md`: a row for each lesson, from the executed notebooks; and their pictures."""

import base64
import re
from pathlib import Path
from typing import Any, NamedTuple

from .sources import LESSONS, number_of, read_source, sources

README, PICTURES = LESSONS / "README.md", LESSONS / "pictures"
BEGIN, END = "<!-- the map: made by `make notebooks` -->\n", "<!-- the map's end -->\n"
PARTS = {
    "00": "Before the model",
    "04": "The model, part by part",
    "09": "Training it, and using it",
    "13": "Making it fast",
    "18": "All of it, yours",
    "19": "The family that grew out of it",
    "26": "On many machines",
}
EXERCISE = r"^### Exercise \d+ ([★☆]{3}): (.+)$"
WIDTH = 360  # of a picture in the map, pixels


class Entry(NamedTuple):
    """What the map says of a lesson."""

    name: str
    title: str
    goal: str
    known: str
    takes: str
    exercises: list[str]


def entry(notebook: Any, name: str) -> Entry:
    """The map's row, from the notebook's own head and its exercises' headings."""
    head = notebook.cells[0].source
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return Entry(
        name,
        _found(r"^# (.+)$", head),
        _found(r"\*\*You will be able to\*\*\s+([^|]+?)\n\n", head),
        _found(r"^\| you know \| (.+?) \|$", head),
        _found(r"^\| takes \| (.+?) \|$", head),
        [" ".join(found) for found in re.findall(EXERCISE, prose, re.MULTILINE)],
    )


def rendered() -> str:
    """The map as Markdown."""
    lines = []
    for source in sources():
        row = entry(read_source(source), source.stem)
        if part := PARTS.get(number_of(source)):
            lines += [f"\n## {part}\n", "| | |", "| --- | --- |"]
        picture = f'[<img src="pictures/{row.name}.png" width="{WIDTH}" alt="{row.title}">]({row.name}.ipynb)'
        text = f"[**{row.title}**]({row.name}.ipynb)<br>You will be able to {row.goal}<br>"
        tasks = "; ".join(row.exercises)
        lines.append(f"| {picture} | {text}*You know:* {row.known}.<br>*Exercises:* {tasks}.<br>*Takes* {row.takes}. |")
    return "\n".join(lines) + "\n\n"


def write() -> None:
    """Put the map into README, between its marks."""
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    README.write_text(before + BEGIN + rendered() + END + rest.split(END)[1], encoding="utf-8")


def write_picture(notebook: Any, path: Path) -> None:
    """The lesson's picture beside the map: of the cell tagged "picture", else the first that was drawn."""
    drawn = [(cell, image) for cell in notebook.cells for image in _images(cell)]
    tagged = [image for cell, image in drawn if "picture" in cell.metadata.get("tags", [])]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(base64.b64decode((tagged or [image for _, image in drawn])[0]))


def _images(cell: Any) -> list[str]:
    return [output.data["image/png"] for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise ValueError(f"the lesson's head has nothing like {pattern!r}")
    return " ".join(found[1].split())
