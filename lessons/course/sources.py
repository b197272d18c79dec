"""Find a lesson's files by its number, and convert its source to a notebook.

Lesson 04 is `src/04_attention.py`, in percent format; `04_attention.ipynb` and `pictures/04_attention.png` are built
from it. All its other files are in its folder, `course/lesson_04/`:

    exercises.py    the judges, found by `course.exercise.exercises("04")`
    solutions.py    the solutions of its exercises
    pictures.py     drawing code too long for a cell, as functions of the arrays that they draw
    recordings/     results for machines that cannot measure them: `recorded("04_pytorch", …)`

and modules that it alone uses. The answers that tests try on its judges are `tests/support/lessons/lesson_04.py`.
"""

import ast
import copy
import hashlib
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .minutes import minutes

LESSONS = Path(__file__).resolve().parents[1]
TAGS = {"exercise", "picture", "help", "long"}
"""A stub to fill; the lesson's picture in the table of lessons; hints; a training run that takes long in a browser."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

Notebook = Any  # nbformat.NotebookNode


def sources() -> list[Path]:
    """Return the sources of all lessons, in order."""
    return sorted((LESSONS / "src").glob("[0-9][0-9]_*.py"))


def number_of(source: Path) -> str:
    """Return a lesson's number, "00" to "30"."""
    return source.name[:2]


def notebook_of(source: Path) -> Path:
    """Return the path of a source's notebook."""
    return LESSONS / f"{source.stem}.ipynb"


def lesson_folder(number: str) -> Path:
    """Return the folder of a lesson's judges, solutions and other files."""
    return LESSONS / "course" / f"lesson_{number}"


def title(source: Path) -> str:
    """Return the lesson's title, from its source's first heading."""
    return source.read_text(encoding="utf-8").split("# # ", 1)[1].splitlines()[0].split(" · ", 1)[1]


def exercise_names(source: Path) -> list[str]:
    """Return the names of a lesson's exercises, in order, from its calls of `check`, without importing the judges."""
    return re.findall(r"^(\w+) = check\(\1\)", source.read_text(encoding="utf-8"), re.MULTILINE)


def read_source(source: Path) -> Notebook:
    """Return a source as a notebook without outputs, with folded hints and the cells that every lesson has."""
    import nbformat  # here: a learner needs none of the packages that build notebooks

    return nbformat.from_dict(notebook_json(source))


def notebook_json(source: Path) -> dict[str, Any]:
    """Return the notebook of `read_source` as plain JSON data."""
    cells, number, exercise = cells_of(source), number_of(source), ""
    for cell in cells:
        if is_exercise(cell):
            exercise = cell["source"]
        elif "help" in tags_of(cell):
            cell["source"] = folded_help(cell["source"], exercise, solutions(number))
    head = cells[0]
    whole, core = minutes({"cells": cells})
    less = "" if core == whole else f"; {core} without what is optional"
    head["source"] = head["source"].replace("| runs in |", f"| takes | about {whole} minutes{less} |\n| runs in |")
    cells.append(_cell("code", f'from course import progress\n\nprogress("{number}")'))
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place:03d}"
    return {"cells": cells, "metadata": copy.deepcopy(METADATA), "nbformat": 4, "nbformat_minor": 5}


def cells_of(source: Path) -> list[dict[str, Any]]:
    """Return the cells of a source in percent format, in order."""
    parts = re.split(r"^# %%(.*)\n", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
    cells = []
    for head, text in zip(parts[1::2], parts[2::2], strict=True):
        tags = sorted(TAGS.intersection(re.findall(r'"(\w+)"', head)))
        if head.startswith(" [markdown]"):
            cells.append(_cell("markdown", re.sub(r"^# ?", "", text.rstrip("\n"), flags=re.MULTILINE), tags))
        else:
            cells.append(_cell("code", text.rstrip("\n"), tags))
    return cells


def _cell(kind: str, text: str, tags: Sequence[str] = ()) -> dict[str, Any]:
    cell = {"cell_type": kind, "metadata": {"tags": list(tags)} if tags else {}, "source": text}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell


def folded_help(help: str, exercise: str, functions: dict[str, str]) -> str:
    """Fold up a hint, a stronger hint (after a line of dashes) and the solution; the learner opens each."""
    hints = re.split(r"^---$", help, flags=re.MULTILINE)
    solution = "\n\n\n".join(functions[name] for name in defined_functions(exercise))
    parts = [*hints, f"```python\n{solution}\n```"]
    names = [*("A hint", "A stronger hint")[: len(hints)], "The solution"]
    return "\n\n".join(
        f"<details><summary>{name}</summary>\n\n{part.strip()}\n\n</details>"
        for name, part in zip(names, parts, strict=True)
    )


# --- Exercises ------------------------------------------------------------------------------------------------


def is_exercise(cell: Any) -> bool:
    """Return True if a cell has a stub for the learner to fill."""
    return "exercise" in tags_of(cell)


def tags_of(cell: Any) -> list[str]:
    """Return a cell's tags, or none if its metadata are malformed."""
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return tags if isinstance(tags, list) else []


def solutions(number: str) -> dict[str, str]:
    """Return the source of each function in a lesson's solutions, decorators included, by name."""
    text = (lesson_folder(number) / "solutions.py").read_text(encoding="utf-8")
    lines, functions = text.splitlines(), {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            functions[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return functions


def solved_notebook(source: Path) -> Notebook:
    """Return a source as a notebook without outputs, with solutions in place of the stubs."""
    notebook, functions = read_source(source), solutions(number_of(source))
    for cell in filter(is_exercise, notebook.cells):
        cell.source = "\n\n\n".join(functions[name] for name in defined_functions(cell.source))
    return notebook


def defined_functions(code: str) -> list[str]:
    """Return the names of the functions at the top of a cell."""
    return [node.name for node in parse(code).body if isinstance(node, ast.FunctionDef)]


def parse(code: str) -> ast.Module:
    """Return the syntax tree of a text. Raises `SyntaxError`, and nothing else, if the text is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape like "\d" gives a warning
            return ast.parse(code)
    except (ValueError, RecursionError, MemoryError) as problem:  # a null character, or brackets a thousand deep
        raise SyntaxError(str(problem) or type(problem).__name__) from None


def fingerprint(notebook: Any) -> str:
    """Return a hash of the text of a notebook's exercise cells."""
    texts = [cell["source"] for cell in notebook["cells"] if is_exercise(cell)]
    return hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()[:16]
