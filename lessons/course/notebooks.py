"""`python -m course.notebooks [NN ...]`: the executed notebooks, from their sources.

`src/NN_name.py` (percent format) becomes `NN_name.ipynb`, executed, outputs kept. A cell tagged "exercise" holds the
stubs; `solved` puts those of `course/lesson_NN/solutions.py` in their place. A notebook in which somebody has answered
an exercise, in whatever cell, is not overwritten, unless `--overwrite` says so. The course's map in `README.md` is
written last.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from minitransformer.system.atomic import atomic_write

from . import answers, map
from .finding import answers_in, built_with, cells_in
from .recorded import RECORD
from .sources import LESSONS, Notebook, fingerprint, is_exercise, notebook_of, number_of, read_source, sources

SECONDS_A_CELL = 600


def execute(notebook: Notebook) -> float:
    """Run every cell in place, in the lessons' folder; returns the seconds. Raises where a cell does."""
    started = time.perf_counter()
    folder = {"metadata": {"path": str(LESSONS)}}
    client = NotebookClient(notebook, timeout=SECONDS_A_CELL, kernel_name="python3", resources=folder)
    client.extra_arguments = ["--log-level=ERROR"]  # the kernel warns that it listens on a port of this machine
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell ran: noise in a diff
    return time.perf_counter() - started


def worked_in(source: Path) -> str:
    """What keeps a lesson's notebook from being overwritten, as a sentence about it ends; nothing where it may be.

    That is work of a learner's, wherever it stands in the notebook; and a file that is no notebook may hold some.
    """
    path = notebook_of(source)
    if not path.exists():
        return ""
    content = path.read_bytes()
    try:
        cells = cells_in(content)
    except ValueError as why:
        return str(why)
    as_built = built_with(content) == fingerprint({"cells": cells})
    # The stubs that it was built with may be older than the source's; beside them, no cell answers an exercise.
    beside = answers_in((cell for cell in cells if not (as_built and is_exercise(cell))), source)
    return "" if as_built and not beside else "has answers in it"


def build(source: Path) -> float:
    """Write the executed notebook of a source; returns the seconds that it ran."""
    notebook = read_source(source)
    seconds = execute(notebook)
    notebook.metadata["course"] = {"exercises": fingerprint(notebook), "seconds": round(seconds, 1)}
    nbformat.validate(notebook)
    with atomic_write(notebook_of(source)) as file:
        file.write(f"{nbformat.writes(notebook)}\n".encode())
    map.write_picture(notebook, map.PICTURES / f"{source.stem}.png")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m course.notebooks", description="Build the notebooks.")
    parser.add_argument("numbers", nargs="*", metavar="NN", help="lessons to build (default: all)")
    parser.add_argument("--overwrite", action="store_true", help="even where somebody has answered an exercise")
    args = parser.parse_args(argv)
    chosen = [source for source in sources() if not args.numbers or number_of(source) in args.numbers]
    if unknown := set(args.numbers) - {number_of(source) for source in chosen}:
        parser.error(f"there is no lesson {', '.join(sorted(unknown))}")
    kept = [] if args.overwrite else [f"{notebook_of(each).name} {why}" for each in chosen if (why := worked_in(each))]
    if kept:
        parser.error(f"{'; '.join(kept)}: move what is to be kept away, or --overwrite it")
    with tempfile.TemporaryDirectory() as nobody:
        os.environ |= {RECORD: "1", answers.FOLDER: nobody}
        for source in chosen:
            print(f"{source.stem:<32}", end="", flush=True)
            print(f"{build(source):6.1f} s", flush=True)
    map.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
