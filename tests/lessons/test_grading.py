"""The marks of a class that was invented: good notebooks, odd ones, and evil ones."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.folders import contents
from support.lessons import classroom
from support.lessons.classroom import MASK, REFUSED, all_solved, alone, hand_in, learners, mask_after, notebook
from support.processes import wait_for

from course import grading, sandbox
from course.__main__ import main
from course.exercise import exercises
from course.extraction import extract_answers
from course.fork_server import ForkServer
from course.marking import MARKS
from course.minutes import minutes
from course.sources import LESSONS, cells_of, number_of, solutions, sources


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> SimpleNamespace:
    """The class, graded once by the command."""
    home = tmp_path_factory.mktemp("class")
    victim, folder, file = home / "victim", home / "handed in", home / "marks.json"
    victim.mkdir()
    (victim / "file").write_text("mine")
    with socket.create_server(("127.0.0.1", 0)) as server, subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            hand_in(folder, learners(victim, server.getsockname()[1], stranger.pid))
            done = run("grade", folder, "--trusted", "--json", file)
            changed, ended, called = contents(victim), stranger.poll(), select.select([server], [], [], 0)[0]
        finally:
            stranger.kill()
    assert file.exists(), done.stderr
    return SimpleNamespace(done=done, marks=json.loads(file.read_bytes()), harm=(changed, ended, called))


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "course", *map(str, arguments)]
    return subprocess.run(command, cwd=LESSONS, capture_output=True, text=True, timeout=300)


def marks_of(learners: list[classroom.Learner], home: Path, *options: str) -> tuple[dict[str, str], str]:
    """The marks of one answer for each learner, and what is printed."""
    classroom.write(home / "class", learners)
    done = run("grade", home / "class", "--trusted", "--json", home / "marks.json", *options)
    assert done.returncode == 0, done.stderr
    marks = json.loads((home / "marks.json").read_bytes())["learners"]
    return {name: found["04"]["exercises"]["causal_mask"]["mark"] for name, found in marks.items()}, done.stdout


CLASS = learners(Path("/nowhere"))
HELD = pytest.mark.skipif(sandbox.landlock_version() < 6, reason="this kernel's Landlock does not hold all of it")


@pytest.mark.parametrize(
    "learner", [pytest.param(each, id=each.name, marks=[HELD] * (each.says == REFUSED)) for each in CLASS]
)
def test_a_learner_gets_the_marks(graded, learner):
    found = graded.marks["learners"][learner.name][learner.lesson]["exercises"]
    assert {name: mark["mark"] for name, mark in found.items()} == learner.expected()
    assert learner.says in "\n".join(line for line in graded.done.stdout.splitlines() if learner.name[:31] in line)
    assert all(mark["why"] for mark in found.values() if mark["mark"] in ("wrong", "stopped", "unreadable"))


@HELD
def test_no_learner_changes_files_ends_processes_or_sends_text(graded):
    assert graded.harm == ({"file": b"mine"}, None, [])
    assert ["sleep", "98765"] not in [each.info["cmdline"] for each in psutil.process_iter(["cmdline"])]


def test_what_was_left_out_is_said_and_no_terminal_obeys_what_is_printed(graded):
    out = graded.done.stdout
    assert (graded.done.returncode, graded.done.stderr) == (0, "")
    assert "evil" not in out
    assert not [letter for letter in out if letter < " " and letter != "\n"]
    assert ".ipynb_checkpoints" not in out
    first, *lines, last = out.splitlines()
    groups = "week1 (ada, ben), week2 (ada, ben)"
    assert first == f"these folders look like weeks or groups, and not like learners: {groups}"
    assert {
        "round is a link to a folder, which is not followed",
        "week1/ada/04_attention.ipynb is as old: week1/ben/04_attention.ipynb counts",
        "no notebook has no notebook, but 04.zip, 04_attention.ipynb.txt, a.py and more",
    } <= set(lines)
    assert "shopping.ipynb is no lesson that the course knows" in out
    assert last == f"guarded by {graded.marks['guard']}"


def test_learners_are_sorted_and_whoever_handed_in_nothing_is_there(graded):
    names = list(graded.marks["learners"])
    assert names == sorted(names, key=lambda name: (name.casefold(), name))
    assert graded.marks["learners"]["bob"]["05"]["notebook"] is None
    assert {mark["mark"] for mark in graded.marks["learners"]["bob"]["05"]["exercises"].values()} == {"missing"}
    rows = [line for line in graded.done.stdout.splitlines() if line.startswith("ada ")]
    assert rows[0].split()[1:] == ["correct"] * 5
    assert rows[-1].split()[1:] == ["4/4", "–", "4/7"]
    assert "optional, and not in the totals: moved_by" in graded.done.stdout
    _, absent = [line for line in graded.done.stdout.splitlines() if line.startswith("no notebook: ")]
    assert {"bob", "Zoë Müller", "a folder"} <= set(absent.removeprefix("no notebook: ").split(", "))


def test_the_page_for_teachers_shows_what_is_printed(tmp_path, capsys):
    classroom.write(tmp_path, [classroom.small_class()])
    assert main(["grade", "--trusted", str(tmp_path)]) == 0
    printed = re.sub(r"guarded by .*", "guarded by bubblewrap", capsys.readouterr().out.strip())
    page = (LESSONS / "teaching.md").read_text(encoding="utf-8")
    assert page.split("```text\n")[1].split("\n```")[0] == printed
    assert all(f"| {mark} |" in page for mark in MARKS)
    project = tomllib.loads((LESSONS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = page.split("RUN pip install ")[1].splitlines()[0].split()
    assert {re.split(r"\W", each)[0] for each in project["dependencies"]} <= {*installed}


def test_the_page_has_the_minutes_and_exercises_of_the_lessons_after_the_plan():
    page = (LESSONS / "teaching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d\d) \| (\d+) \| (`.+) \|$", page, re.MULTILINE)
    assert [number for number, *_ in rows] == [number_of(each) for each in sources() if number_of(each) > "18"]
    for number, announced, graded in rows:
        source = next(source for source in sources() if number_of(source) == number)
        assert minutes({"cells": cells_of(source)}).core == int(announced), number
        assert set(re.findall(r"`(\w+)`", graded)) <= {*exercises(number)} - grading.optional_exercises(source)


@pytest.fixture
def one(tmp_path) -> Path:
    """A class of one."""
    folder = tmp_path / "ada"
    folder.mkdir()
    (folder / "04_attention.ipynb").write_bytes(notebook(MASK))
    return folder


def test_bubblewrap_is_used_where_it_runs_with_one_folder_that_can_be_written(one, tmp_path, monkeypatch, capsys):
    program, said = tmp_path / "bwrap", tmp_path / "said"
    program.write_text(f'#!/bin/sh\necho "$@" >> {said}\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert main(["grade", str(one), "--exercise", "causal_mask"]) == 0
    assert capsys.readouterr().out.endswith("\nguarded by bubblewrap\n")
    tried, used = said.read_text().splitlines()
    front, _, command = used.partition(" -- ")
    own = command.split()[-1]
    assert front.startswith(f"--ro-bind / / --dev /dev --proc /proc --bind {own} {own} --unshare-all --cap-drop ALL --")
    assert tried == f"{front} -- true"
    program.write_text("#!/bin/sh\nexit 1\n")
    assert sandbox.find_sandbox(str(tmp_path))[0] == []


@pytest.mark.slow
def test_where_bubblewrap_runs_permissions_all_networks_and_all_processes_are_held(tmp_path):
    if not sandbox.find_sandbox(str(tmp_path))[0]:
        pytest.skip("bubblewrap is not installed, or may not run")
    theirs = tmp_path / "theirs"
    theirs.touch(0o600)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        lines = {
            "permissions": f"os.fchmod(os.open({str(theirs)!r}, os.O_RDONLY), 0o777)",
            "processes": f"resource.prlimit({os.getpid()}, resource.RLIMIT_CORE)",
            "text": f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'text', {server.getsockname()})",
        }
        evil = [alone(name, mask_after(line, "import os, resource, socket"), "") for name, line in lines.items()]
        found, out = marks_of(evil, tmp_path)
        assert not select.select([server], [], [], 0)[0]
    assert theirs.stat().st_mode & 0o777 == 0o600
    assert found["permissions"] == found["processes"] == "wrong"
    assert out.endswith("guarded by bubblewrap\n")


def test_lessons_and_exercises_can_be_chosen_and_then_optional_ones_count(one, capsys):
    (one / "01_softmax.ipynb").write_bytes(notebook(lesson="01"))
    assert main(["grade", "--trusted", str(one), "--lesson", "4", "--exercise", "moved_by", "causal_mask"]) == 0
    out = capsys.readouterr().out
    assert "learner   causal_mask   moved_by\nada       correct       not yet" in out
    assert "01" not in out


def test_what_is_wrong_with_the_command_is_said_before_anything_is_graded(one, capsys, monkeypatch):
    theirs = one / "04_attention.ipynb"
    (one / "empty").mkdir()
    (one / "list.json").write_text("[]")
    (one / "link.json").symlink_to(theirs)
    before = contents(one)
    for arguments, said in (
        (["missing"], "No such file or directory"),
        ([theirs], "Not a directory"),
        ([one / "empty"], "has no notebook in it"),
        ([one, "--lesson", "99"], "there is no lesson 99"),
        ([one, "--exercise", "softmax", "spam"], "no lesson has an exercise spam"),
        ([one, "--lesson", "4", "--exercise", "softmax"], "no lesson of these has an exercise softmax"),
        *(
            ([one, "--json", one / name], "holds something else than marks")
            for name in (theirs.name, "link.json", "list.json", "empty")
        ),
        ([one, "--seconds", "-1"], "at least"),
    ):
        assert main(["grade", *map(str, arguments)]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert said in err
    with monkeypatch.context() as neither:
        neither.setattr(sandbox, "landlock_version", lambda: 0)
        neither.setenv("PATH", "")
        assert main(["grade", str(one)]) == 2
        assert "install bubblewrap" in capsys.readouterr().err
    assert contents(one) == before
    done = run("grade", one, "--lesson", "99")  # in a process, whose module has another name
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "course: error: there is no lesson 99\n")


def test_what_cannot_be_opened_is_said_and_names_that_are_no_text_are_shown(one, monkeypatch):
    (one / os.fsdecode(b"\xff_04_attention.ipynb")).write_bytes(notebook(MASK))
    monkeypatch.chdir(one)
    for _ in range(30):  # deeper than a path can be long
        os.mkdir("deep" * 50)
        os.chdir("deep" * 50)
    monkeypatch.chdir(one)
    submissions, marks = grading.find_submissions(one)
    assert [*marks["learners"]] == [r"\udcff", "ada", "deep" * 50]
    too_long, empty = marks["notes"]
    assert empty == f"{'deep' * 7}dee… has no notebook, but {'deep' * 50}/"
    assert too_long.endswith("deep cannot be opened (File name too long)")
    with ForkServer(trusted=True) as server:
        grading.grade(submissions, marks, server, chosen=["causal_mask"])
    assert marks["learners"][r"\udcff"]["04"]["exercises"] == {"causal_mask": {"mark": "correct", "why": ""}}
    for _ in range(2):  # marks are written again over marks
        grading.check_marks_file(one / "marks.json")
        grading.write_marks(one / "marks.json", marks)


def test_a_files_name_says_the_lesson_and_the_learner():
    for name, said in {
        "04_attention": ("04", ""),
        "ada_04_attention": ("04", "ada"),
        "04_attention_ada": ("04", "ada"),
        "ada lovelace - 04 Attention (2)": ("04", "ada lovelace"),
        "04_attention-Copy1": ("04", ""),
        "student05_04_attention": ("04", "student05"),
        "104_attention": (None, "104_attention"),
        "04_attentions": (None, "04_attentions"),
    }.items():
        assert grading._lesson_and_rest(name) == said


def test_a_table_that_is_too_wide_goes_on_below():
    names = [f"exercise_{letter}" * 3 for letter in "abcd"]
    lines = grading.table(names, {"名前": dict.fromkeys(names, "correct")})
    assert max(map(len, lines)) <= grading.WIDTH
    assert [line.split()[0] if line else "" for line in lines] == ["learner", "名前", "", "learner", "名前"]


def test_an_interrupt_ends_what_is_under_way_and_prints_what_was_found(one, tmp_path, monkeypatch, capsys):
    scratch, file = tmp_path / "scratch", tmp_path / "marks.json"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    pause = "import time\ndef moved_by(*arguments):\n    open('begun', 'w')\n    time.sleep(100)\n"
    (one / "04_attention.ipynb").write_bytes(notebook(MASK, pause))
    (one / "01_softmax.ipynb").write_bytes(notebook(lesson="01", answers=solutions("01")))

    def interrupt():
        wait_for(lambda: list(scratch.glob("*/*/begun")))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    assert main(["grade", "--trusted", str(one), "--json", str(file)]) == 130
    assert not list(scratch.iterdir()), "the folder of what was under way is removed, so its process has ended"
    out, err = capsys.readouterr()
    assert "ada       correct   correct            correct" in out
    assert "ada       not yet     not yet              correct" in out
    assert "learner   01    04\nada       3/3   …\n" in out
    assert out.endswith("\ninterrupted: these marks are not all\n")
    assert err == "\ncourse: interrupted\n"
    written = json.loads(file.read_bytes())
    assert not written["complete"]
    assert [*written["learners"]["ada"]["04"]["exercises"]] == ["attention", "attention_backward", "causal_mask"]


@pytest.mark.slow
def test_who_ends_the_process_that_forks_stops_nobody_elses_mark(one):
    pieces = extract_answers(str(one / "04_attention.ipynb"), "04")["answers"]["causal_mask"]["pieces"]
    answer = "04", "causal_mask", pieces, [], 60.0
    with ForkServer(trusted=True) as server:
        assert server.mark(*answer) == ("correct", "")
        assert server.process is not None
        server.process.kill()
        assert server.mark(*answer) == ("stopped", "it ends the process that judges it")
        assert server.mark(*answer) == ("correct", "")


@pytest.mark.slow
def test_what_takes_long_to_stop_is_stopped(tmp_path):
    stubborn = "while True:\n        try:\n            while True: pass\n        except BaseException: pass"
    threads = "import threading, time\n    while True: threading.Thread(target=time.sleep, args=(99,)).start()"
    loads = "def forever():\n    while True: pass\nstep = forever()\n" + mask_after("step")
    masks = mask_after("signal.pthread_sigmask(0, range(1, 32)); time.sleep(99)", "import signal, time")
    class_of = [
        alone("loops", mask_after("while True: pass"), "stopped"),
        alone("catches", mask_after(stubborn), "stopped"),
        alone("grows", mask_after("rows = []\n    while True: rows.append(bytes(10_000_000))"), "stopped"),
        alone("threads", mask_after(threads), "wrong"),
        alone("loads", loads, "stopped"),
        alone("masks", masks, "stopped"),
        alone("zoe", MASK, "correct"),
    ]
    found, out = marks_of(class_of, tmp_path, "--seconds", "5")
    assert found == {each.name: each.marks["causal_mask"] for each in class_of}, out
    assert "loads · causal_mask · stopped: it has not come back after 5 s" in out


@pytest.mark.slow
def test_every_solution_of_the_course_is_correct_and_every_stub_is_not_yet(tmp_path):
    solved = {f"ada/{source.stem}.ipynb": all_solved(number_of(source)) for source in sources()}
    stubs = {f"bob/{source.stem}.ipynb": notebook(lesson=number_of(source)) for source in sources()}
    classroom.write(tmp_path / "class", [classroom.Learner("both", solved | stubs)])
    assert run("grade", tmp_path / "class", "--trusted", "--json", tmp_path / "marks.json").returncode == 0
    found = json.loads((tmp_path / "marks.json").read_bytes())
    assert not found["notes"]
    for name, mark in (("ada", "correct"), ("bob", "not yet")):
        assert {
            number: {each: marked["mark"] for each, marked in marks["exercises"].items()}
            for number, marks in found["learners"][name].items()
        } == {number_of(source): dict.fromkeys(exercises(number_of(source)), mark) for source in sources()}
