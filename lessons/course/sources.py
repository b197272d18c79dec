"""Where a lesson's files lie, by its number alone, and its source as a notebook.

Lesson 04 is `src/04_attention.py`, in percent format, and what is built from it under the same name:
`04_attention.ipynb` and `pictures/04_attention.png`. All else that it has lies in its room, `course/lesson_04/`:

    exercises.py    the judges, found by `course.exercise.exercises("04")`
    solutions.py    what a learner's stubs can become
    pictures.py     drawing code too long for a cell, as functions of the arrays that they draw
    recordings/     results for machines that cannot measure them: `recorded("04_pytorch", …)`

and whatever it alone uses. The answers that tests try on its judges are `tests/support/lessons/lesson_04.py`.
"""

import ast
import hashlib
from pathlib import Path
from typing import Any

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


def number_of(source: Path) -> str:
    """A lesson's number, "00" to "17"."""
    return source.name[:2]


def notebook_of(source: Path) -> Path:
    """Where a source's notebook lies."""
    return LESSONS / f"{source.stem}.ipynb"


def room(number: str) -> Path:
    """The folder of what a lesson has beside its source and its notebook."""
    return LESSONS / "course" / f"lesson_{number}"


def read_source(source: Path) -> Notebook:
    """A source as a notebook without outputs."""
    import jupytext  # here: who only learns needs neither
    import nbformat

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


def solutions(number: str) -> dict[str, str]:
    """The source of each function of a lesson's solutions, decorators and all, by name."""
    text = (room(number) / "solutions.py").read_text(encoding="utf-8")
    lines, functions = text.splitlines(), {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            functions[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return functions


def solved(source: Path) -> Notebook:
    """A source as a notebook without outputs, each stub replaced by the solution of its name."""
    notebook, functions = read_source(source), solutions(number_of(source))
    for cell in filter(is_exercise, notebook.cells):
        names = [node.name for node in ast.parse(cell.source).body if isinstance(node, ast.FunctionDef)]
        cell.source = "\n\n\n".join(functions[name] for name in names)
    return notebook


def fingerprint(notebook: Notebook) -> str:
    """A hash of the exercises as they stand."""
    return hashlib.sha256("\0".join(c.source for c in notebook.cells if is_exercise(c)).encode()).hexdigest()[:16]
