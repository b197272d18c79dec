"""A learner's work that is kept: right answers, each of which stands on its own, and a lesson begun again."""

import base64
import io
import json
import os
import re
import signal
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from support.lessons.answers import solution

import course
from course import answers, browser, learner, start
from course.__main__ import main
from course.exercise import CORRECT, exercises
from course.learner import scan_answers
from course.lesson_18.assembly import part
from course.notebooks import reason_to_keep
from course.sources import (
    cells_of,
    exercise_names,
    notebook_of,
    number_of,
    read_source,
    solved_notebook,
    sources,
    tags_of,
)
from minitransformer.system.atomic import atomic_write

EXERCISES = [(number, name) for number in map(number_of, sources()) for name in exercises(number)]


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv(answers.FOLDER, raising=False)
    monkeypatch.setattr(answers, "LESSONS", tmp_path)
    return tmp_path / "answers"


def answered(number: str) -> set[str]:
    """The exercises of a lesson whose answers count."""
    return scan_answers().right[number]


def run_cell(code: str) -> dict:
    """The names that a cell defines, whose source Python knows, as in a notebook."""
    path = answers.folder().parent / "cell.py"
    path.write_text(code)
    names: dict = {"__name__": "cell"}
    exec(compile(code, str(path), "exec"), names)
    return names


@pytest.mark.parametrize(("number", "name"), EXERCISES)
def test_a_right_answer_is_kept_in_a_file_that_is_right_by_itself(number, name, kept):
    """The course's solutions, all of them."""
    answers.save(number, solution(number, name), lambda alone: True)
    assert answered(number) == {name}
    file = kept / number / f"{name}.py"
    assert exercises(number)[name].verdict(run_cell(file.read_text())[name]) == (CORRECT, "")


def test_kept_answers_are_taken_away_as_a_zip(kept, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    with atomic_write(kept / "04" / "causal_mask.py") as file:
        file.write(b"def causal_mask(n): ...")
    browser.download()
    data = re.search('base64,([^"]+)', shown[0].data)
    assert data
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(data[1]))) as packed:
        assert packed.namelist() == ["answers/04/causal_mask.py"]
        assert packed.read("answers/04/causal_mask.py") == b"def causal_mask(n): ..."


def test_a_check_keeps_right_answers_alone(kept, capsys):
    check = start("01")
    wrong = run_cell("def softmax(scores):\n    return scores\n")["softmax"]
    check(wrong)
    assert not kept.exists()
    check(solution("01", "softmax"))
    check(wrong)
    assert answered("01") == {"softmax"}, "what was right stays right"
    capsys.readouterr()
    course.progress("01")
    said = capsys.readouterr().out
    assert "✓ softmax   ·" in said
    assert f"1 of the course's {len(EXERCISES)} functions are right" in said


def test_a_right_answer_that_cannot_be_kept_is_right_all_the_same(kept, capsys):
    kept.write_text("a file where the folder would be")
    start("01")(solution("01", "softmax"))
    assert capsys.readouterr().out.startswith("softmax: correct (but not kept: ")


def test_what_an_answer_uses_comes_with_it(kept):
    cell = """
import math as m
import numpy as np
from minitransformer.ops import softmax_forward as soft
FACTOR, array = 3, np.ones(2)
def helper(x):
    return FACTOR * m.sqrt(x) * (helper(x - 1) if x > 1 else 1)
def unused():
    pass
def answer(x):
    return helper(x) + soft(np.ones(2))[0].sum() + inner(x)
def inner(x):
    sum = 1
    return len([x]) + sum
"""
    names = run_cell(cell)
    answers.save("00", names["answer"], lambda alone: alone(2) == names["answer"](2))
    text = (kept / "00" / "answer.py").read_text()
    assert run_cell(text)["answer"](2) == names["answer"](2)
    assert "unused" not in text
    assert "array" not in text


def test_names_of_the_notebook_that_an_answer_has_for_itself_stay_there(kept):
    """A parameter, a local variable or an attribute may be called as something else in the notebook."""
    cell = """
import numpy as np
cache, rows, sum = (np.ones(2), 1), 7, [1]
def answer(cache):
    rows = [row for row in cache]
    return np.sum(rows) + len(rows)
"""
    names = run_cell(cell)
    answers.save("00", names["answer"], lambda alone: alone([1, 2]) == 5)
    assert (kept / "00" / "answer.py").read_text().count("=") == 1


