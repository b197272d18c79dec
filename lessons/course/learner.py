"""A learner's progress: the answers on disk that count, the report of them, and the reset of a lesson."""

import ast
import json
import os
import re
from itertools import count
from pathlib import Path
from typing import NamedTuple

from minitransformer.system.atomic import atomic_write
from minitransformer.system.visible import visible

from . import answers
from .cells import count_answers, read_cells
from .sources import exercise_names, fingerprint, notebook_json, notebook_of, number_of, parse, sources, title

# Not answers: lesson 18's file, the folders and files that `reset` renames, and those of systems, editors and a kill.
OTHERS = re.compile(r"my_transformer(_\d+)?\.py|.+\.before-\d+|\..*|__pycache__|.*(~|\.tmp)")


class ProgressReport(NamedTuple):
    """The lines that `progress` prints."""

    lines: list[str]
    """The exercises, each with a mark where it is answered right."""
    faults: list[str]
    """A sentence for each fault in the folder of the answers."""


def progress_report(number: str | None = None) -> ProgressReport:
    """Report the exercises that are answered right, in one lesson or in all, and their number in the whole course.

    Raises `ValueError` for an unknown lesson.
    """
    found, wanted = scan_answers(), [_lesson(number)] if number is not None else sources()
    lines, total = list[str](), 0
    for source in sources():
        names = exercise_names(source)
        total += len(names)
        if source in wanted:
            marks = "   ".join(f"{'✓' if name in found.right[number_of(source)] else '·'} {name}" for name in names)
            lines += [f"{number_of(source)} · {title(source)}", f"     {marks}"]
    right = sum(map(len, found.right.values()))
    faults = [*found.faults[""], *(fault for source in wanted for fault in found.faults[number_of(source)])]
    return ProgressReport([*lines, f"{right} of the course's {total} functions are right"], faults)


def progress(number: str | None = None) -> None:
    """Print the learner's progress, in one lesson or in all."""
    lines, faults = progress_report(number)
    print("\n".join([*lines, *faults]))


# --- The answers on disk ----------------------------------------------------------------------------------------


class AnswerScan(NamedTuple):
    """The exercises that count as answered right, and the faults of files and folders, both by lesson."""

    right: dict[str, set[str]]
    faults: dict[str, list[str]]
    """The key "" is for files and folders that belong to no lesson."""


def scan_answers() -> AnswerScan:
    """Check all files in the folder of the answers. They are read and never run, so that none can hang or print."""
    lessons = {number_of(source): exercise_names(source) for source in sources()}
    right, faults = {number: set[str]() for number in lessons}, {number: list[str]() for number in ("", *lessons)}
    root = answers.folder()
    try:
        found = _file_names(root)
    except answers.Damaged as damage:
        faults[""].append(f"{answers.display_path(root)} {damage}: no answer is counted")
        return AnswerScan(right, faults)
    for number, names in lessons.items():
        right[number], faults[number] = _scan_lesson(number, names)
    faults[""] += [why for name in found if name not in lessons and (why := _stray(root / name))]
    return AnswerScan(right, faults)


def _scan_lesson(number: str, names: list[str]) -> tuple[set[str], list[str]]:
    """Return the exercises of one lesson that count, and the faults in its folder."""
    folder, right, faults = answers.folder(number), set[str](), list[str]()
    again = f"it is not counted; move it away and run the check in lesson {number} again"
    try:
        found = _file_names(folder)
    except answers.Damaged as damage:
        return right, [f"{answers.display_path(folder)} {damage}: {again}"]
    for file in found:
        path, name = folder / file, file.removesuffix(".py")
        if file == f"{name}.py" and name in names:
            try:
                answers.read_answer(number, name)
                right.add(name)
            except answers.Damaged as damage:
                faults.append(f"{answers.display_path(path)} {damage}: {again}")
            except FileNotFoundError:  # deleted since the folder was listed
                continue
        elif name := _meant(path, names):
            faults.append(f"{answers.display_path(path)} is another file of {name}: only {name}.py is counted")
        elif file.endswith(".py"):
            faults.append(f"{answers.display_path(path)} is not counted: lesson {number} has no exercise of this name")
    return right, faults


def _stray(path: Path) -> str:
    """Return a sentence about a file or folder that belongs to no lesson, or an empty string if it has no Python."""
    try:
        inside = [name for name in _file_names(path) if name.endswith(".py")]
    except answers.Damaged:  # a file
        return (
            f"{answers.display_path(path)} is not counted: it lies in no lesson's folder"
            if path.suffix == ".py"
            else ""
        )
    return f"{answers.display_path(path)} is not counted: there is no lesson {visible(path.name)}" if inside else ""


