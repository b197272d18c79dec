"""Grade a class: `python -m course grade FOLDER`.

The folder has the learners' notebooks, in a folder for each learner or with the learner's name in the file's name. The
exercises' judges mark the answers of a notebook, each in a process of its own (`course.fork_server`).
"""

import json
import os
import re
import unicodedata
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from minitransformer.system.atomic import atomic_write
from minitransformer.system.progress import tqdm
from minitransformer.system.visible import visible

from .exercise import CORRECT, NOT_YET
from .extraction import ANSWERED, MISSING, UNREADABLE, extract_answers
from .failures import exception_text, truncate
from .fork_server import ForkServer
from .limits import run_limited
from .sources import exercise_names, number_of, sources, title

SECONDS = 60.0  # the limit on an answer; the slowest right one takes a few, and all others less than one
READING = 60.0  # seconds, the limit on extracting a notebook's answers
WIDTH = 100  # columns of a table
LONGEST_NAME, LONGEST_WHY = 32, 600
NONE, UNFINISHED = "–", "…"  # instead of a mark
SEVERAL = "  one notebook counts there for each lesson; where they hold several learners, grade each by itself"
MADE_BY = "python -m course grade"
BEGINNING = f'{{\n "made by": "{MADE_BY}"'.encode()  # the first bytes of a file of marks
LEFT_OUT = ".", "__MACOSX"  # the beginnings of names that systems and Jupyter create
COPY = re.compile(r"[\s_.-]*(\(\d+\)|copy[\s_-]*\d*)$", re.IGNORECASE)

Marks = dict[str, Any]
"""The content of the file of marks. `find_submissions` makes it; `grade` adds lessons and, for each learner,

{"04": {"notebook": "ada/04_attention.ipynb" or None, "exercises": {"causal_mask": {"mark": …, "why": …}}}}."""


@dataclass
class Submission:
    """A learner's notebook and the answers extracted from it."""

    path: Path
    name: str  # the path in the class's folder, as it is printed
    learner: str
    deeper: str  # another possible learner's name: of a folder in the learner's, or in the file's name
    lesson: str | None  # from the file's name, until the file is read
    modified: float
    why: str = ""  # why it cannot be read, as the end of a sentence about it
    answers: dict[str, Any] = field(default_factory=dict)


# --- The folder -------------------------------------------------------------------------------------------------


def find_submissions(folder: Path) -> tuple[list[Submission], Marks]:
    """Return the notebooks of a folder, sorted, and empty marks. Raises `OSError` if there is no such folder.

    The learner of a notebook is the name of the top-level folder that it lies in, however deep, or else the part of
    the file's name that is not the lesson's. No link is followed.
    """
    os.listdir(folder)
    submissions, notes = list[Submission](), list[str]()
    contents = defaultdict[str, list[str]](list)  # the names in each learner's folder

    def shown(path: str) -> str:
        return visible(os.path.relpath(path, folder))

    def closed(problem: OSError) -> None:
        notes.append(f"{shown(problem.filename)} cannot be opened ({problem.strerror})")

    for place, folders, files in os.walk(folder, onerror=closed):
        inside = [_plain(part) for part in Path(place).relative_to(folder).parts]
        folders[:] = sorted(name for name in folders if not name.startswith(LEFT_OUT))
        files = sorted(name for name in files if not name.startswith(LEFT_OUT))
        if len(inside) == 1:
            contents[inside[0]] += map(visible, [f"{name}/" for name in folders] + files)
        for name in folders:
            path = os.path.join(place, name)
            if os.path.islink(path):
                notes.append(f"{shown(path)} is a link to a folder, which is not followed")
            elif not inside:
                contents[_plain(name)] += []
        for name in files:
            path = os.path.join(place, name)
            if name.lower().endswith(".ipynb"):
                lesson, rest = _lesson_and_rest(name[: -len(".ipynb")])
                learner = inside[0] if inside else _plain(rest or folder.resolve().name)
                deeper = inside[1] if inside[1:] else visible(rest) if inside and lesson else ""
                modified = os.lstat(path).st_mtime if os.path.lexists(path) else 0.0
                why = "is a link, which is not followed: put the file itself there" if os.path.islink(path) else ""
                submissions.append(Submission(Path(path), shown(path), learner, deeper, lesson, modified, why))
    for learner, names in contents.items():
        if names and learner not in {each.learner for each in submissions}:
            more = " and more" if names[3:] else ""
            notes.append(f"{truncate(learner, LONGEST_NAME)} has no notebook, but {', '.join(names[:3])}{more}")
    learners = sorted({*contents, *(each.learner for each in submissions)}, key=lambda name: (name.casefold(), name))
    submissions.sort(key=lambda each: (learners.index(each.learner), str(each.path)))
    return submissions, {
        "made by": MADE_BY,
        "complete": False,
        "guard": "",
        "folder": visible(str(folder)),
        "lessons": {},
        "learners": {learner: {} for learner in learners},
        "look like groups": [],
        "notes": sorted(notes),
    }


