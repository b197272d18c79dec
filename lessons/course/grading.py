"""The marks of a class: `python -m course grade FOLDER`.

The folder has the learners' notebooks, in a folder for each learner or with the learner's name in the file's. Each
answer is judged by the exercise's judge, in a process of its own, which has limits (`course.nursery`).
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
LONGEST_PATH = 300
NONE, UNFINISHED = "–", "…"  # instead of a mark
SEVERAL = "  one notebook counts there for each lesson; where they hold several learners, grade each by itself"
MADE_BY = "python -m course grade"
COPY = re.compile(r"[\s_.-]*(\(\d+\)|copy[\s_-]*\d*)$", re.IGNORECASE)


class Mark(NamedTuple):
    """One of `MARKS`, and why: the judge's sentence."""

    mark: str
    why: str = ""


@dataclass
class Submission:
    """A learner's notebook: the lesson that its name says, and what was found in it."""

    path: Path
    learner: str
    named: str | None
    modified: float = 0.0
    lesson: str | None = None
    answers: dict[str, Any] = field(default_factory=dict)
    deeper: str = ""
    """What may be a learner's name, too: of a folder in the learner's, or beside the lesson's in the file's."""
    why: str = ""
    """What keeps it from being read, as a sentence about it ends."""


class Found(NamedTuple):
    """What lies in a folder."""

    learners: list[str]
    submissions: list[Submission]
    notes: list[str]


