"""`python -m course.notebooks [NN ...]`: build the executed notebooks from their sources.

`src/NN_name.py` (percent format) becomes `NN_name.ipynb`, executed, outputs kept. A notebook in which an exercise has
been answered, in whatever cell, is not overwritten without `--overwrite`. Then the lesson's picture and the table of
all lessons in `README.md`, the course's map, are written.
"""

import argparse
import base64
import html
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbclient import NotebookClient

from minitransformer.system.atomic import atomic_write

from . import answers
from .cells import built_fingerprint, count_answers, read_cells
from .recorded import READS, RECORD, fingerprints
from .sources import LESSONS, Notebook, fingerprint, is_exercise, notebook_of, number_of, read_source, sources

SECONDS_A_CELL = 600
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
    "27": "From rewards",
    "28": "In few bits",
    "29": "What heads do together",
    "30": "Pictures and words",
}
EXERCISE = r"^### Exercise \d+ ([★☆]{3}): (.+)$"
WIDTH = 360  # pixels of a picture in the table


def execute(notebook: Notebook) -> float:
    """Run every cell in place, in the lessons' folder, and return the seconds. Raises if a cell raises."""
    started = time.perf_counter()
    folder = {"metadata": {"path": str(LESSONS)}}
    client = NotebookClient(notebook, timeout=SECONDS_A_CELL, kernel_name="python3", resources=folder)
    client.extra_arguments = ["--log-level=ERROR"]  # the kernel's warning about its open port would be an output
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of each cell, which change with every build
    return time.perf_counter() - started


def reason_to_keep(source: Path) -> str:
    """Return why a lesson's notebook must not be overwritten, as the end of a sentence; "" if it may be.

    The reason is a learner's work, in whatever cell, or a file that is not a notebook and may hold some.
    """
    path = notebook_of(source)
    if not path.exists():
        return ""
    content = path.read_bytes()
    try:
        cells = read_cells(content)
    except ValueError as why:
        return str(why)
    as_built = built_fingerprint(content) == fingerprint({"cells": cells})
    # An unchanged stub may be older than the source's stub and look like an answer, so it is left out.
    others = count_answers((cell for cell in cells if not (as_built and is_exercise(cell))), source)
    return "" if as_built and not others else "has answers in it"


def build(source: Path) -> float:
    """Execute a source and write its notebook and picture; return the seconds that it ran."""
    notebook = read_source(source)
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as noted:
        os.environ[READS] = noted.name
        seconds = execute(notebook)
        del os.environ[READS]
        reads = fingerprints(noted.read().split())
    notebook.metadata["course"] = {"exercises": fingerprint(notebook), "reads": reads, "seconds": round(seconds, 1)}
    nbformat.validate(notebook)
    with atomic_write(notebook_of(source)) as file:
        file.write(f"{nbformat.writes(notebook)}\n".encode())
    write_picture(notebook, PICTURES / f"{source.stem}.png")
    return seconds


# --- The table of the lessons in README, and their pictures -----------------------------------------------------


class LessonRow(NamedTuple):
    """A lesson's row in the table, from the head of its notebook and the headings of its exercises."""

    name: str
    title: str
    goal: str
    known: str
    takes: str
    exercises: list[str]


def lesson_row(notebook: Any, name: str) -> LessonRow:
    """Return the row of the lesson `name` from its notebook."""
    head = notebook.cells[0].source
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return LessonRow(
        name,
        _search(r"^# (.+)$", head),
        _search(r"\*\*You will be able to\*\*\s+([^|]+?)\n\n", head),
        _search(r"^\| you know \| (.+?) \|$", head),
        _search(r"^\| takes \| (.+?) \|$", head),
        [" ".join(found) for found in re.findall(EXERCISE, prose, re.MULTILINE)],
    )


def lesson_table() -> str:
    """Return the table of all lessons as Markdown."""
    lines = []
    for source in sources():
        row = lesson_row(read_source(source), source.stem)
        shown = html.escape(_picture(nbformat.read(notebook_of(source), as_version=4))[1]).replace("|", "&#124;")
        if part := PARTS.get(number_of(source)):
            lines += [f"\n## {part}\n", "| | |", "| --- | --- |"]
        picture = f'[<img src="pictures/{row.name}.png" width="{WIDTH}" alt="{shown}">]({row.name}.ipynb)'
        text = f"[**{row.title}**]({row.name}.ipynb)<br>You will be able to {row.goal}<br>"
        tasks = "; ".join(row.exercises)
        lines.append(f"| {picture} | {text}*You know:* {row.known}.<br>*Exercises:* {tasks}.<br>*Takes* {row.takes}. |")
    return "\n".join(lines) + "\n\n"


def write_lesson_table() -> None:
    """Write the table of all lessons into README, between its two comments."""
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    README.write_text(before + BEGIN + lesson_table() + END + rest.split(END)[1], encoding="utf-8")


def write_picture(notebook: Any, path: Path) -> None:
    """Write the lesson's picture for the table."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(_picture(notebook)[0])


def _picture(notebook: Any) -> tuple[bytes, str]:
    """Return the PNG and the alt text of the cell tagged "picture", or of the first picture in the notebook."""
    drawn = [(cell, output) for cell in notebook.cells for output in _images(cell)]
    tagged = [output for cell, output in drawn if "picture" in cell.metadata.get("tags", [])]
    output = (tagged or [output for _, output in drawn])[0]
    return base64.b64decode(output.data["image/png"]), output.metadata.get("image/png", {}).get("alt", "")


def _images(cell: Any) -> list[Any]:
    return [output for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]


def _search(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise ValueError(f"the lesson's head has nothing like {pattern!r}")
    return " ".join(found[1].split())


# --- The command ------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, by default with the arguments of `sys.argv`; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m course.notebooks", description="Build the notebooks.")
    parser.add_argument("numbers", nargs="*", metavar="NN", help="lessons to build (default: all)")
    parser.add_argument("--overwrite", action="store_true", help="even where somebody has answered an exercise")
    args = parser.parse_args(argv)
    chosen = [source for source in sources() if not args.numbers or number_of(source) in args.numbers]
    if unknown := set(args.numbers) - {number_of(source) for source in chosen}:
        parser.error(f"there is no lesson {', '.join(sorted(unknown))}")
    kept = (
        []
        if args.overwrite
        else [f"{notebook_of(each).name} {why}" for each in chosen if (why := reason_to_keep(each))]
    )
    if kept:
        parser.error(f"{'; '.join(kept)}: move what is to be kept away, or --overwrite it")
    with tempfile.TemporaryDirectory() as nobody:
        os.environ |= {RECORD: "1", answers.FOLDER: nobody}
        for source in chosen:
            print(f"{source.stem:<32}", end="", flush=True)
            print(f"{build(source):6.1f} s", flush=True)
    write_lesson_table()
    return 0


if __name__ == "__main__":
    sys.exit(main())
