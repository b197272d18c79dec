"""What is kept of a learner's work: right answers, each of which stands on its own, and a lesson begun again."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from support.lessons.answers import solution

import course
from course import answers, learner, start
from course.__main__ import main
from course.exercise import CORRECT, exercises
from course.lesson_18.assembly import part
from course.sources import (
    checked,
    fetching,
    hosted,
    is_exercise,
    notebook_of,
    number_of,
    read_source,
    solved,
    sources,
    stubs,
)

EXERCISES = [(number, name) for number in map(number_of, sources()) for name in exercises(number)]


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(answers.FOLDER, str(tmp_path / "answers"))
    return tmp_path / "answers"


def run_cell(code: str) -> dict:
    """The names that a cell defines, whose source Python knows, as in a notebook."""
    path = Path(os.environ[answers.FOLDER]).parent / "cell.py"
    path.write_text(code)
    names: dict = {"__name__": "cell"}
    exec(compile(code, str(path), "exec"), names)
    return names


@pytest.mark.parametrize(("number", "name"), EXERCISES)
def test_a_right_answer_is_kept_in_a_file_that_is_right_by_itself(number, name, kept):
    answers.keep(number, solution(number, name), lambda alone: True)
    assert answers.answered(number) == {name}
    file = kept / number / f"{name}.py"
    assert exercises(number)[name].verdict(run_cell(file.read_text())[name]) == (CORRECT, "")


def test_a_check_keeps_right_answers_alone(kept, capsys):
    check = start("01")
    wrong = run_cell("def softmax(scores):\n    return scores\n")["softmax"]
    check(wrong)
    assert not kept.exists()
    check(solution("01", "softmax"))
    check(wrong)
    assert answers.answered("01") == {"softmax"}, "what was right stays right"
    capsys.readouterr()
    course.progress("01")
    said = capsys.readouterr().out
    assert "✓ softmax   ·" in said
    assert f"1 of the course's {len(EXERCISES)} exercises are right" in said


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
    answers.keep("00", names["answer"], lambda alone: alone(2) == names["answer"](2))
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
    answers.keep("00", names["answer"], lambda alone: alone([1, 2]) == 5)
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
    if answers.answered("04"):
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
    answers.keep("05", run_cell(cell)["answer"], lambda alone: True)
    assert "from course.lesson_05.solutions import split_heads" in (kept / "05" / "answer.py").read_text()


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_exercises_are_found_without_importing_their_judges(source):
    assert checked(source) == list(exercises(number_of(source)))


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_stubs_are_read_without_the_packages_that_build_notebooks(source):
    assert stubs(source) == [cell.source for cell in read_source(source).cells if is_exercise(cell)]


def test_a_lesson_can_be_begun_again_and_nothing_is_lost(kept, tmp_path, monkeypatch, capsys):
    source = sources()[4]
    theirs = tmp_path / notebook_of(source).name
    monkeypatch.setattr(learner, "notebook_of", lambda source: theirs)
    notebook = nbformat.read(notebook_of(source), as_version=4)
    notebook.cells = solved(source).cells
    nbformat.write(notebook, theirs)
    answers.keep("04", solution("04", "causal_mask"), lambda alone: True)
    before = theirs.read_bytes()
    assert main(["reset", "04"]) == 0
    said = capsys.readouterr().out
    again = nbformat.read(theirs, as_version=4)
    nbformat.validate(again)
    assert [cell.source for cell in again.cells] == [cell.source for cell in read_source(source).cells]
    assert (tmp_path / "04_attention.before-1.ipynb").read_bytes() == before
    assert "04_attention.before-1.ipynb" in said
    assert answers.answered("04") == set()
    assert (kept / "04.before-1" / "causal_mask.py").exists()
    assert main(["reset", "04"]) == 0
    assert capsys.readouterr().out == "lesson 04 has no answers\n"
    for broken in (b"", b"[]", b'{"cells": [{"metadata": {}}]}'):
        theirs.write_bytes(broken)
        with pytest.raises(SystemExit):
            main(["reset", "04"])
        assert theirs.read_bytes() == broken
    with pytest.raises(SystemExit):
        main(["reset", "99"])
    assert "there is no lesson 99" in capsys.readouterr().err


# --- On a hosted notebook -------------------------------------------------------------------------------------


def test_a_lesson_opens_on_hosted_notebooks_where_the_project_has_an_address(monkeypatch):
    address = "https://github.com/somebody/minitransformer"
    monkeypatch.setattr("course.sources.repository", lambda: address)
    cells = read_source(sources()[0]).cells
    assert f"/somebody/minitransformer/blob/main/lessons/{notebook_of(sources()[0]).name}" in cells[0].source
    assert cells[1].source == fetching(address)
    assert hosted("https://example.com/minitransformer", "x.ipynb") == ""


@pytest.mark.slow
def test_the_first_cells_of_a_hosted_notebook_fetch_the_course(tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    root = Path(course.__file__).parents[2]
    subprocess.run(["git", "clone", "--quiet", root, clone], check=True)
    monkeypatch.setattr("course.sources.repository", lambda: str(clone))
    cells = [cell.source for cell in read_source(sources()[0]).cells if cell.cell_type == "code"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "cells.py").write_text(
        "\n".join([*cells[:2], "import minitransformer", "print(minitransformer.__file__)"])
    )
    site = tmp_path / "site"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PIP_TARGET": str(site), "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PYTHONPATH": str(site)
    }  # fmt: skip
    done = subprocess.run([sys.executable, "cells.py"], cwd=tmp_path / "empty", env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1:] == [str(site / "minitransformer" / "__init__.py")]