def _file_names(folder: Path) -> list[str]:
    """Return the sorted names in a folder without `OTHERS`; none if it is missing. Raises `answers.Damaged`."""
    try:
        return sorted(name for name in os.listdir(folder) if not OTHERS.fullmatch(name))
    except FileNotFoundError:
        if folder.is_symlink():
            raise answers.Damaged("is a link that leads nowhere") from None
        return []
    except NotADirectoryError:
        raise answers.Damaged("is a file and no folder") from None
    except OSError as problem:
        raise answers.Damaged(f"cannot be opened ({problem.strerror})") from None


def _meant(path: Path, names: list[str]) -> str:
    """Return the exercise that a file seems to answer, by its name or its last function, or an empty string."""
    begins = re.match(r"\w+", path.name)
    for name in names:
        if begins and begins[0].casefold() == name.casefold():
            return name
    try:
        text = answers.read_bytes(path).decode() if path.suffix == ".py" else ""
        functions = [node.name for node in parse(text).body if isinstance(node, ast.FunctionDef)]
    except (answers.Damaged, OSError, ValueError, SyntaxError):
        return ""
    return functions[-1] if functions and functions[-1] in names else ""


# --- Reset -----------------------------------------------------------------------------------------------------


def reset(number: str) -> list[str]:
    """Begin a lesson again, with the course's notebook and without answers. Return lines that say what was done.

    The old notebook and the answers are kept under other names. Raises `ValueError` for an unknown lesson, and if a
    file cannot be read, renamed or written: then the lesson is as it was, and the message says where all files are.
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
    done = [f"the answers that were right are in {answers.display_path(aside)}"] if aside else []
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
    new = f"{answers.display_path(notebook)} is as the course made it, without outputs: load it again where it is open"
    return [*done, new, *([f"what was there is {answers.display_path(copy)}: it {found}"] if copy else [])]


def _lesson(number: str) -> Path:
    """Return the source of a lesson. Raises `ValueError` for an unknown lesson."""
    source = next((source for source in sources() if number_of(source) == number), None)
    if source is None:
        raise ValueError(f"there is no lesson {number}")
    return source


def _found(content: bytes | None, source: Path) -> str | None:
    """Describe a lesson's notebook in the end of a sentence; return None if it is as the course made it."""
    if content is None:
        return ""
    try:
        cells = read_cells(content)
    except ValueError as why:
        return str(why)
    if [(cell.get("cell_type"), cell["source"]) for cell in cells] == [
        (cell["cell_type"], cell["source"]) for cell in notebook_json(source)["cells"]
    ]:
        return None
    answered = count_answers(cells, source)
    parts = [name if times == 1 else f"{name} in {times} cells" for name, times in answered.items()]
    return f"answers {', '.join(parts)}" if parts else "answers no exercise"


def _put_aside(path: Path) -> Path | None:
    """Rename a file or folder, if there is one, and return its new path, else None."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return path.rename(_free(path))


def _put_back(notebook: Path, before: bytes | None, copy: Path | None) -> str:
    """Restore a notebook from its copy; if that fails, keep the copy and return a clause that says so, else ""."""
    if copy is None:
        return ""
    try:
        if notebook.read_bytes() == before:
            copy.unlink(missing_ok=True)
        else:
            copy.replace(notebook)
        return ""
    except OSError:
        return f", but for its notebook, which was what {answers.display_path(copy)} is"


def _renamed_back(aside: Path | None, folder: Path) -> str:
    """Undo `_put_aside`; if that fails, return a clause that says so, else ""."""
    try:
        if aside is not None:
            aside.rename(folder)
        return ""
    except OSError:
        return f", but for the answers that were right, which are in {answers.display_path(aside or folder)}"


def _written(source: Path) -> bytes:
    """Return the bytes of the course's notebook without outputs."""
    notebook = notebook_json(source)
    notebook["metadata"]["course"] = {"exercises": fingerprint(notebook)}
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].splitlines(keepends=True)
    return (json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def _free(path: Path) -> Path:
    """Return the first free path like `04_attention.before-1.ipynb`."""
    names = (path.with_name(f"{path.stem}.before-{number}{path.suffix}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def _cannot(what: str, path: Path, problem: OSError) -> str:
    reason = (problem.strerror or str(problem)).rpartition(": ")[2]  # `atomic_write` puts the path in front
    return f"cannot {what} {answers.display_path(path)} ({reason})"
