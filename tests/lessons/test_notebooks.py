"""The committed notebooks: in step with their sources, executed, small, without warnings."""

import ast
import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from course import answers, notebooks
from course.exercise import exercises
from course.lesson_18.assembly import assembled
from course.minutes import minutes, sections
from course.notebooks import execute, main, reason_to_keep
from course.recorded import READS, fingerprints
from course.sources import (
    LESSONS,
    fingerprint,
    is_exercise,
    notebook_of,
    number_of,
    read_source,
    solved_notebook,
    sources,
)
from course.training import train
from minitransformer.cli import main as run_package
from minitransformer.models import ViT, ViTConfig

each_lesson = pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
LARGEST = 1_000_000  # bytes
FEWEST = 5  # words that say what a picture shows
READABLE = f"""\
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
import course.style
from support.lessons.contrast import checked
course.style.show = checked(course.style.show)"""
WEEKEND, DOWN = "The paper in a weekend", "From GPT-2's weights down"  # paths that the README lists step by step
HEADER = ("**You will be able to**", "| you know |", "| runs in |", "| in the paper |", "| in the package |")
SECTIONS = ("## Common mistakes", "## What changed since 2017", "## Where next")


@each_lesson
def test_the_notebook_is_in_step_with_its_source(source):
    written, expected = nbformat.read(notebook_of(source), as_version=4), read_source(source)
    assert [(c.cell_type, c.source) for c in written.cells] == [(c.cell_type, c.source) for c in expected.cells], (
        f"run `make notebooks ARGS={number_of(source)}`"
    )
    assert written.metadata["course"]["exercises"] == fingerprint(expected)


@each_lesson
def test_the_notebook_shows_the_recorded_files_as_they_are(source):
    reads = nbformat.read(notebook_of(source), as_version=4).metadata["course"]["reads"]
    assert reads == fingerprints(reads), f"run `make notebooks ARGS={number_of(source)}`"
    named = re.findall(r"\w+/results/\w+\.json", source.read_text(encoding="utf-8"))
    assert {f"lessons/{name}" for name in named} <= set(reads)


def test_recorded_files_that_are_opened_are_noted(tmp_path, monkeypatch):
    (tmp_path / "noted").touch()
    monkeypatch.setenv(READS, str(tmp_path / "noted"))
    code = "import course; [open(name).close() for name in ('after/results/inside.json', 'ideas.md')]"
    subprocess.run([sys.executable, "-c", code], cwd=LESSONS, check=True)
    (name,) = (tmp_path / "noted").read_text().splitlines()
    assert name == "lessons/after/results/inside.json"
    assert fingerprints([name]) == {name: sha256((LESSONS / "after/results/inside.json").read_bytes()).hexdigest()[:16]}


