"""How far a learner is: which exercises are answered right; and a lesson to begin again."""

import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

from minitransformer.atomic import atomic_write

from . import answers
from .sources import checked, notebook_of, number_of, sources, stubs, title


def progress(number: str | None = None) -> None:
    """Print which exercises are answered right: of one lesson and how many of all, or lesson by lesson."""
    right = total = 0
    for source in sources():
        names, done = checked(source), answers.answered(number_of(source))
        right, total = right + len(done.intersection(names)), total + len(names)
        if number in (None, number_of(source)):
            marks = "   ".join(f"{'✓' if name in done else '·'} {name}" for name in names)
            print(f"{number_of(source)} · {title(source)}\n     {marks}")
    print(f"{right} of the course's {total} exercises are right")


def reset(number: str) -> list[str]:
    """Begin a lesson again: its stubs go back into the notebook, and its right answers are no longer counted.

    Nothing is lost: the notebook as it was and the answers are kept under other names. Returns what was done, a line
    each. Raises `ValueError` for an unknown lesson, or a notebook that is no longer one.
    """
    source = next((source for source in sources() if number_of(source) == number), None)
    if source is None:
        raise ValueError(f"there is no lesson {number}")
    done = []
    notebook = notebook_of(source)
    before = notebook.read_bytes() if notebook.exists() else None
    if before is not None and (after := _with_stubs(before, source)) != before:
        kept = _free(notebook)
        shutil.copy2(notebook, kept)
        with atomic_write(notebook) as file:
            file.write(after)
        done.append(f"{notebook.name} has its stubs again; your answers are in {kept.name}")
    if answers.folder(number).is_dir():
        kept = _free(answers.folder(number))
        answers.folder(number).rename(kept)
        done.append(f"the answers that were right are in {kept.parent.name}/{kept.name}")
    return done or [f"lesson {number} has no answers"]


def _with_stubs(text: bytes, source: Path) -> bytes:
    """A notebook with the stubs of its source in its exercises, and no output below what was answered."""
    try:
        notebook: Any = json.loads(text)
        cells = [cell for cell in notebook["cells"] if "exercise" in cell["metadata"].get("tags", [])]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{notebook_of(source).name} is no notebook") from None
    fresh = stubs(source)
    if len(cells) != len(fresh):
        raise ValueError(
            f"{notebook_of(source).name} has {len(cells)} exercises, and the lesson {len(fresh)}: "
            "take the notebook from the course anew"
        )
    if all("".join(cell["source"]) == stub for cell, stub in zip(cells, fresh, strict=True)):
        return text
    for cell, stub in zip(cells, fresh, strict=True):
        cell["source"] = stub.splitlines(keepends=True)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def _free(path: Path) -> Path:
    """The first name like `04_attention.before-1.ipynb` that nothing has."""
    names = (path.with_name(f"{path.stem}.before-{number}{path.suffix}") for number in count(1))
    return next(name for name in names if not name.exists())