def _lesson_and_rest(name: str) -> tuple[str | None, str]:
    """Return the lesson in a file's name and the rest of the name: "04" and "ada" for `ada_04_attention (1)`."""
    name = COPY.sub("", name)
    for source in sources():
        slug = source.stem[3:].replace("_", r"[\s_.-]+")
        if found := re.search(rf"(?<!\d){number_of(source)}[\s_.-]+{slug}(?![a-z])", name, re.IGNORECASE):
            rest = f"{COPY.sub('', name[: found.start()])} {COPY.sub('', name[found.end() :])}"
            return number_of(source), rest.strip(" _.-")
    return None, name.strip(" _.-")


def _plain(name: str) -> str:
    """Return a learner's name normalized for print and comparison: accents have two encodings."""
    return visible(unicodedata.normalize("NFC", name)) or "?"


# --- The marks --------------------------------------------------------------------------------------------------


def grade(
    submissions: list[Submission],
    marks: Marks,
    server: ForkServer,
    lessons: Sequence[str] = (),
    chosen: Sequence[str] = (),
    seconds: float = SECONDS,
) -> None:
    """Mark the exercises `chosen`, or all, of `lessons`, or of all lessons.

    `marks` is filled in step by step, so that after an interrupt it holds the marks so far.
    """
    marks["guard"] = server.sandbox
    for each in submissions:
        if not each.why:
            _read(each)
    latest = _latest(submissions, marks, lessons)
    for source in sources():
        number = number_of(source)
        names = [name for name in exercise_names(source) if not chosen or name in chosen]
        if not names or number not in {*lessons, *(number for _, number in latest)}:
            continue
        extra = [] if chosen else [name for name in names if name in optional_exercises(source)]
        marks["lessons"][number] = {"title": title(source), "exercises": names, "optional": extra}
        with tqdm(marks["learners"].items(), desc=f"lesson {number}", disable=None, leave=False) as learners:
            for learner, has in learners:
                each, exercises = latest.get((learner, number)), dict[str, dict[str, str]]()
                has[number] = {"notebook": each and each.name, "exercises": exercises}
                if each and not each.why:
                    _judge(each, exercises, names, server, seconds)
                else:
                    state, why = (UNREADABLE, f"{each.name} {each.why}") if each else (MISSING, "no notebook")
                    exercises |= {name: {"mark": state, "why": why} for name in names}
    marks["complete"] = True


def _read(each: Submission) -> None:
    try:
        found = run_limited(READING, lambda: extract_answers(str(each.path), each.lesson))
        each.lesson, each.why, each.answers = found["lesson"], visible(found.get("why", "")), found.get("answers", {})
    except Exception as problem:  # a notebook can be malformed in ways that nobody foresees
        each.why = f"cannot be read here ({type(problem).__name__}: {exception_text(problem)})"


def _latest(submissions: list[Submission], marks: Marks, lessons: Sequence[str]) -> dict[tuple[str, str], Submission]:
    """Return the notebook that counts for each learner and lesson: the last modified of those that can be read."""
    together, groups = defaultdict[tuple[str, str], list[Submission]](list), defaultdict[str, set[str]](set)
    for each in submissions:
        if each.lesson is None:
            marks["notes"].append(f"{each.name} {each.why}")
        elif not lessons or each.lesson in lessons:
            together[each.learner, each.lesson].append(each)
    for (learner, _), those in together.items():
        those.sort(key=lambda each: (not each.why, each.modified))  # a stable sort: equal times keep their order
        for each in those[:-1]:
            why = each.why or ("is older" if each.modified < those[-1].modified else "is as old")
            marks["notes"].append(f"{each.name} {why}: {those[-1].name} counts")
        if len(names := {each.deeper for each in those} - {""}) > 1:
            groups[learner] |= names
    marks["look like groups"] += [f"{learner} ({', '.join(sorted(names))})" for learner, names in groups.items()]
    return {key: those[-1] for key, those in together.items()}


def _judge(
    each: Submission, marks: dict[str, dict[str, str]], names: Sequence[str], server: ForkServer, seconds: float
) -> None:
    """Mark the answers `names` of a notebook into `marks`, each after the answers that it calls."""
    found = dict[str, str]()

    def judge(name: str) -> None:
        if name in found:
            return
        found[name] = ""  # being marked
        state, why, pieces, needs = (each.answers[name][key] for key in ("state", "why", "pieces", "needs"))
        for other in needs:
            judge(other)
        if state == ANSWERED:
            fallbacks = [other for other in needs if found[other] not in ("", CORRECT)]
            state, why = server.mark(str(each.lesson), name, pieces, fallbacks, seconds)
        found[name] = state
        if name in names:
            marks[name] = {"mark": state, "why": truncate(visible(" ".join(why.split())), LONGEST_WHY)}

    for name in names:
        judge(name)


