"""The marks of a class: `python -m course grade FOLDER`.

The folder has the learners' notebooks, in a folder for each learner or with the learner's name in the file's. A
notebook's answers are judged by the exercises' judges, in a process of their own (`course.nursery`).
"""

import json
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from minitransformer.atomic import atomic_write
from minitransformer.visible import visible

from .exercise import CORRECT, WRONG
from .marking import MARKS, STOPPED
from .nursery import Ended, Nursery
from .reading import ANSWERED, MISSING, UNREADABLE
from .sources import checked, number_of, sources, title

SECONDS = 60.0  # for an answer; the slowest right one takes some, and all others a part of a second
WIDTH = 100  # of a table
LONGEST_NAME = 32
NONE, UNFINISHED = "–", "…"  # instead of a mark
SEVERAL = "  one notebook counts there for each lesson; where they hold several learners, grade each by itself"
MADE_BY = "python -m course grade"
LEFT_OUT = ".", "__MACOSX"  # what systems and Jupyter put there begins with these
Marks = dict[str, Any]  # what the file of the marks holds
COPY = re.compile(r"[\s_.-]*(\(\d+\)|copy[\s_-]*\d*)$", re.IGNORECASE)


@dataclass
class Submission:
    """A learner's notebook: the lesson that its name says, and what was found in it."""

    path: Path
    name: str  # the path in the class's folder, as it is printed
    learner: str
    named: str | None
    modified: float = 0.0
    deeper: str = ""
    """What may be a learner's name, too: of a folder in the learner's, or beside the lesson's in the file's."""
    lesson: str | None = None
    answers: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    """What keeps it from being read, as a sentence about it ends."""


class Found(NamedTuple):
    """What lies in a folder."""

    folder: Path
    learners: list[str]
    submissions: list[Submission]
    notes: list[str]


def no_marks(found: Found) -> Marks:
    """What the file of the marks holds, before there are any: `grade` adds lessons, and of each learner

    {"04": {"notebook": "ada/04_attention.ipynb" or None, "exercises": {"causal_mask": {"mark": …, "why": …}}}}.
    """
    return {
        "made by": MADE_BY,
        "complete": False,
        "guard": "",
        "folder": visible(str(found.folder)),
        "lessons": {},
        "learners": {learner: {} for learner in found.learners},
        "look like groups": [],
        "notes": [*found.notes],
    }


# --- The folder -------------------------------------------------------------------------------------------------


def find(folder: Path) -> Found:
    """The notebooks of a folder, sorted. Raises `OSError` where there is no such folder.

    The learner is the folder in it that a notebook lies in, however deep, or else what the file's name says beside the
    lesson. No link is followed.
    """
    os.listdir(folder)
    learners, submissions, notes = set[str](), list[Submission](), list[str]()
    contents = defaultdict[str, list[str]](list)  # of learners' folders

    def shown(path: str, name: str = "") -> str:
        return visible(os.path.relpath(os.path.join(path, name), folder))

    for place, folders, files in os.walk(
        folder, onerror=lambda problem: notes.append(f"{shown(problem.filename)} cannot be opened ({problem.strerror})")
    ):
        inside = Path(place).relative_to(folder).parts
        folders[:] = sorted(name for name in folders if not name.startswith(LEFT_OUT))
        files = sorted(name for name in files if not name.startswith(LEFT_OUT))
        if len(inside) == 1:
            contents[_plain(inside[0])] += map(visible, [f"{name}/" for name in folders] + files)
        for name in folders:
            if os.path.islink(os.path.join(place, name)):  # for which no path is too long
                notes.append(f"{shown(place, name)} is a link to a folder, which is not followed")
            elif not inside:
                learners.add(_plain(name))
        for name in files:
            if name.lower().endswith(".ipynb"):
                submissions.append(_submission(Path(place) / name, shown(place, name), folder, inside))
    for learner in contents.keys() - (handed_in := {each.learner for each in submissions}):
        first, more = ", ".join(contents[learner][:3]), " and more" if contents[learner][3:] else ""
        notes.append(f"{_cut(learner)} has no notebook{f', but {first}{more}' if first else ': the folder is empty'}")
    order = sorted(learners | handed_in, key=lambda name: (name.casefold(), name))
    submissions.sort(key=lambda each: (order.index(each.learner), str(each.path)))
    return Found(folder, order, submissions, sorted(notes))


def _submission(path: Path, name: str, folder: Path, inside: Sequence[str]) -> Submission:
    named, rest = _lesson_and_rest(path.name[: -len(".ipynb")])
    submission = Submission(path, name, _plain(inside[0] if inside else rest or folder.resolve().name), named)
    submission.lesson = named
    if inside:
        submission.deeper = _plain(inside[1]) if inside[1:] else visible(rest if named else "")
    try:
        submission.modified = path.lstat().st_mtime
    except OSError as problem:
        submission.why = f"cannot be read ({problem.strerror})"
    if path.is_symlink():
        submission.why = "is a link, which is not followed: put the file itself there"
    return submission


