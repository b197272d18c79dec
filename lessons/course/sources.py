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
import copy
import hashlib
import re
import tomllib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .minutes import minutes

LESSONS = Path(__file__).resolve().parents[1]
TAGS = {"exercise", "picture", "help"}  # a stub to fill; the picture that stands for the lesson; hints
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

Notebook = Any  # nbformat.NotebookNode


def sources() -> list[Path]:
    """Every lesson's source, in the course's order."""
    return sorted((LESSONS / "src").glob("[0-9][0-9]_*.py"))


def number_of(source: Path) -> str:
    """A lesson's number, "00" to "26"."""
    return source.name[:2]


def notebook_of(source: Path) -> Path:
    """Where a source's notebook lies."""
    return LESSONS / f"{source.stem}.ipynb"


def room(number: str) -> Path:
    """The folder of what a lesson has beside its source and its notebook."""
    return LESSONS / "course" / f"lesson_{number}"


def title(source: Path) -> str:
    """The lesson's title, which is its source's first heading."""
    return source.read_text(encoding="utf-8").split("# # ", 1)[1].splitlines()[0].split(" · ", 1)[1]


def checked(source: Path) -> list[str]:
    """The names of the exercises, in the lesson's order: what its cells hand to `check`. It imports no judge."""
    return re.findall(r"^(\w+) = check\(\1\)", source.read_text(encoding="utf-8"), re.MULTILINE)


def read_source(source: Path) -> Notebook:
    """A source as a notebook without outputs: help folded up, and with the cells that every lesson has."""
    import nbformat  # here: a learner needs none of the packages that build notebooks

    return nbformat.from_dict(fresh(source))


def fresh(source: Path) -> dict[str, Any]:
    """The same in plain JSON, as a notebook's file holds it."""
    cells, number, exercise = cells_of(source), number_of(source), ""
    for cell in cells:
        if is_exercise(cell):
            exercise = cell["source"]
        elif "help" in tags_of(cell):
            cell["source"] = folded(cell["source"], exercise, solutions(number))
    head = cells[0]
    whole, core = minutes({"cells": cells})
    less = "" if core == whole else f"; {core} without what is optional"
    head["source"] = head["source"].replace("| runs in |", f"| takes | about {whole} minutes{less} |\n| runs in |")
    cells.append(_cell("code", f'from course import progress\n\nprogress("{number}")'))
    if address := repository():
        head["source"] += f"\n\n{hosted(address, notebook_of(source).name)}"
        cells.insert(1, _cell("code", fetching(address)))
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place:03d}"
    return {"cells": cells, "metadata": copy.deepcopy(METADATA), "nbformat": 4, "nbformat_minor": 5}


def cells_of(source: Path) -> list[dict[str, Any]]:
    """The cells of a source in percent format, in their order."""
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


def folded(help: str, exercise: str, functions: dict[str, str]) -> str:
    """A hint, a stronger hint, which a line of dashes parts, and the solution: each opened by the learner."""
    hints = re.split(r"^---$", help, flags=re.MULTILINE)
    solution = "\n\n\n".join(functions[name] for name in defined(exercise))
    parts = [*hints, f"```python\n{solution}\n```"]
    names = [*("A hint", "A stronger hint")[: len(hints)], "The solution"]
    return "\n\n".join(
        f"<details><summary>{name}</summary>\n\n{part.strip()}\n\n</details>"
        for name, part in zip(names, parts, strict=True)
    )


# --- On a hosted notebook -------------------------------------------------------------------------------------


def repository() -> str | None:
    """The address that the project names in its `pyproject.toml`, for who has no clone; `None` where it names none."""
    project = tomllib.loads((LESSONS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository")


def hosted(address: str, notebook: str) -> str:
    """Links that open a lesson on Colab and on Kaggle. Both read notebooks from GitHub."""
    if not address.startswith("https://github.com/"):
        return ""
    place = f"{address.removeprefix('https://github.com/').removesuffix('.git')}/blob/main/lessons/{notebook}"
    colab = f"https://colab.research.google.com/github/{place}"
    kaggle = f"https://kaggle.com/kernels/welcome?src=https://github.com/{place}"
    return f"Open this lesson on [Colab]({colab}) or on [Kaggle]({kaggle}), and run it there."


def fetching(address: str) -> str:
    """The code of a first cell: where the course is missing, fetch it; where it is there, do nothing."""
    return f'''\
import importlib
import importlib.util

if importlib.util.find_spec("course") is None:  # a hosted notebook: fetch the course, a minute
    import os
    import subprocess
    import sys

    if not os.path.isdir("minitransformer/lessons"):  # it is there after a restart of the kernel
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", "{address}", "minitransformer"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "./minitransformer"], check=True)
    os.chdir("minitransformer/lessons")
    sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()'''


# --- Exercises ------------------------------------------------------------------------------------------------


def is_exercise(cell: Any) -> bool:
    """Whether a cell holds a stub for the learner to fill."""
    return "exercise" in tags_of(cell)


def tags_of(cell: Any) -> list[str]:
    """A cell's tags; none where its metadata are not what they should be."""
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return tags if isinstance(tags, list) else []


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
        cell.source = "\n\n\n".join(functions[name] for name in defined(cell.source))
    return notebook


def defined(code: str) -> list[str]:
    """The names of the functions that a cell defines."""
    return [node.name for node in parsed(code).body if isinstance(node, ast.FunctionDef)]


def parsed(code: str) -> ast.Module:
    """Python's tree of a text. Raises `SyntaxError` where it is no Python, whatever is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an escape like "\d", for example
            return ast.parse(code)
    except (ValueError, RecursionError, MemoryError) as problem:  # a null character, or brackets a thousand deep
        raise SyntaxError(str(problem) or type(problem).__name__) from None


def fingerprint(notebook: Any) -> str:
    """A hash of the exercises as they stand."""
    texts = [cell["source"] for cell in notebook["cells"] if is_exercise(cell)]
    return hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()[:16]
