"""Lessons as they are written: a source in percent format, its solutions, and where its notebook lies."""

import ast
import hashlib
from pathlib import Path
from typing import Any

import jupytext
import nbformat

LESSONS = Path(__file__).resolve().parents[1]
TAGS = {"exercise", "picture"}  # a stub to fill; the picture that stands for the lesson
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
        tags = sorted(TAGS.intersection(cell.metadata.get("tags", [])))
        cell.id = f"cell-{number:03d}"
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
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


def fingerprint(notebook: Notebook) -> str:
    """Of the exercises as they stand."""
    return hashlib.sha256("\0".join(c.source for c in notebook.cells if is_exercise(c)).encode()).hexdigest()[:16]
