"""How far a learner is: which exercises are answered right; and a lesson to begin again."""

import json
import os
from itertools import count
from pathlib import Path
from typing import NamedTuple

from minitransformer.system.atomic import atomic_write

from . import answers
from .finding import answers_in, cells_in
from .sources import checked, fingerprint, fresh, notebook_of, number_of, sources, title
from .survey import survey


class Standing(NamedTuple):
    """How far a learner is."""

    lines: list[str]
    """Which exercises are answered right."""
    faults: list[str]
    """What is wrong in the folder of the answers, a sentence each."""


def standing(number: str | None = None) -> Standing:
    """How far a learner is: in one lesson and how many of all, or lesson by lesson.

    Raises `ValueError` for an unknown lesson.
    """
    found, wanted = survey(), [_lesson(number)] if number is not None else sources()
    lines, total = list[str](), 0
    for source in sources():
        names = checked(source)
        total += len(names)
        if source in wanted:
            marks = "   ".join(f"{'✓' if name in found.right[number_of(source)] else '·'} {name}" for name in names)
            lines += [f"{number_of(source)} · {title(source)}", f"     {marks}"]
    right = sum(map(len, found.right.values()))
    faults = [*found.faults[""], *(fault for source in wanted for fault in found.faults[number_of(source)])]
    return Standing([*lines, f"{right} of the course's {total} functions are right"], faults)


def progress(number: str | None = None) -> None:
    """Print how far the learner is, as `standing` says it."""
    lines, faults = standing(number)
    print("\n".join([*lines, *faults]))


# --- A lesson begun again -------------------------------------------------------------------------------------


def reset(number: str) -> list[str]:
    """Begin a lesson again: its notebook is as the course made it, and its right answers are no longer counted.

    Nothing is lost: the notebook as it was and the answers are kept under other names. Returns what was done, a line
    each. Raises `ValueError`, in a sentence that names what is kept where, for an unknown lesson, and where something
    cannot be written; then the lesson is as it was.
    """
    source = _lesson(number)
    notebook, folder = notebook_of(source), answers.folder(number)
    try:
        before = notebook.read_bytes()
    except FileNotFoundError:
        before = None
    except OSError as problem:
        raise ValueError(f"lesson {number} is as it was: {_cannot('read', notebook, problem)}") from None
    found = _found(before, source)
    try:
        aside = _put_aside(folder)
    except OSError as problem:
        raise ValueError(f"lesson {number} is as it was: {_cannot('rename', folder, problem)}") from None
    done = [f"the answers that were right are in {answers.shown(aside)}"] if aside else []
    if found is None:
        return done or [f"lesson {number} has no answers"]
    copy = _free(notebook) if before is not None else None
    try:
        if copy is not None and before is not None:
            with atomic_write(copy) as file:
                file.write(before)
        with atomic_write(notebook) as file:
            file.write(_written(source))
    except BaseException as problem:
        kept = _put_back(notebook, before, copy) + _renamed_back(aside, folder)
        if isinstance(problem, OSError):
            raise ValueError(f"lesson {number} is as it was{kept}: {_cannot('write', notebook, problem)}") from None
        raise
    new = f"{answers.shown(notebook)} is as the course made it, without outputs: load it again where it is open"
    return [*done, new, *([f"what was there is {answers.shown(copy)}: it {found}"] if copy else [])]


def _lesson(number: str) -> Path:
    """The source of a lesson. Raises `ValueError` where there is none."""
    source = next((source for source in sources() if number_of(source) == number), None)
    if source is None:
        raise ValueError(f"there is no lesson {number}")
    return source


def _found(content: bytes | None, source: Path) -> str | None:
    """What a lesson's notebook holds, as a sentence ends; `None` where it is as the course made it."""
    if content is None:
        return ""
    try:
        cells = cells_in(content)
    except ValueError as why:
        return str(why)
    if [(cell.get("cell_type"), cell["source"]) for cell in cells] == [
        (cell["cell_type"], cell["source"]) for cell in fresh(source)["cells"]
    ]:
        return None
    answered = answers_in(cells, source)
    parts = [name if times == 1 else f"{name} in {times} cells" for name, times in answered.items()]
    return f"answers {', '.join(parts)}" if parts else "answers no exercise"


def _put_aside(path: Path) -> Path | None:
    """Rename what lies there, a folder or whatever it is, and return its new place; `None` where there is nothing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return path.rename(_free(path))


def _put_back(notebook: Path, before: bytes | None, copy: Path | None) -> str:
    """Make a notebook what it was, from its copy; returns what to say where that fails, and then the copy stays."""
    if copy is None:
        return ""
    try:
        if notebook.read_bytes() == before:
            copy.unlink(missing_ok=True)
        else:
            copy.replace(notebook)
        return ""
    except OSError:
        return f", but for its notebook, which was what {answers.shown(copy)} is"


def _renamed_back(aside: Path | None, folder: Path) -> str:
    """Undo `_put_aside`; returns what to say where that fails."""
    try:
        if aside is not None:
            aside.rename(folder)
        return ""
    except OSError:
        return f", but for the answers that were right, which are in {answers.shown(aside or folder)}"


def _written(source: Path) -> bytes:
    """The course's notebook without outputs, as a file holds it."""
    notebook = fresh(source)
    notebook["metadata"]["course"] = {"exercises": fingerprint(notebook)}
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].splitlines(keepends=True)
    return (json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def _free(path: Path) -> Path:
    """The first name like `04_attention.before-1.ipynb` that nothing has."""
    names = (path.with_name(f"{path.stem}.before-{number}{path.suffix}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def _cannot(what: str, path: Path, problem: OSError) -> str:
    reason = (problem.strerror or str(problem)).rpartition(": ")[2]  # `atomic_write` says where, too
    return f"cannot {what} {answers.shown(path)} ({reason})"