@each_lesson
def test_the_notebook_is_executed_without_errors_or_warnings(source):
    notebook = nbformat.read(notebook_of(source), as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for output in (output for cell in code for output in cell.outputs):
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text
        assert "Warning" not in str(output.get("text", ""))
        assert "widget" not in str(output.get("data", {}).keys())


@each_lesson
def test_every_picture_says_what_it_shows_and_has_twice_the_pixels_of_its_place(source):
    notebook = nbformat.read(notebook_of(source), as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert pictures, "no picture"
    for picture in pictures:
        told, data = picture.metadata.get("image/png", {}), base64.b64decode(picture.data["image/png"])
        assert len(told.get("alt", "").split()) >= FEWEST, "a figure reaches the page through `show(alt)`"
        width, height = (int.from_bytes(data[place : place + 4]) for place in (16, 20))
        assert (told["width"], told["height"]) == (width // 2, height // 2)


def test_pictures_are_shown_with_a_text_alone():
    files = [*sources(), *(LESSONS / "course").rglob("*.py")]
    assert [path.name for path in files if "plt.show(" in path.read_text("utf-8")] == ["style.py"]


@each_lesson
def test_no_three_formulas_stand_in_a_row(source):
    """On a phone they would be broken, or cut off."""
    prose = "\n".join(cell.source for cell in read_source(source).cells if cell.cell_type == "markdown")
    formulas = re.findall(r"\$\$(.+?)\$\$", prose, re.DOTALL)
    assert not [each for each in formulas if len(re.findall(r"(?:\\qquad\s*)+", each)) > 1]


@each_lesson
def test_the_notebook_is_small_and_names_no_place_of_the_machine_that_made_it(source):
    text = notebook_of(source).read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    assert not re.search(r"/home/|/root/|/tmp/|/work/|/Users/", text)


def _defined(source: str) -> set[str]:
    """The names that a cell defines, those of its functions' arguments among them."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {alias.asname or alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return names | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


@each_lesson
def test_what_is_not_optional_needs_nothing_that_is(source):
    optional, core, skipped, used = 0, set(), set(), {}
    for cell in read_source(source).cells:
        if cell.cell_type == "markdown":
            for level, heading, _ in sections(cell.source):
                if level and (not optional or level <= optional):
                    optional = level if heading.endswith("(optional)") else 0
        elif optional:
            skipped |= _defined(cell.source)
        else:
            core |= _defined(cell.source)
            loads = {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}
            used |= dict.fromkeys(loads & (skipped - core), cell.source)
    assert not used


def test_the_plans_for_a_class_have_the_maps_minutes_and_exercises_of_their_lessons():
    text = (LESSONS / "teaching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([\d, ]+) \| (\d+) \| (.+) \|$", text, re.MULTILINE)
    assert [int(week) for week, *_ in rows] == [*range(1, 7), *range(1, 13)]
    for _, lessons, announced, graded in rows:
        chosen = [source for source in sources() if number_of(source) in lessons.split(", ")]
        takes = [notebooks.lesson_row(read_source(source), source.stem).takes for source in chosen]
        assert sum(int(re.findall(r"\d+", each)[-1]) for each in takes) == int(announced), lessons
        known = {name for source in chosen for name in exercises(number_of(source))}
        assert set(re.findall(r"`(\w+)`", graded)) <= known


def test_the_options_that_the_ideas_name_are_there(capsys):
    text = (LESSONS / "ideas.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        run_package(["train", "--help"])
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    assert set(re.findall(r"--[a-z][a-z-]+", text)) <= options


@each_lesson
def test_a_lesson_has_what_every_lesson_has(source):
    heads = re.findall(r"^# %%(.*)", source.read_text(encoding="utf-8"), re.MULTILINE)
    assert not [head for head in heads if not re.fullmatch(r"( \[markdown\])?( tags=\[.+\])?", head)]  # a line lost
    prose = "\n".join(cell.source for cell in read_source(source).cells if cell.cell_type == "markdown")
    assert prose.startswith(f"# {number_of(source)} · ")
    missing = [part for part in (*HEADER, *SECTIONS) if part not in prose]
    assert not missing


@each_lesson
def test_an_exercise_says_how_hard_it_is_and_has_two_hints_and_its_solution(source):
    cells = read_source(source).cells
    headings = re.findall(
        notebooks.EXERCISE, "\n".join(c.source for c in cells if c.cell_type == "markdown"), re.MULTILINE
    )
    stubs = [place for place, cell in enumerate(cells) if is_exercise(cell)]
    assert len(headings) == len(stubs)
    for place, end in pairwise([*stubs, len(cells)]):
        (help,) = [cell.source for cell in cells[place:end] if "help" in cell.metadata.get("tags", [])]
        summaries = re.findall(r"<summary>(.+?)</summary>", help)
        assert summaries == ["A hint", "A stronger hint", "The solution"]
        assert "check(" in cells[place + 1].source, "the check comes first"


def test_minutes_are_counted_and_what_is_optional_is_not_on_the_core_path():
    words, code = " ".join(["word"] * 999), "\n".join(["x = 1"] * 80)
    cells = [
        nbformat.v4.new_markdown_cell(f"# 00 · Title\n\n{words}"),  # 10 minutes
        nbformat.v4.new_markdown_cell(
            "## Part\n\n### Exercise 1 ★★☆: a task\n\n```\n## no heading (optional)\n```"
        ),  # 20
        nbformat.v4.new_markdown_cell(f"## More (optional)\n\n### Below\n\n{words}"),  # 10, as its code
        nbformat.v4.new_code_cell(code),
        nbformat.v4.new_markdown_cell(f"## End\n\n{words}\n\n### Deeper (optional)\n\n{words}"),  # 10, and 10
    ]
    assert minutes(nbformat.v4.new_notebook(cells=cells)) == (70, 40)


def test_lessons_are_numbered_from_zero_without_a_gap():
    assert [int(number_of(source)) for source in sources()] == list(range(len(sources())))


def test_links_to_the_glossary_lead_to_a_word_and_every_word_says_where_it_is_explained():
    text = (LESSONS / "glossary.md").read_text(encoding="utf-8")
    words = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    anchors = {re.sub(r"[^\w\- ]", "", word.splitlines()[0].lower()).replace(" ", "-") for word in words}
    linked = {
        found for source in sources() for found in re.findall(r"glossary\.md#([\w-]+)", source.read_text("utf-8"))
    }
    assert linked == anchors
    assert all(re.search(r"\(\d\d(, \d\d)*\)", word) for word in words)


@pytest.fixture
def theirs(tmp_path, monkeypatch) -> Path:
    """A learner's copy of the first notebook, which nobody has worked in yet."""
    path = tmp_path / notebook_of(sources()[0]).name
    path.write_bytes(notebook_of(sources()[0]).read_bytes())
    monkeypatch.setattr("course.notebooks.notebook_of", lambda source: path)
    return path


def in_place(cells: list) -> None:
    for cell, answer in zip(cells, solved_notebook(sources()[0]).cells, strict=True):
        cell["source"] = answer.source


def beside_the_stub(cells: list) -> None:
    (answer, _) = (cell.source for cell in solved_notebook(sources()[0]).cells if is_exercise(cell))
    cells.append({"source": answer})


def in_prose(cells: list) -> None:
    cells.append({"cell_type": "markdown", "source": ["My answer:\n", "\n", "def linear_backward(dy, x, weight):\n"]})


def helpers_alone(cells: list) -> None:
    next(cell for cell in cells if is_exercise(cell))["source"] = "def helper():\n    return 1\n"


@pytest.mark.parametrize("work", [in_place, beside_the_stub, in_prose, helpers_alone])
def test_a_learners_work_is_not_overwritten_wherever_it_stands(theirs, work, capsys):
    assert not reason_to_keep(sources()[0])
    notebook = json.loads(theirs.read_bytes())
    work(notebook["cells"])
    theirs.write_text(json.dumps(notebook))
    before = theirs.read_bytes()
    with pytest.raises(SystemExit):
        main(["00"])
    assert f"{theirs.name} has answers in it: move " in capsys.readouterr().err
    assert theirs.read_bytes() == before


def test_what_is_no_notebook_is_not_overwritten_and_what_is_missing_is_made(theirs, capsys):
    theirs.write_bytes(theirs.read_bytes()[:5_000])
    with pytest.raises(SystemExit):
        main(["00"])
    assert f"{theirs.name} is no notebook: its line " in capsys.readouterr().err
    theirs.unlink()
    assert not reason_to_keep(sources()[0])


@each_lesson
def test_nobody_has_worked_in_a_committed_notebook(source):
    assert not reason_to_keep(source)


def test_a_notebook_with_older_stubs_may_be_overwritten(theirs):
    notebook = json.loads(theirs.read_bytes())
    stub = next(cell for cell in notebook["cells"] if is_exercise(cell))
    stub["source"] = [line.replace("NotImplementedError", "NotImplementedError  # yet") for line in stub["source"]]
    texts = {"cells": [cell | {"source": "".join(cell["source"])} for cell in notebook["cells"]]}
    notebook["metadata"]["course"]["exercises"] = fingerprint(texts)
    theirs.write_text(json.dumps(notebook))
    assert not reason_to_keep(sources()[0])


def test_an_unknown_lesson_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["99"])
    assert "there is no lesson 99" in capsys.readouterr().err


def test_solutions_replace_stubs_and_nothing_else():
    source = sources()[0]
    stubs, done = read_source(source), solved_notebook(source)
    for stub, filled in zip(stubs.cells, done.cells, strict=True):
        assert (stub.source != filled.source) == is_exercise(stub)
        assert not (is_exercise(filled) and "NotImplementedError" in filled.source)


def test_the_readme_says_how_many_exercises_and_functions_there_are_and_how_many_are_backwards():
    stubs = [cell for source in sources() for cell in read_source(source).cells if is_exercise(cell)]
    names = [name for source in sources() for name in exercises(number_of(source))]
    backwards = [name for name in names if "backward" in name]
    text = " ".join(notebooks.README.read_text(encoding="utf-8").split())
    said = re.search(r"(\d+) exercises, in which you write (\d+) functions; (\d+) of these functions", text)
    assert said
    assert [int(count) for count in said.groups()] == [len(stubs), len(names), len(backwards)]


def test_the_readme_names_the_lessons_that_read_the_trained_model():
    named = re.search(
        r"en-de\.safetensors`\]\(weights\) is read by lessons ([\d, toand\s]+)\.", notebooks.README.read_text("utf-8")
    )
    assert named
    numbers = set()
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", named[1]):
        numbers |= set(range(int(first), int(last or first) + 1))
    readers = {int(number_of(each)) for each in sources() if "weights/en-de.safetensors" in each.read_text("utf-8")}
    assert numbers == readers


def test_the_map_is_in_step_with_the_notebooks():
    readme = notebooks.README.read_text(encoding="utf-8")
    assert readme.split(notebooks.BEGIN)[1].split(notebooks.END)[0] == notebooks.lesson_table(), "run `make notebooks`"
    assert {path.stem for path in notebooks.PICTURES.glob("*.png")} == {source.stem for source in sources()}


def test_the_readme_says_how_many_hours_the_paths_take():
    readme = notebooks.README.read_text(encoding="utf-8")
    counted = [minutes(read_source(source)) for source in sources()]
    whole, core = (sum(each[place] for each in counted) for place in (0, 1))
    rows = r"\*\*([^*]+)\*\* \| (\d+)(?:; (\d+) with what is optional)? \|"
    hours = {name[0].upper() + name[1:]: [int(h) for h in said if h] for name, *said in re.findall(rows, readme)}
    assert [number for number, _ in _steps(WEEKEND)] == "00 01 02 03 04 05 06 07 08 18".split()
    weekend, down = (sum(minutes(_part(*step)).core for step in _steps(name)) for name in (WEEKEND, DOWN))
    assert hours[WEEKEND] == pytest.approx([weekend / 60], abs=0.75)
    assert hours["The whole course"] == pytest.approx([core / 60, whole / 60], abs=0.75)
    assert hours[DOWN] == pytest.approx([down / 60], abs=0.75)


def test_what_the_weekend_path_asks_for_enters_the_file_of_lesson_18(tmp_path, monkeypatch):
    monkeypatch.setenv(answers.FOLDER, str(tmp_path))
    asked = {(number, name) for number, step in _steps(WEEKEND) for name in _asked(number, step)}
    parts, said = set(assembled().own), re.search(r"and (\d+) of its (\d+) parts", notebooks.README.read_text("utf-8"))
    assert asked <= parts
    assert said
    assert [len(asked), len(parts)] == [int(count) for count in said.groups()]


def test_the_path_down_asks_for_no_gradient_before_it_explains_them_and_for_no_exercise_twice():
    written, place = [], {}
    for number, step in _steps(DOWN):
        place.setdefault(number, len(written))
        written += [(number, name) for name in _asked(number, step)]
    assert len(written) == len(set(written))
    gradients = [at for at, (_, name) in enumerate(written) if "backward" in name]
    assert place["24"] < place["00"] <= min(gradients)


def _steps(path):
    """Return the parts of lessons in the README's list of a path, step by step."""
    path_list = notebooks.README.read_text(encoding="utf-8").split(f"**{path}**")[1]
    text = path_list.split("\n\n**")[0].split("\nMinutes are")[0]
    steps = re.findall(r"^    \* \[(\d\d)\]\(.+?\)(?: again)?: (.+(?:\n      .+)*)", text, re.MULTILINE)
    return [(number, " ".join(step.split()).split(";")[0]) for number, step in steps]


def _numbers(step):
    """The exercises of a step: those of "exercises 1 to 3", "exercises 1, 2 and 5", "exercise 2" or "no exercise"."""
    found = re.search(r"exercises? (\d(?:(?: to |, | and )\d)*)", step)
    if not found:
        assert "no exercise" in step
        return set()
    ranges = re.findall(r"(\d)(?: to (\d))?", found[1])
    return {number for first, last in ranges for number in range(int(first), int(last or first) + 1)}


def _pieces(number) -> Iterator[tuple[str, Any]]:
    """The cells of a lesson, prose cut at sections and exercises, each with its section's heading."""
    section = ""
    for cell in read_source(next(source for source in sources() if number_of(source) == number)).cells:
        prose = cell.cell_type == "markdown"
        for text in re.split(r"^(?=## |### Exercise )", cell.source, flags=re.MULTILINE) if prose else [cell.source]:
            section = text.splitlines()[0][3:] if prose and text.startswith("## ") else section
            yield section, nbformat.from_dict(cell | {"source": text})


def _asked(number, step):
    """The names of the functions that a step lets one write."""
    asked, names = 0, []
    for _, cell in _pieces(number):
        if heading := re.match(r"### Exercise (\d+) ", cell.source):
            asked = int(heading[1])
        if is_exercise(cell) and asked in _numbers(step):
            names += re.findall(r"^def (\w+)", cell.source, re.MULTILINE)
    assert names or not _numbers(step), (number, step)
    return names


def _part(number, step):
    """Return a path's part of a lesson: all of it or the sections that it names, and the exercises that it names."""
    pieces, named = list(_pieces(number)), re.findall(r'"(.+?)"', step)
    headings = list(dict.fromkeys(section for section, _ in pieces))
    assert set(named) <= set(headings), (number, step)
    if "only the section" in step:
        kept = named
    elif "from the section" in step:
        kept = headings[headings.index(named[0]) :]
    elif "stop at" in step:
        kept = headings[: headings.index(named[0])]
    else:
        kept = [heading for heading in headings if heading not in named]  # "without the section"
    cells = []
    for section, cell in pieces:
        heading = re.match(r"### Exercise (\d+) ", cell.source)
        if heading and "stop there" in step and int(heading[1]) > max(_numbers(step)):
            break
        if heading and int(heading[1]) not in _numbers(step):
            cell.source = cell.source.replace(heading[0], "### ")  # read, and not written: no minutes of its own
        elif heading or section in named:  # the path asks for it
            first, *rest = cell.source.split("\n", 1)
            cell.source = "\n".join([first.removesuffix(" (optional)"), *rest])
        if section in kept:
            cells.append(cell)
    return {"cells": cells}


@pytest.mark.slow
@pytest.mark.parametrize("state", ["not yet", "correct"])
@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_lesson_executes(source, state):
    notebook = solved_notebook(source) if state == "correct" else read_source(source)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(READABLE))
    execute(notebook)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    assert "but not kept" not in printed, "an answer that is right in its notebook stands on its own"
    for name in exercises(number_of(source)):
        assert f"{name}: {state}" in printed


def test_the_stop_button_ends_a_training_run_with_the_losses_so_far(capsys):
    model = ViT(ViTConfig(2, image_size=2, patch_size=2, channels=1, d_model=4, num_heads=1, d_ff=4, num_layers=1))

    def watch(step):
        if step == 3:
            raise KeyboardInterrupt

    batch = {"images": np.zeros((1, 1, 2, 2)), "targets": np.array([0])}
    assert len(train(model, lambda: batch, 10, watch=watch)) == 3
    assert "stopped" in capsys.readouterr().out