@pytest.mark.parametrize(
    "cell",
    [
        "table = np.eye(3)\ndef causal_mask(a, b):\n    return table",
        "row = lambda n: np.arange(n)\ndef causal_mask(a, b):\n    return row(b) <= row(a)[:, None] + b - a",
        "def outer(n):\n    def causal_mask(a, b):\n        return 1\n    return causal_mask\ncausal_mask = outer(1)",
    ],
)
def test_what_is_kept_is_right_or_not_kept(kept, cell, capsys):
    names = run_cell(f"import numpy as np\n{cell}\n")
    start("04")(names["causal_mask"])
    said = capsys.readouterr().out
    if answered("04"):
        assert exercises("04")["causal_mask"].verdict(part("04", "causal_mask")) == (CORRECT, "")
    else:
        assert "but not kept" in said or "wrong" in said


def test_an_answer_that_uses_a_stub_takes_the_courses_solution(kept):
    cell = """
from course import start
def split_heads(x, num_heads):
    raise NotImplementedError
split_heads = start("05")(split_heads)
def answer(x):
    return split_heads(x, 2)
"""
    answers.save("05", run_cell(cell)["answer"], lambda alone: True)
    assert "from course.lesson_05.solutions import split_heads" in (kept / "05" / "answer.py").read_text()


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_exercises_are_found_without_importing_their_judges(source):
    assert exercise_names(source) == list(exercises(number_of(source)))


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_source_is_read_as_jupytext_reads_it(source):
    """A learner does not have jupytext."""
    theirs = jupytext.read(source, fmt="py:percent").cells
    assert [(c["cell_type"], c["source"], tags_of(c)) for c in cells_of(source)] == [
        (c.cell_type, c.source, c.metadata.get("tags", [])) for c in theirs
    ]


# --- A lesson begun again -------------------------------------------------------------------------------------

LESSON = sources()[4]


@pytest.fixture
def theirs(kept, tmp_path, monkeypatch) -> Path:
    """A learner's notebook of lesson 04, all exercises answered, and one answer that is kept."""
    path = tmp_path / notebook_of(LESSON).name
    monkeypatch.setattr(learner, "notebook_of", lambda source: path)
    notebook = nbformat.read(notebook_of(LESSON), as_version=4)
    notebook.cells = solved_notebook(LESSON).cells
    nbformat.write(notebook, path)
    answers.save("04", solution("04", "causal_mask"), lambda alone: True)
    return path