def optional_exercises(source: Path) -> set[str]:
    """Return the exercises in a lesson's optional sections; each ends at the next heading of its level or above."""
    section = re.compile(r"^# (##+) [^\n]+\(optional\)$(.*?)(?=^# (?!\1#)##|\Z)", re.MULTILINE | re.DOTALL)
    parts = [part for _, part in section.findall(source.read_text(encoding="utf-8"))]
    return {name for part in parts for name in re.findall(r"^(\w+) = check\(\1\)", part, re.MULTILINE)}


# --- The report and the file of marks ---------------------------------------------------------------------------


def report(marks: Marks) -> list[str]:
    """Return the lines of the report: for each lesson a table and the reasons, then a table of all lessons."""
    lines, totals = list[str](), defaultdict[str, dict[str, str]](dict)
    right, of = Counter[str](), 0
    if groups := marks["look like groups"]:
        lines = [f"these folders look like weeks or groups, and not like learners: {', '.join(groups)}", SEVERAL, ""]
    for number, lesson in marks["lessons"].items():
        names, extra = lesson["exercises"], lesson["optional"]
        found = {learner: has[number] for learner, has in marks["learners"].items() if number in has}
        there = {learner: has["exercises"] for learner, has in found.items() if has["notebook"]}
        rows = {learner: {name: mark["mark"] for name, mark in has.items()} for learner, has in there.items()}
        whys = [line for learner, has in there.items() for line in _whys(truncate(learner, LONGEST_NAME), names, has)]
        absent = ", ".join(learner for learner in found if learner not in there)
        lines += [f"{number} · {lesson['title']}", "", *table(names, rows), ""]
        lines += [f"optional, and not in the totals: {', '.join(extra)}", ""] if extra else []
        lines += [*whys, ""] if whys else []
        lines += [f"no notebook: {absent}", ""] if absent else []
        counted = [name for name in names if name not in extra]
        of += len(counted)
        for learner in found:
            row = rows.get(learner, {})
            correct = sum(row.get(name) == CORRECT for name in counted)
            right[learner] += correct
            finished = f"{correct}/{len(counted)}" if len(row) == len(names) else UNFINISHED
            totals[learner][number] = finished if learner in there else NONE
    if len(marks["lessons"]) > 1:
        for learner, has in totals.items():
            has["all"] = NONE if {*has.values()} == {NONE} else f"{right[learner]}/{of}"
        lines += ["correct, by lesson", "", *table([*marks["lessons"], *["all"] * marks["complete"]], totals), ""]
    return [*lines, *marks["notes"], *[""] * bool(marks["notes"]), f"guarded by {marks['guard']}"]


def _whys(learner: str, names: Sequence[str], marks: dict[str, dict[str, str]]) -> list[str]:
    """Return a line for each exercise that is wrong in a notebook, or one line if all have the same reason."""
    said = {name: f"{marks[name]['mark']}: {marks[name]['why']}" for name in names if name in marks}
    wrong = [name for name in said if marks[name]["mark"] not in (CORRECT, NOT_YET)]
    if wrong[1:] and len({*said.values()}) == 1:
        return [f"  {learner} · {said[wrong[0]]}"]
    return [f"  {learner} · {name} · {said[name]}" for name in wrong]


def table(columns: Sequence[str], rows: dict[str, dict[str, str]]) -> list[str]:
    """Return the lines of a table with a row for each learner; columns that do not fit follow in a table below.

    A mark that a row lacks is shown as unfinished.
    """
    named = [("learner", {name: name for name in columns})]
    named += [(truncate(learner, LONGEST_NAME), row) for learner, row in rows.items()]
    first = max(_width(learner) for learner, _ in named)
    widths = [3 + max(len(row.get(name, UNFINISHED)) for _, row in named) for name in columns]
    fit = max(1, bisect([*accumulate(widths)], WIDTH - first))
    here, below, lines = columns[:fit], columns[fit:], list[str]()
    for learner, row in named:
        cells = (f"   {row.get(name, UNFINISHED)}".ljust(width) for name, width in zip(here, widths, strict=False))
        lines.append(f"{learner}{' ' * (first - _width(learner))}{''.join(cells)}".rstrip())
    return [*lines, "", *table(below, rows)] if below else lines


def _width(text: str) -> int:
    """Return the number of a terminal's columns that a text takes."""
    return sum((not unicodedata.combining(each)) + (unicodedata.east_asian_width(each) in "WF") for each in text)


def check_marks_file(path: Path) -> None:
    """Raise `ValueError` if writing the marks to `path` would overwrite something else."""
    theirs = path.is_dir()
    if path.is_file():
        with open(path, "rb") as file:
            theirs = file.read(len(BEGINNING)) not in (b"", BEGINNING)
    if theirs:
        raise ValueError(f"{path} is there, and holds something else than marks: give the marks another name")


def write_marks(path: Path, marks: Marks) -> None:
    """Write the marks as JSON, atomically."""
    with atomic_write(path) as file:
        file.write((json.dumps(marks, indent=1, ensure_ascii=False) + "\n").encode())