def _lesson_and_rest(name: str) -> tuple[str | None, str]:
    """The lesson that a file's name says, and the rest of it: `ada_04_attention (1)` is 04, and ada."""
    name = COPY.sub("", name)
    for source in sources():
        slug = source.stem[3:].replace("_", r"[\s_.-]+")
        if found := re.search(rf"(?<!\d){number_of(source)}[\s_.-]+{slug}(?![a-z])", name, re.IGNORECASE):
            rest = f"{COPY.sub('', name[: found.start()])} {COPY.sub('', name[found.end() :])}"
            return number_of(source), rest.strip(" _.-")
    return None, name.strip(" _.-")


def _plain(name: str) -> str:
    """A learner's name as it is printed and compared: letters with accents may be written in two ways."""
    return visible(unicodedata.normalize("NFC", name)) or "?"


# --- The marks --------------------------------------------------------------------------------------------------


def grade(
    found: Found,
    marks: Marks,
    nursery: Nursery,
    lessons: Sequence[str] = (),
    chosen: Sequence[str] = (),
    seconds: float = SECONDS,
    step: Callable[[Submission], None] = lambda _: None,
) -> None:
    """Mark `lessons`, or all, and there the exercises `chosen`, or all; `step` is called before each notebook.

    The marks are filled in as they are found, so that an interrupt leaves what there is.
    """
    marks["guard"] = nursery.guard
    for each in found.submissions:
        step(each)
        _read(each, nursery)
    latest = _latest(found, marks, lessons)
    for number in sorted({*lessons, *(number for _, number in latest)}):
        source = next(source for source in sources() if number_of(source) == number)
        names = [name for name in checked(source) if not chosen or name in chosen]
        if not names:
            continue
        extra = [] if chosen else [name for name in names if name in optional(source)]
        marks["lessons"][number] = {"title": title(source), "exercises": names, "optional": extra}
        for learner, found_in in marks["learners"].items():
            each = latest.get((learner, number))
            exercises = dict[str, dict[str, str]]()
            found_in[number] = {"notebook": each and each.name, "exercises": exercises}
            if each is None:
                exercises |= {name: _mark(MISSING, "no notebook") for name in names}
            elif each.why:
                exercises |= {name: _mark(UNREADABLE, f"{each.name} {each.why}") for name in names}
            else:
                step(each)
                _judge(each, exercises, names, nursery, seconds)
    marks["complete"] = True


def _mark(state: str, why: str) -> dict[str, str]:
    return {"mark": state if state in MARKS else WRONG, "why": visible(why)[:1000]}


def _read(each: Submission, nursery: Nursery) -> None:
    if not each.why:
        try:
            found = nursery.read((os.path.abspath(each.path), each.named, None))
            each.lesson, each.why, each.answers = (
                found["lesson"],
                visible(found.get("why", "")),
                found.get("answers", {}),
            )
        except Ended as ended:
            each.why = f"cannot be read: {ended}"


def _latest(found: Found, marks: Marks, lessons: Sequence[str]) -> dict[tuple[str, str], Submission]:
    """The notebook that counts, by learner and lesson: the last that was changed, of those that can be read."""
    latest, groups = dict[tuple[str, str], Submission](), defaultdict[str, dict[str, None]](dict)
    for each in found.submissions:
        if each.lesson is None:
            marks["notes"].append(f"{each.name} {each.why}")
            continue
        if lessons and each.lesson not in lessons:
            continue
        other = latest.setdefault((each.learner, each.lesson), each)
        if other is each:
            continue
        if other.deeper and each.deeper and other.deeper != each.deeper:
            groups[each.learner] |= dict.fromkeys((other.deeper, each.deeper))
        older, newer = sorted((other, each), key=lambda one: (not one.why, one.modified))  # at one time: as found
        latest[each.learner, each.lesson] = newer
        if older.why or older.modified < newer.modified:
            marks["notes"].append(f"{older.name} {older.why or 'is older'}: {newer.name} counts")
        else:
            marks["notes"].append(f"{older.name} is as old as {newer.name}, which counts")
    marks["look like groups"] += [f"{learner} ({', '.join(names)})" for learner, names in groups.items()]
    return latest


def _judge(
    each: Submission, marks: dict[str, dict[str, str]], names: Sequence[str], nursery: Nursery, seconds: float
) -> None:
    """Mark a notebook's answers `names`, those that others call before the others; `marks` gets them as they come."""
    notebook, found = (os.path.abspath(each.path), each.named, each.lesson), dict[str, str]()

    def judge(name: str) -> None:
        if name in found:
            return
        found[name] = ""  # under way
        state, why, needs = (each.answers[name][key] for key in ("state", "why", "needs"))
        for other in needs:
            judge(other)
        if state == ANSWERED:
            standing_in = [other for other in needs if found[other] not in ("", CORRECT)]
            try:
                state, why = nursery.mark(notebook, name, standing_in, seconds)
            except Ended as ended:
                state, why = STOPPED, str(ended)
        found[name] = state
        if name in names:
            marks[name] = _mark(state, why)

    for name in names:
        judge(name)