def is_fresh(path: Path) -> bool:
    """Return True if a notebook is a valid one, as the course makes it."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    without_outputs = not any(cell.get("outputs") for cell in notebook.cells)
    return without_outputs and [cell.source for cell in notebook.cells] == [
        cell.source for cell in read_source(LESSON).cells
    ]


def test_a_lesson_can_be_begun_again_and_nothing_is_lost(theirs, kept, capsys):
    before = theirs.read_bytes()
    assert main(["reset", "04"]) == 0
    said = capsys.readouterr().out
    assert is_fresh(theirs)
    copy = theirs.with_name("04_attention.before-1.ipynb")
    assert copy.read_bytes() == before
    names = ", ".join(exercises("04"))
    assert f"what was there is 04_attention.before-1.ipynb: it answers {names}\n" in said
    assert answered("04") == set()
    assert "the answers that were right are in answers/04.before-1\n" in said
    assert (kept / "04.before-1" / "causal_mask.py").exists()
    assert main(["reset", "4"]) == 0
    assert capsys.readouterr().out == "lesson 04 has no answers\n"
    assert main(["reset", "99"]) == 2
    assert capsys.readouterr().err == "course: error: there is no lesson 99\n"


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_every_lesson_begins_again_with_what_the_course_would_build(source, kept, tmp_path, monkeypatch):
    path = tmp_path / notebook_of(source).name
    for module in ("course.learner", "course.notebooks"):
        monkeypatch.setattr(f"{module}.notebook_of", lambda source: path)
    assert main(["reset", number_of(source)]) == 0
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells == read_source(source).cells
    assert path.read_text(encoding="utf-8") == f"{nbformat.writes(notebook)}\n"
    assert not reason_to_keep(source)


def cell_of(notebook: dict, name: str) -> dict:
    """The cell that defines a function."""
    return next(c for c in notebook["cells"] if c["cell_type"] == "code" and f"def {name}(" in "".join(c["source"]))


def split(notebook: dict) -> None:
    cell = cell_of(notebook, "causal_mask")
    lines = "".join(cell["source"]).splitlines(keepends=True)
    place = notebook["cells"].index(cell)
    notebook["cells"][place : place + 1] = [cell | {"source": lines[:1]}, cell | {"source": lines[1:]}]


def copied(notebook: dict) -> None:
    notebook["cells"].insert(0, dict(cell_of(notebook, "causal_mask")))


def merged(notebook: dict) -> None:
    cell, other = cell_of(notebook, "causal_mask"), cell_of(notebook, "attention")
    cell["source"] = [*other["source"], "\n\n", *cell["source"]]
    notebook["cells"].remove(other)


def merged_with_prose(notebook: dict) -> None:
    cell = cell_of(notebook, "causal_mask")
    cell["source"] = ["What I think: it's a triangle.\n", *cell["source"]]
    cell["cell_type"] = "markdown"


def retyped(notebook: dict) -> None:
    cell = cell_of(notebook, "causal_mask")
    notebook["cells"].append(cell | {"metadata": {}, "id": "mine", "source": "%time\n" + "".join(cell["source"])})
    cell["source"] = "raise NotImplementedError"


def with_the_stub_below(notebook: dict) -> None:
    notebook["cells"] = [cell_of(notebook, "causal_mask")]
    notebook["cells"][0]["source"] += (
        "\n\n\n",
        next(cell.source for cell in read_source(LESSON).cells if "def causal_mask(" in cell.source),
    )


def too_deep_to_compare(notebook: dict) -> None:
    notebook["cells"] = [{"source": f"def causal_mask(a, b):\n    return {'1 + ' * 900}1\n"}]


def without_cell_type(notebook: dict) -> None:
    for cell in notebook["cells"]:
        del cell["cell_type"]


def without_metadata(notebook: dict) -> None:
    for cell in notebook["cells"]:
        del cell["metadata"]
    del notebook["metadata"]


def full_of_other_things(notebook: dict) -> None:
    notebook["cells"] += [None, 7, {}, {"source": 7}, {"source": [7, None]}, {"metadata": [], "source": "\ud800 \0"}]
    notebook["metadata"] = []


def deleted(notebook: dict) -> None:
    notebook["cells"] = [cell_of(notebook, "causal_mask")]


@pytest.mark.parametrize(
    ("change", "answers_to"),
    [
        (split, "causal_mask"),
        (copied, "causal_mask in 2 cells"),
        (merged, "attention"),
        (merged, "causal_mask"),
        (merged_with_prose, "causal_mask"),
        (retyped, "causal_mask"),
        (without_cell_type, "causal_mask"),
        (without_metadata, "causal_mask"),
        (full_of_other_things, "causal_mask"),
        (deleted, "causal_mask\n"),
        (with_the_stub_below, "causal_mask\n"),
        (too_deep_to_compare, "causal_mask\n"),
    ],
)
def test_answers_are_found_by_their_functions_however_the_cells_have_changed(theirs, change, answers_to, capsys):
    notebook = json.loads(theirs.read_bytes())
    change(notebook)
    theirs.write_text(json.dumps(notebook))
    before = theirs.read_bytes()
    assert main(["reset", "04"]) == 0
    said = capsys.readouterr().out
    assert answers_to in said.rpartition("04_attention.before-1.ipynb: it answers ")[2]
    assert is_fresh(theirs)
    assert theirs.with_name("04_attention.before-1.ipynb").read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content[: len(content) // 2], "is no notebook: its line "),
        (lambda content: b"", "is empty"),
        (lambda content: b"[]", "is no notebook: it has no list of cells"),
        (lambda content: b'{"cells": {}}', "is no notebook: it has no list of cells"),
        (lambda content: content.replace(b"cells", b"\xff"), "is no notebook: it is not in UTF-8"),
        (lambda content: b"[" * 100_000, "is no notebook"),
        (lambda content: b"1" * 5_000, "is no notebook"),
    ],
)
def test_what_is_no_notebook_is_kept_too_and_a_new_one_made(theirs, damage, said, capsys):
    before = damage(theirs.read_bytes())
    theirs.write_bytes(before)
    assert main(["reset", "04"]) == 0
    assert f"what was there is 04_attention.before-1.ipynb: it {said}" in capsys.readouterr().out
    assert is_fresh(theirs)
    assert theirs.with_name("04_attention.before-1.ipynb").read_bytes() == before


def test_a_notebook_that_is_missing_is_made_again(theirs, capsys):
    theirs.unlink()
    assert main(["reset", "04"]) == 0
    assert "what was there" not in capsys.readouterr().out
    assert is_fresh(theirs)


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def refusing(monkeypatch, *names: str) -> None:
    """From now on nothing of these names can be renamed; of a file, neither can what would become it."""
    rename, replace = Path.rename, os.replace

    def refused(old, new, do):
        if {Path(old).name, Path(new).name}.intersection(names):
            raise PermissionError(13, "Permission denied", str(old), None, str(new))
        return do(old, new)

    monkeypatch.setattr(Path, "rename", lambda self, new: refused(self, new, rename))
    monkeypatch.setattr(os, "replace", lambda old, new: refused(old, new, replace))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("04", "cannot rename answers/04 (Permission denied)"),
        ("04_attention.ipynb", "cannot write 04_attention.ipynb (Permission denied)"),
        ("04_attention.before-1.ipynb", "cannot write 04_attention.ipynb (Permission denied)"),
    ],
)
def test_where_something_cannot_be_written_a_lesson_is_not_begun_again_by_half(
    theirs, tmp_path, name, said, monkeypatch, capsys
):
    before = everything(tmp_path)
    with monkeypatch.context() as patch:
        refusing(patch, name)
        assert main(["reset", "04"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err == f"course: error: lesson 04 is as it was: {said}\n"
    assert everything(tmp_path) == before


def test_answers_that_may_not_be_seen_are_not_taken_for_none(theirs, kept, tmp_path, monkeypatch, capsys):
    """The tests may be run by root, whom no permission stops."""
    before, lstat = everything(tmp_path), os.lstat

    def denied(path: Path, **options: Any) -> os.stat_result:
        if str(path).startswith(f"{kept}/"):
            raise PermissionError(13, "Permission denied", str(path))
        return lstat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", denied)
        assert main(["reset", "04"]) == 2
    said = "lesson 04 is as it was: cannot rename answers/04 (Permission denied)"
    assert capsys.readouterr().err == f"course: error: {said}\n"
    assert everything(tmp_path) == before


def test_where_the_answers_cannot_be_put_back_it_says_where_they_are(theirs, kept, monkeypatch, capsys):
    before = theirs.read_bytes()

    def fails(source):
        refusing(monkeypatch, "04.before-1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(learner, "_written", fails)
    assert main(["reset", "04"]) == 2
    assert capsys.readouterr().err == (
        "course: error: lesson 04 is as it was, but for the answers that were right, which are in answers/04.before-1: "
        "cannot write 04_attention.ipynb (No space left on device)\n"
    )
    assert theirs.read_bytes() == before
    assert (kept / "04.before-1" / "causal_mask.py").exists()


@pytest.mark.parametrize("problem", [OSError(5, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("again", [True, False])
def test_a_copy_is_given_up_only_where_the_notebook_is_what_it_was(
    theirs, tmp_path, problem, again, monkeypatch, capsys
):
    """The new notebook may be in its place already, when its folder cannot be written to the disk."""
    before, replace = everything(tmp_path), Path.replace

    @contextmanager
    def too_late(path):
        with atomic_write(path) as file:
            yield file
        if path == theirs:
            raise problem

    def replaced(self, target):
        if not again:
            raise OSError(5, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(learner, "atomic_write", too_late)
    monkeypatch.setattr(Path, "replace", replaced)
    assert main(["reset", "04"]) == (2 if isinstance(problem, OSError) else 130)
    if again:
        assert everything(tmp_path) == before
        return
    copy = theirs.with_name("04_attention.before-1.ipynb")
    assert copy.read_bytes() == before[str(theirs)]
    if isinstance(problem, OSError):
        assert "but for its notebook, which was what 04_attention.before-1.ipynb is: " in capsys.readouterr().err


def test_a_lesson_is_as_it_was_after_ctrl_c(theirs, tmp_path, monkeypatch):
    before = everything(tmp_path)
    monkeypatch.setattr(learner, "_written", lambda source: os.kill(os.getpid(), signal.SIGINT))
    assert main(["reset", "04"]) == 130
    assert everything(tmp_path) == before


def test_a_notebook_that_cannot_be_read_is_left_alone(theirs, kept, capsys):
    theirs.unlink()
    theirs.mkdir()
    assert main(["reset", "04"]) == 2
    said = "lesson 04 is as it was: cannot read 04_attention.ipynb (Is a directory)"
    assert capsys.readouterr().err == f"course: error: {said}\n"
    assert answered("04") == {"causal_mask"}


# --- Answers that are damaged ---------------------------------------------------------------------------------

AGAIN = "it is not counted; move it away and run the check in lesson 04 again"
MASK = "def causal_mask(a, b):\n    return 1\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not define causal_mask"),
        (b"def causal_mask(:", "is not Python (line 1: invalid syntax)"),
        (b"x = '\0'\n", "is not Python (source code string cannot contain null bytes)"),
        (b"(" * 100_000, "is not Python (line 1: too many nested parentheses)"),
        (b"-" * 100_000 + b"1", "is not Python ("),
        (MASK.encode() + b"while True:\n    pass\n", "does more than define an answer (line 3)"),
        (b"import sys\nsys.exit(3)\n" + MASK.encode(), "does more than define an answer (line 2)"),
        (MASK.encode() + b"print('mine')\n", "does more than define an answer (line 3)"),
        (b"def causal_mask(a, b):\n    raise NotImplementedError\n", "is still the stub"),
        (f"# \xe9\n{MASK}".encode("latin-1"), "is not in UTF-8"),
        (MASK.encode("utf-16"), "is not in UTF-8"),
        (b"# " + b"x" * 2_000_000, "is larger than any answer (2,000,002 bytes)"),
    ],
)
def test_a_damaged_answer_gets_one_sentence(kept, content, said, capfd):
    answers.save("04", solution("04", "attention"), lambda alone: True)
    (kept / "04" / "causal_mask.py").write_bytes(content)
    assert main(["progress", "04"]) == 2
    out, err = capfd.readouterr()
    assert "✓ attention   · attention_backward   · causal_mask" in out
    assert f"1 of the course's {len(EXERCISES)} functions are right" in out
    assert err.startswith(f"course: answers/04/causal_mask.py {said}")
    assert err.endswith(f": {AGAIN}\n")
    assert err.count("\n") == 1
    course.progress("04")
    assert capfd.readouterr() == (out + err.removeprefix("course: "), "")


def test_what_windows_makes_of_a_file_is_no_damage(kept, capsys):
    (kept / "04").mkdir(parents=True)
    (kept / "04" / "causal_mask.py").write_bytes(b"\xef\xbb\xbf" + MASK.replace("\n", "\r\n").encode())
    assert main(["progress", "04"]) == 0
    assert "✓ causal_mask" in capsys.readouterr().out
    assert part("04", "causal_mask")(1, 1) == 1


def as_a_folder(path: Path) -> None:
    path.mkdir()


def as_a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def as_a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def as_a_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("place", "make", "said"),
    [
        ("04/causal_mask.py", as_a_folder, f"answers/04/causal_mask.py is a folder and no file: {AGAIN}"),
        ("04/causal_mask.py", as_a_link_to_nothing, f"answers/04/causal_mask.py is a link that leads nowhere: {AGAIN}"),
        ("04/causal_mask.py", as_a_link_to_itself, "answers/04/causal_mask.py cannot be read ("),
        ("04/causal_mask.py", as_a_pipe, f"answers/04/causal_mask.py is no ordinary file: {AGAIN}"),
        ("04/causal_mask (1).py", Path.touch, "(1).py is another file of causal_mask: only causal_mask.py is counted"),
        ("04/Causal_Mask.py", Path.touch, "answers/04/Causal_Mask.py is another file of causal_mask: only "),
        ("04/causal_mask.py.txt", Path.touch, "causal_mask.py.txt is another file of causal_mask: only "),
        ("04/mine.py", lambda path: path.write_text(MASK), "answers/04/mine.py is another file of causal_mask: only "),
        ("04/mine.py", Path.touch, "answers/04/mine.py is not counted: lesson 04 has no exercise of this name"),
        ("04/\033[2J.py", Path.touch, "answers/04/\\x1b[2J.py is not counted: lesson 04 has no exercise of this name"),
        ("04", Path.touch, f"answers/04 is a file and no folder: {AGAIN}"),
        ("04", as_a_link_to_nothing, f"answers/04 is a link that leads nowhere: {AGAIN}"),
        ("99/causal_mask.py", Path.touch, "answers/99 is not counted: there is no lesson 99"),
        ("causal_mask.py", Path.touch, "answers/causal_mask.py is not counted: it lies in no lesson's folder"),
        ("", Path.touch, "answers is a file and no folder: no answer is counted"),
    ],
)
def test_what_is_no_answer_gets_one_sentence(kept, place, make, said, capfd):
    (kept / place).parent.mkdir(parents=True, exist_ok=True)
    make(kept / place)
    assert main(["progress"]) == 2
    out, err = capfd.readouterr()
    assert f"0 of the course's {len(EXERCISES)} functions are right" in out
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        ("read_bytes", f"answers/04/causal_mask.py cannot be read (Permission denied): {AGAIN}"),
        ("04", f"answers/04 cannot be opened (Permission denied): {AGAIN}"),
        ("answers", "answers cannot be opened (Permission denied): no answer is counted"),
    ],
)
def test_what_may_not_be_read_gets_one_sentence(kept, refused, said, monkeypatch, capfd):
    """The tests may be run by root, whom no permission stops."""
    answers.save("04", solution("04", "causal_mask"), lambda alone: True)
    listdir = os.listdir

    def denied(path: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    if refused == "read_bytes":
        monkeypatch.setattr(Path, "read_bytes", denied)
    else:
        monkeypatch.setattr(os, "listdir", lambda path: denied(path) if path.name == refused else listdir(path))
    assert main(["progress"]) == 2
    out, err = capfd.readouterr()
    assert "· causal_mask" in out
    assert err == f"course: {said}\n"


def test_answers_in_another_folder_are_named_by_their_whole_place(theirs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(answers.FOLDER, "~/mine")
    monkeypatch.setattr(answers, "LESSONS", tmp_path / "lessons")
    mine = tmp_path / "home" / "mine"
    (mine / "04" / "causal_mask.py").mkdir(parents=True)
    assert main(["progress"]) == 2
    assert capsys.readouterr().err.startswith(f"course: {mine}/04/causal_mask.py is a folder and no file: ")
    assert main(["reset", "04"]) == 0
    assert f"the answers that were right are in {mine}/04.before-1\n" in capsys.readouterr().out


def test_what_else_lies_beside_answers_is_no_fault(kept, capsys):
    answers.save("04", solution("04", "causal_mask"), lambda alone: True)
    for place in (
        "my_transformer.py", "my_transformer_1.py", "04.before-1/causal_mask.py", "notes/mine.txt", ".DS_Store",
        "04/__pycache__/causal_mask.pyc", "04/.ipynb_checkpoints/causal_mask-checkpoint.py", "04/causal_mask.py.7.tmp",
        "04/causal_mask.py~", "04/notes.txt",
    ):  # fmt: skip
        (kept / place).parent.mkdir(parents=True, exist_ok=True)
        (kept / place).touch()
    assert main(["progress"]) == 0
    assert f"1 of the course's {len(EXERCISES)} functions are right" in capsys.readouterr().out


def test_an_unknown_lesson_is_named(kept, capsys):
    assert main(["progress", "99"]) == 2
    assert capsys.readouterr().err == "course: error: there is no lesson 99\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("while True:\n    pass", "does not come back when it is loaded"),
        ("raise SystemExit(3)", "raises SystemExit when it is loaded: 3"),
        ("1 / 0", "raises ZeroDivisionError when it is loaded: division by zero"),
        ("print('mine')", "does not define answer"),
    ],
)
def test_loading_an_answer_comes_back_and_prints_nothing(text, said, monkeypatch, capfd):
    monkeypatch.setattr(answers, "SECONDS", 0.2)
    with pytest.raises(answers.Damaged, match=f"^{said}$"):
        answers.load_function(text, "answer")
    assert capfd.readouterr() == ("", "")
