"""`python -m course.notebooks [NN ...]`: the executed notebooks, from their sources.

`src/NN_name.py` (percent format) becomes `NN_name.ipynb`, executed, outputs kept. A cell tagged "exercise" holds the
stubs; `solved` puts the functions of `solutions/NN_name.py` in their place. A notebook in which somebody has answered
an exercise is not overwritten, unless `--overwrite` says so.
"""

import argparse
import ast
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

from .recorded import RECORD

LESSONS = Path(__file__).resolve().parents[1]
SECONDS_A_CELL = 600
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

Notebook = Any  # nbformat.NotebookNode


def sources() -> list[Path]:
    """Every lesson's source, in the course's order."""
    return sorted((LESSONS / "src").glob("[0-9][0-9]_*.py"))


def notebook_of(source: Path) -> Path:
    """Where a source's notebook lies."""
    return LESSONS / f"{source.stem}.ipynb"


def read_source(source: Path) -> Notebook:
    """A source as a notebook without outputs."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:03d}"
        cell.metadata = nbformat.from_dict({"tags": ["exercise"]} if is_exercise(cell) else {})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def is_exercise(cell: Any) -> bool:
    """Whether a cell holds a stub for the learner to fill."""
    return "exercise" in cell.metadata.get("tags", [])


def solved(notebook: Notebook, solutions: Path) -> Notebook:
    """A copy with each stub replaced by the function of its name in `solutions`."""
    text = solutions.read_text(encoding="utf-8")
    lines = text.splitlines()
    functions = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            functions[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    notebook = nbformat.from_dict(notebook)
    for cell in filter(is_exercise, notebook.cells):
        names = [node.name for node in ast.parse(cell.source).body if isinstance(node, ast.FunctionDef)]
        cell.source = "\n\n\n".join(functions[name] for name in names)
    return notebook


def execute(notebook: Notebook) -> float:
    """Run every cell in place, in the lessons' folder; returns the seconds. Raises where a cell does."""
    started = time.perf_counter()
    NotebookClient(
        notebook, timeout=SECONDS_A_CELL, kernel_name="python3", resources={"metadata": {"path": str(LESSONS)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell ran: noise in a diff
    return time.perf_counter() - started


def fingerprint(notebook: Notebook) -> str:
    """Of the exercises as they stand."""
    return hashlib.sha256("\0".join(c.source for c in notebook.cells if is_exercise(c)).encode()).hexdigest()[:16]


def answered(path: Path) -> bool:
    """Whether somebody has worked in this notebook: its exercises are not those it was built with."""
    if not path.exists():
        return False
    notebook = nbformat.read(path, as_version=4)
    return notebook.metadata.get("course", {}).get("exercises") != fingerprint(notebook)


def build(source: Path) -> float:
    """Write the executed notebook of a source; returns the seconds that it ran."""
    notebook = read_source(source)
    seconds = execute(notebook)
    notebook.metadata["course"] = {"exercises": fingerprint(notebook), "seconds": round(seconds, 1)}
    nbformat.validate(notebook)
    nbformat.write(notebook, notebook_of(source))
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m course.notebooks", description="Build the notebooks.")
    parser.add_argument("numbers", nargs="*", metavar="NN", help="lessons to build (default: all)")
    parser.add_argument("--overwrite", action="store_true", help="even where somebody has answered an exercise")
    args = parser.parse_args(argv)
    chosen = [source for source in sources() if not args.numbers or source.name[:2] in args.numbers]
    if unknown := set(args.numbers) - {source.name[:2] for source in chosen}:
        parser.error(f"there is no lesson {', '.join(sorted(unknown))}")
    kept = [] if args.overwrite else [source for source in chosen if answered(notebook_of(source))]
    if kept:
        names = ", ".join(notebook_of(source).name for source in kept)
        parser.error(f"there are answers in {names}: move them away, or --overwrite them")
    os.environ[RECORD] = "1"
    for source in chosen:
        print(f"{source.stem:<32}", end="", flush=True)
        print(f"{build(source):6.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
