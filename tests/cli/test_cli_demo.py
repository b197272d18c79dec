"""The demo: its whole way, and what it does with a training that is already there."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.cli_runs import Command, make_demo_small, quick_picture, refuse
from support.folders import contents
from support.processes import dead_process

from minitransformer import load_checkpoint, save_checkpoint
from minitransformer.cli import demo, main
from minitransformer.training import read_log
from minitransformer.training.checkpoint import checkpoint_path


@pytest.fixture(scope="module")
def small_demo() -> Iterator[None]:
    """A demo of a second."""
    with pytest.MonkeyPatch.context() as patch:
        make_demo_small(patch.setattr)
        yield


@pytest.fixture(scope="module")
def whole(small_demo: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished demo of 2 steps; nobody changes it."""
    folder = tmp_path_factory.mktemp("demo") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("plot_loss", "plot_attention"):
            patch.setattr(f"minitransformer.plots.{name}", quick_picture)
        assert main(["demo", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(whole, tmp_path / "demo")


@pytest.fixture
def interrupted(finished: Path) -> Path:
    """The checkpoint of a demo of 4 steps that stopped after 2."""
    path = checkpoint_path(finished / "training", 2)
    checkpoint = load_checkpoint(path)
    checkpoint.state["settings"]["steps"] = 4
    save_checkpoint(path, checkpoint)
    return path


def steps(folder: Path) -> list[int]:
    return [record["step"] for record in read_log(folder / "training" / "log.jsonl")]


def test_the_demo_goes_its_whole_way_is_shown_again_and_goes_on(
    finished: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert {path.name for path in finished.iterdir()} == {*demo.OUTPUTS, "training"}
    model = load_checkpoint(finished / "model.safetensors")
    assert (model.optimizer, model.languages) == (None, ("en", "de"))
    before = contents(finished)
    (finished / "report.txt").unlink()  # as if killed before the last file
    status, out, _ = command("demo", "--out", finished)
    assert status == 0
    after = contents(finished)
    for name in ("loss.png", "attention.png", "training/loss.png"):
        assert before.pop(name) == b"a picture"
        assert after.pop(name).startswith(b"\x89PNG\r\n\x1a\n")
    assert after == before
    for line in (r"^BLEU +\d", r"^exactly right +\d", r"^adjective +\d+ +\d+\.\d %$", r"^[✓✗] ours "):
        assert re.search(line, out, re.MULTILINE)
    assert out.count("  English ") == demo.NUM_SHOWN
    assert (finished / "report.txt").read_text(encoding="utf-8").strip() in out
    assert "going on after step 2" in out


def test_a_finished_demo_goes_on_with_more_steps(finished: Path, command: Command) -> None:
    assert command("demo", "--out", finished, "--steps", "3")[0] == 0
    assert steps(finished) == [1, 2, 3]


def test_the_demo_takes_nobody_else_s_place_and_clears_up_after_a_killed_one(
    small_demo: None, tmp_path: Path, command: Command
) -> None:
    for name in demo.OUTPUTS:
        (tmp_path / f"{name}.{dead_process()}.tmp").write_bytes(b"half")
    before = contents(tmp_path)
    for name in demo.OUTPUTS:
        (tmp_path / name).write_text("mine")
        refuse(command, "demo", "--out", tmp_path, says=f"{tmp_path / name} is not the demo's: move it elsewhere, or")
        assert contents(tmp_path) == before | {name: b"mine"}
        (tmp_path / name).rename(tmp_path.with_name("elsewhere"))
    assert command("demo", "--out", tmp_path)[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {*demo.OUTPUTS, "training"}


def test_an_interrupted_demo_goes_on_with_other_steps_and_threads(
    interrupted: Path, finished: Path, command: Command
) -> None:
    status, out, _ = command("demo", "--out", finished, "--steps", "3", "--threads", "2")
    assert status == 0
    assert "going on after step 2" in out
    assert steps(finished) == [1, 2, 3]


def test_an_interrupted_training_that_the_demo_would_not_continue_is_kept(
    interrupted: Path, finished: Path, command: Command
) -> None:
    checkpoint = load_checkpoint(interrupted)
    settings = {"settings": checkpoint.state["settings"] | {"seed": 7}}
    for changes, options, reason in (
        ({"state": checkpoint.state | settings}, [], "seed was 7 and is 0"),
        ({"config": checkpoint.config | {"dropout": 0.5}}, [], "its model is another"),
        ({}, ["--steps", "1"], "it has taken 2 steps already"),
        ({"state": {}}, [], "its last checkpoint holds a model alone"),
    ):
        save_checkpoint(interrupted, replace(checkpoint, **changes))
        before = contents(finished)
        says = f"{finished / 'training'} holds a training that this one does not continue ("
        told = refuse(command, "demo", "--out", finished, *options, says=says)
        assert reason in told
        assert told.endswith("): choose another --out, or delete it")
        assert contents(finished) == before
    shutil.rmtree(finished / "training")  # as it says
    assert command("demo", "--out", finished)[0] == 0