@dataclass
class Marks:
    """The marks so far: by lesson, learner and exercise; of each the notebook that they were found in."""

    learners: list[str]
    marks: dict[str, dict[str, dict[str, Mark]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(dict)))
    notebooks: dict[tuple[str, str], str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What was left out, and what else a teacher should know, a sentence each."""
    groups: list[str] = field(default_factory=list)
    """Folders that look like several learners'."""
    chosen: Sequence[str] = ()
    """The exercises that are marked; all where it is empty."""
    complete: bool = False


# --- The folder -------------------------------------------------------------------------------------------------


def find(folder: Path) -> Found:
    """The notebooks of a folder, sorted. Raises `OSError` where there is no such folder.

    The learner is the folder in it that a notebook lies in, however deep, or else what the file's name says beside the
    lesson. No link is followed.
    """
    os.listdir(folder)
    learners, submissions, notes = dict[str, None](), list[Submission](), list[str]()
    contents = defaultdict[str, list[str]](list)  # of learners' folders

    def cannot(problem: OSError) -> None:
        notes.append(f"{_shown(Path(problem.filename), folder)} cannot be opened ({problem.strerror})")

    for place, folders, files in os.walk(folder, onerror=cannot):
        inside = Path(place).relative_to(folder).parts
        folders[:] = sorted(name for name in folders if not _is_left_out(name))
        if len(inside) == 1:
            names = [f"{name}/" for name in folders] + sorted(name for name in files if not _is_left_out(name))
            contents[_plain(inside[0])] += map(_short, names)
        for name in list(folders):
            if os.path.islink(Path(place) / name):  # for which no path is too long
                folders.remove(name)
                notes.append(f"{_shown(Path(place) / name, folder)} is a link to a folder, which is not followed")
            elif not inside:
                learners[_plain(name)] = None
        for name in sorted(files):
            if name.lower().endswith(".ipynb") and not _is_left_out(name):
                submission = _submission(Path(place) / name, folder, inside)
                learners[submission.learner] = None
                submissions.append(submission)
    for learner in contents.keys() - {each.learner for each in submissions}:
        first, more = ", ".join(contents[learner][:3]), " and more" if contents[learner][3:] else ""
        there = f", but {first}{more}" if first else ": the folder is empty"
        notes.append(f"{_cut(learner)} has no notebook{there}")
    order = sorted(learners, key=lambda name: (name.casefold(), name))
    submissions.sort(key=lambda each: (order.index(each.learner), str(each.path)))
    return Found(order, submissions, sorted(notes))


def _submission(path: Path, folder: Path, inside: Sequence[str]) -> Submission:
    named, rest = _lesson_and_rest(path.name[: -len(".ipynb")])
    submission = Submission(path, _plain(inside[0] if inside else rest or folder.resolve().name), named)
    if inside:
        submission.deeper = _plain(inside[1]) if inside[1:] else visible(rest if named else "")
    if os.path.islink(path):
        submission.why = "is a link, which is not followed: put the file itself there"
        return submission
    try:
        submission.modified = path.stat().st_mtime
    except OSError as problem:
        submission.why = f"cannot be read ({problem.strerror})"
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


def _is_left_out(name: str) -> bool:
    """Whether it is what systems and Jupyter put there."""
    return name.startswith((".", "__MACOSX"))


def _shown(path: Path, folder: Path) -> str:
    return _short(str(path.relative_to(folder)))


def _short(name: str) -> str:
    name = visible(name)
    return name if len(name) <= LONGEST_PATH else f"{name[: LONGEST_PATH // 2]}…{name[-LONGEST_PATH // 2 :]}"


# --- The marks --------------------------------------------------------------------------------------------------


def grade(
    folder: Path,
    found: Found,
    marks: Marks,
    lessons: Sequence[str] = (),
    seconds: float = SECONDS,
    step: Callable[[Submission], None] = lambda _: None,
) -> None:
    """Mark what was found in a folder, in `lessons` or in all; `step` is called before each notebook.

    The marks are filled in as they are found, so that an interrupt leaves what there is.
    """
    with Nursery() as nursery:
        latest = _latest(folder, found, marks, lessons, nursery, step)
        for number in sorted({*lessons, *(number for _, number in latest)}):
            names = _exercises(number, marks)
            for learner in found.learners if names else ():
                submission = latest.get((learner, number))
                if submission is None:
                    marks.marks[number][learner] = dict.fromkeys(names, Mark(MISSING, "no notebook"))
                    continue
                marks.notebooks[learner, number] = _shown(submission.path, folder)
                if submission.why:
                    mark = Mark(UNREADABLE, f"{_shown(submission.path, folder)} {submission.why}")
                    marks.marks[number][learner] = dict.fromkeys(names, mark)
                else:
                    step(submission)
                    tried = _judge(number, submission.answers, marks.marks[number][learner], names, nursery, seconds)
                    for what, who in tried.items():
                        marks.notes.append(
                            f"{_shown(submission.path, folder)} tried to {what}, which was refused: {', '.join(who)}"
                        )
    marks.complete = True


def _latest(
    folder: Path,
    found: Found,
    marks: Marks,
    lessons: Sequence[str],
    nursery: Nursery,
    step: Callable[[Submission], None],
) -> dict[tuple[str, str], Submission]:
    """The notebook that counts, by learner and lesson: the last that was changed, of those that can be read."""
    marks.notes += found.notes
    latest, groups = dict[tuple[str, str], Submission](), defaultdict[str, dict[str, None]](dict)
    for each in found.submissions:
        step(each)
        _read(each, nursery)
        name = _shown(each.path, folder)
        if each.lesson is None:
            marks.notes.append(f"{name} {each.why}")
            continue
        if lessons and each.lesson not in lessons:
            continue
        other = latest.get((each.learner, each.lesson))
        if other is None:
            latest[each.learner, each.lesson] = each
            continue
        if other.deeper and each.deeper and other.deeper != each.deeper:
            groups[each.learner] |= dict.fromkeys((other.deeper, each.deeper))
        older, newer = sorted((other, each), key=lambda one: (not one.why, one.modified))  # at one time: as found
        latest[each.learner, each.lesson] = newer
        name, counts = _shown(older.path, folder), _shown(newer.path, folder)
        if older.why or older.modified < newer.modified:
            marks.notes.append(f"{name} {older.why or 'is older'}: {counts} counts")
        else:
            marks.notes.append(f"{name} is as old as {counts}, which counts")
    marks.groups += [f"{learner} ({', '.join(names)})" for learner, names in groups.items()]
    return latest


def _read(submission: Submission, nursery: Nursery) -> None:
    submission.lesson = submission.named
    if submission.why:
        return
    try:
        reply = nursery.read(os.path.abspath(submission.path), submission.named)
    except Ended as ended:
        submission.why = f"cannot be read: {ended}"
        return
    submission.lesson = reply["lesson"]
    submission.why, submission.answers = visible(reply.get("why", "")), reply.get("answers", {})


def _judge(
    lesson: str,
    answers: dict[str, Any],
    marks: dict[str, Mark],
    names: Sequence[str],
    nursery: Nursery,
    seconds: float,
) -> dict[str, list[str]]:
    """Mark a notebook's answers `names`, those that others call before the others; `marks` gets them in this order.

    Returns what answers tried to do to files outside, and which answers did.
    """
    found, under_way, tried = dict[str, Mark](), set[str](), defaultdict[str, list[str]](list)

    def judge(name: str) -> None:
        if name in found or name in under_way:
            return
        under_way.add(name)
        answer = answers[name]
        for other in answer["needs"]:
            judge(other)
        if answer["state"] != ANSWERED:
            found[name] = Mark(answer["state"], answer["why"])
            return
        standing_in = [other for other in answer["needs"] if other in found and found[other].mark != CORRECT]
        try:
            state, why, outside = nursery.mark(lesson, name, answer["pieces"], standing_in, seconds)
            if outside:
                tried[visible(outside)[:100]].append(name)
        except Ended as ended:
            state, why = STOPPED, str(ended)
        found[name] = Mark(state if state in MARKS else WRONG, visible(why)[:1000])

    try:
        for name in names:
            judge(name)
    finally:
        marks |= {name: found[name] for name in names if name in found}
    return tried


def _exercises(number: str, marks: Marks) -> list[str]:
    return [name for name in checked(_source(number)) if not marks.chosen or name in marks.chosen]


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


def _source(number: str) -> Path:
    return next(source for source in sources() if number_of(source) == number)


# --- What is printed, and written -------------------------------------------------------------------------------


def report(marks: Marks) -> list[str]:
    """The lines that a teacher reads: for each lesson a table and what is wrong, then a table of all lessons."""
    lines, totals = list[str](), defaultdict[str, dict[str, str]](dict)
    right, of = Counter[str](), 0
    if marks.groups:
        lines += [
            f"these folders look like weeks or groups, and not like learners: {', '.join(marks.groups)}",
            SEVERAL,
            "",
        ]
    for number, learners in marks.marks.items():
        names = _exercises(number, marks)
        extra = [] if marks.chosen else [name for name in names if name in optional(_source(number))]
        absent = [learner for learner in learners if (learner, number) not in marks.notebooks]
        there = {learner: found for learner, found in learners.items() if learner not in absent}
        lines += [f"{number} · {title(_source(number))}", ""]
        rows = {learner: {name: mark.mark for name, mark in found.items()} for learner, found in there.items()}
        lines += table(names, rows)
        lines += ["", f"optional, and not in the totals: {', '.join(extra)}"] if extra else []
        whys = [f"  {_cut(learner)} · {why}" for learner, found in there.items() for why in _whys(found)]
        lines += ["", *whys] if whys else []
        lines += ["", f"no notebook: {', '.join(absent)}"] if absent else []
        lines += [""]
        counted = [name for name in names if name not in extra]
        of += len(counted)
        for learner, found in learners.items():
            correct = sum(name in found and found[name].mark == CORRECT for name in counted)
            right[learner] += correct
            if learner in absent:
                totals[learner][number] = NONE
            elif len(found) == len(names):
                totals[learner][number] = f"{correct}/{len(counted)}"
    if len(marks.marks) > 1:
        for learner, found in totals.items():
            found["all"] = NONE if {*found.values()} == {NONE} else f"{right[learner]}/{of}"
        columns = [*marks.marks, *(["all"] if marks.complete else [])]
        lines += ["correct, by lesson", "", *table(columns, totals), ""]
    return [*lines, *marks.notes]


def _whys(found: dict[str, Mark]) -> list[str]:
    """What is wrong in a notebook, a line for each exercise; one for all of them where nobody can read it."""
    wrong = {name: mark for name, mark in found.items() if mark.mark in (WRONG, MISSING, STOPPED, UNREADABLE)}
    if len(wrong) > 1 and len(set(found.values())) == 1:
        mark, why = next(iter(wrong.values()))
        return [f"{mark}: {why}"]
    return [f"{name} · {mark}: {why}" for name, (mark, why) in wrong.items()]


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


def written(folder: Path, marks: Marks) -> bytes:
    """The marks as JSON."""
    lessons = {
        number: {
            "title": title(_source(number)),
            "exercises": (names := _exercises(number, marks)),
            "optional": [name for name in names if name in optional(_source(number))],
        }
        for number in marks.marks
    }
    learners = {
        learner: {
            number: {
                "notebook": marks.notebooks.get((learner, number)),
                "exercises": {name: mark._asdict() for name, mark in marks.marks[number].get(learner, {}).items()},
            }
            for number in marks.marks
        }
        for learner in marks.learners
    }
    content = {
        "made by": MADE_BY,
        "complete": marks.complete,
        "folder": visible(str(folder)),
        "lessons": lessons,
        "learners": learners,
        "look like groups": marks.groups,
        "notes": marks.notes,
    }
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def check_place(path: Path, found: Found) -> None:
    """Raises `ValueError` where the marks cannot be written without overwriting something else."""
    if path.suffix.lower() == ".ipynb" or any(_is_same(path, each.path) for each in found.submissions):
        raise ValueError(f"{path} is a notebook, and would be overwritten: give the marks another name")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file for the marks")
    if not path.is_file():
        return
    with open(path, "rb") as file:
        begins = file.read(100).decode("utf-8", "replace")
    if begins and not re.match(rf'\{{\s*"made by": "{re.escape(MADE_BY)}"', begins):
        raise ValueError(f"{path} holds something else than marks, and would be overwritten: give them another name")


def write(path: Path, folder: Path, marks: Marks) -> None:
    """Write the marks, whole or not at all."""
    with atomic_write(path) as file:
        file.write(written(folder, marks))


def _is_same(path: Path, other: Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False
