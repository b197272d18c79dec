"""What lies in the folder of the answers: those that count, and a sentence for each file that does not.

Every file is read and none is run, so nothing in the folder can hang, print or end the one who looks.
"""

import ast
import os
import re
from pathlib import Path
from typing import NamedTuple

from minitransformer.system.visible import visible

from . import answers
from .sources import checked, number_of, parsed, sources

# What is no answer: lesson 18's file, lessons that were begun again, and what systems, editors and a kill leave.
OTHERS = re.compile(r"my_transformer(_\d+)?\.py|.+\.before-\d+|\..*|__pycache__|.*(~|\.tmp)")


class Survey(NamedTuple):
    """The exercises that count as answered right, and what is wrong, both by lesson."""

    right: dict[str, set[str]]
    faults: dict[str, list[str]]
    """What belongs to no lesson has the key "" here."""


def survey() -> Survey:
    """Look through the whole folder."""
    lessons = {number_of(source): checked(source) for source in sources()}
    right, faults = {number: set[str]() for number in lessons}, {number: list[str]() for number in ("", *lessons)}
    root = answers.folder()
    try:
        found = _names(root)
    except answers.Damaged as damage:
        faults[""].append(f"{answers.shown(root)} {damage}: no answer is counted")
        return Survey(right, faults)
    for number, names in lessons.items():
        right[number], faults[number] = _lesson(number, names)
    faults[""] += [why for name in found if name not in lessons and (why := _stray(root / name))]
    return Survey(right, faults)


def answered(number: str) -> set[str]:
    """The exercises of a lesson that were answered right."""
    return survey().right[number]


def _lesson(number: str, names: list[str]) -> tuple[set[str], list[str]]:
    """The exercises of one lesson that count, and what is wrong in its folder."""
    folder, right, faults = answers.folder(number), set[str](), list[str]()
    again = f"it is not counted; move it away and run the check in lesson {number} again"
    try:
        found = _names(folder)
    except answers.Damaged as damage:
        return right, [f"{answers.shown(folder)} {damage}: {again}"]
    for file in found:
        path, name = folder / file, file.removesuffix(".py")
        if file == f"{name}.py" and name in names:
            try:
                answers.text_of(number, name)
                right.add(name)
            except answers.Damaged as damage:
                faults.append(f"{answers.shown(path)} {damage}: {again}")
            except FileNotFoundError:  # it has just gone
                continue
        elif name := _meant(path, names):
            faults.append(f"{answers.shown(path)} is another file of {name}: only {name}.py is counted")
        elif file.endswith(".py"):
            faults.append(f"{answers.shown(path)} is not counted: lesson {number} has no exercise of this name")
    return right, faults


def _stray(path: Path) -> str:
    """What to say of a file or folder that is no lesson's; nothing where it holds no Python."""
    try:
        inside = [name for name in _names(path) if name.endswith(".py")]
    except answers.Damaged:  # a file
        return f"{answers.shown(path)} is not counted: it lies in no lesson's folder" if path.suffix == ".py" else ""
    return f"{answers.shown(path)} is not counted: there is no lesson {visible(path.name)}" if inside else ""


def _names(folder: Path) -> list[str]:
    """The names in a folder, sorted, but for those of `OTHERS`; none where it is missing. Raises `answers.Damaged`."""
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
    """The exercise that a file seems to answer, by its name or by the last function in it; else nothing."""
    begins = re.match(r"\w+", path.name)
    for name in names:
        if begins and begins[0].casefold() == name.casefold():
            return name
    try:
        text = answers.bytes_of(path).decode() if path.suffix == ".py" else ""
        functions = [node.name for node in parsed(text).body if isinstance(node, ast.FunctionDef)]
    except (answers.Damaged, OSError, ValueError, SyntaxError):
        return ""
    return functions[-1] if functions and functions[-1] in names else ""