def optional(source: Path) -> set[str]:
    """The exercises in a lesson's optional sections."""
    found, level = set[str](), 0
    text = source.read_text(encoding="utf-8")
    for signs, heading, name in re.findall(r"^# (##+) (.+)$|^(\w+) = check\(\3\)", text, re.MULTILINE):
        if name and level:
            found.add(name)
        elif heading and (not level or len(signs) <= level):
            level = len(signs) if heading.endswith("(optional)") else 0
    return found


# --- What is printed, and written -------------------------------------------------------------------------------


def report(marks: Marks) -> list[str]:
    """The lines that a teacher reads: for each lesson a table and what is wrong, then a table of all lessons."""
    lines, totals = list[str](), defaultdict[str, dict[str, str]](dict)
    right, of = Counter[str](), 0
    if groups := marks["look like groups"]:
        lines = [f"these folders look like weeks or groups, and not like learners: {', '.join(groups)}", SEVERAL, ""]
    for number, lesson in marks["lessons"].items():
        names, extra = lesson["exercises"], lesson["optional"]
        counted = [name for name in names if name not in extra]
        of += len(counted)
        found = {learner: has[number] for learner, has in marks["learners"].items() if number in has}
        there = {learner: has["exercises"] for learner, has in found.items() if has["notebook"]}
        absent = [learner for learner in found if learner not in there]
        rows = {learner: {name: mark["mark"] for name, mark in has.items()} for learner, has in there.items()}
        whys = [f"  {_cut(learner)} · {why}" for learner, has in there.items() for why in _whys(names, has)]
        lines += [f"{number} · {lesson['title']}", "", *table(names, rows), ""]
        lines += [f"optional, and not in the totals: {', '.join(extra)}", ""] if extra else []
        lines += [*whys, ""] if whys else []
        lines += [f"no notebook: {', '.join(absent)}", ""] if absent else []
        for learner in found:
            correct = sum(rows.get(learner, {}).get(name) == CORRECT for name in counted)
            right[learner] += correct
            if learner in absent:
                totals[learner][number] = NONE
            elif len(rows[learner]) == len(names):
                totals[learner][number] = f"{correct}/{len(counted)}"
    if len(marks["lessons"]) > 1:
        for learner, has in totals.items():
            has["all"] = NONE if {*has.values()} == {NONE} else f"{right[learner]}/{of}"
        columns = [*marks["lessons"], *["all"] * marks["complete"]]
        lines += ["correct, by lesson", "", *table(columns, totals), ""]
    return [*lines, *marks["notes"], *[""] * bool(marks["notes"]), f"guarded by {marks['guard']}"]


def _whys(names: Sequence[str], marks: dict[str, dict[str, str]]) -> list[str]:
    """What is wrong in a notebook, a line for each exercise; one for all of them where nobody can read it."""
    said = {name: f"{marks[name]['mark']}: {marks[name]['why']}" for name in names if name in marks}
    wrong = [name for name in said if marks[name]["mark"] in (WRONG, MISSING, STOPPED, UNREADABLE)]
    if len(wrong) > 1 and len(set(said.values())) == 1:
        return [said[wrong[0]]]
    return [f"{name} · {said[name]}" for name in wrong]


def table(columns: Sequence[str], rows: dict[str, dict[str, str]]) -> list[str]:
    """Lines with a row for each learner, as many columns beside each other as fit, and the rest below.

    What a row does not have is not finished.
    """
    first = max([len("learner"), *(_width(_cut(learner)) for learner in rows)])
    widths = {name: max([len(name), *(len(row.get(name, UNFINISHED)) for row in rows.values())]) for name in columns}
    lines, left = list[str](), list(columns)
    while left:
        chosen = [left.pop(0)]
        while left and first + sum(widths[name] + 3 for name in [*chosen, left[0]]) <= WIDTH:
            chosen.append(left.pop(0))
        lines += [""] if lines else []
        for learner, row in [("learner", dict(zip(columns, columns, strict=True))), *rows.items()]:
            cells = "".join(f"   {row.get(name, UNFINISHED):<{widths[name]}}" for name in chosen)
            lines.append(f"{_padded(_cut(learner), first)}{cells}".rstrip())
    return lines


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _width(text: str) -> int:
    """The columns that a terminal gives a text."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) != 0 for letter in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def check_place(path: Path, found: Found) -> None:
    """Raises `ValueError` where the marks cannot be written without overwriting something else."""
    is_there = path.exists()
    theirs = [each.path for each in found.submissions if is_there and each.path.exists()]
    if path.suffix.lower() == ".ipynb" or any(path.samefile(each) for each in theirs):
        raise ValueError(f"{path} is a notebook, and would be overwritten: give the marks another name")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file for the marks")
    if path.is_file():
        with open(path, "rb") as file:
            begins = file.read(100).decode("utf-8", "replace")
        if begins and not re.match(rf'\{{\s*"made by": "{re.escape(MADE_BY)}"', begins):
            raise ValueError(
                f"{path} holds something else than marks, and would be overwritten: give them another name"
            )


def write(path: Path, marks: Marks) -> None:
    """Write the marks, whole or not at all."""
    with atomic_write(path) as file:
        file.write((json.dumps(marks, indent=1, ensure_ascii=False) + "\n").encode())
