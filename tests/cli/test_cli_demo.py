"""The demo: its whole way, and what it does with a training that is already there."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.cli_runs import Command, refuse
from support.processes import dead_process

from minitransformer import TrainingSettings, TransformerConfig, load_checkpoint, save_checkpoint
from minitransformer.checkpoint import checkpoint_path
from minitransformer.cli import demo, train
from minitransformer.data import preparation
from minitransformer.training import read_log


@pytest.fixture(autouse=True)
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of a second."""
    monkeypatch.setattr(preparation, "GRAMMAR_VALIDATION", 4)
    monkeypatch.setattr(preparation, "TOKENIZER_SENTENCES", 100)
    monkeypatch.setattr(demo, "NUM_TEST", 12)
    sizes: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "max_length": 200}
    monkeypatch.setattr(demo, "CONFIG", TransformerConfig(400, **sizes))
    monkeypatch.setattr(demo, "CORPUS", replace(demo.CORPUS, vocab_size=400, sentences=60, max_length=200))
    monkeypatch.setattr(demo, "SETTINGS", TrainingSettings(steps=2, tokens_per_batch=1024, threads=1))


def steps(folder: Path) -> list[int]:
    return [record["step"] for record in read_log(folder / "training" / "log.jsonl")]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def interrupted(folder: Path, command: Command) -> Path:
    """The checkpoint of a demo of 4 steps that stopped after 2."""
    assert command("demo", "--out", folder)[0] == 0
    path = checkpoint_path(folder / "training", 2)
    checkpoint = load_checkpoint(path)
    checkpoint.state["settings"]["steps"] = 4
    save_checkpoint(path, checkpoint)
    return path


def test_the_demo_goes_its_whole_way(tmp_path: Path, command: Command) -> None:
    status, out, _ = command("demo", "--out", tmp_path)
    assert status == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "attention.png", "loss.png", "model.safetensors", "report.txt", "training",
    }  # fmt: skip
    for line in (r"^BLEU +\d", r"^exactly right +\d", r"^adjective +\d+ +\d+\.\d %$", r"^[✓✗] ours "):
        assert re.search(line, out, re.MULTILINE)
    assert out.count("  English ") == demo.NUM_SHOWN
    assert (tmp_path / "report.txt").read_text(encoding="utf-8").strip() in out
    model = load_checkpoint(tmp_path / "model.safetensors")
    assert (model.optimizer, model.languages) == (None, ("en", "de"))


def test_a_finished_demo_is_shown_again_or_goes_on(tmp_path: Path, command: Command) -> None:
    assert command("demo", "--out", tmp_path)[0] == 0
    before = contents(tmp_path)
    (tmp_path / "report.txt").unlink()  # as if killed before the last file
    status, out, _ = command("demo", "--out", tmp_path)
    assert status == 0
    assert "going on after step 2" in out
    assert contents(tmp_path) == before
    assert command("demo", "--out", tmp_path, "--steps", "3")[0] == 0
    assert steps(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("name", demo.OUTPUTS)
def test_the_demo_takes_nobody_else_s_place(tmp_path: Path, command: Command, name: str) -> None:
    (tmp_path / name).write_text("mine")
    refuse(command, "demo", "--out", tmp_path, says=f"{tmp_path / name} is not the demo's: move it elsewhere, or")
    assert contents(tmp_path) == {tmp_path / name: b"mine"}
    (tmp_path / name).rename(tmp_path.with_name("elsewhere"))
    assert command("demo", "--out", tmp_path)[0] == 0


def test_a_killed_demo_s_leftovers_are_cleared_away(tmp_path: Path, command: Command) -> None:
    for name in demo.OUTPUTS:
        (tmp_path / f"{name}.{dead_process()}.tmp").write_bytes(b"half")
    assert command("demo", "--out", tmp_path)[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {*demo.OUTPUTS, "training"}


def test_an_interrupted_demo_goes_on_with_other_steps_and_threads(tmp_path: Path, command: Command) -> None:
    interrupted(tmp_path, command)
    status, out, _ = command("demo", "--out", tmp_path, "--steps", "3", "--threads", "2")
    assert status == 0
    assert "going on after step 2" in out
    assert steps(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("change", ["settings", "config", "nothing but a model", "steps"])
def test_an_interrupted_training_that_the_demo_would_not_continue_is_kept(
    tmp_path: Path, command: Command, change: str
) -> None:
    path = interrupted(tmp_path, command)
    checkpoint, options = load_checkpoint(path), []
    if change == "settings":
        checkpoint.state["settings"]["seed"] = 7
        reason = "seed was 7 and is 0"
    elif change == "config":
        checkpoint.config["dropout"] = 0.5
        reason = "its model is another"
    elif change == "steps":
        options = ["--steps", "1"]
        reason = "it has taken 2 steps already"
    else:
        checkpoint.state = {}
        reason = "its last checkpoint holds a model alone"
    save_checkpoint(path, checkpoint)
    before = contents(tmp_path)
    status, _, err = command("demo", "--out", tmp_path, *options)
    assert (status, err.count("\n")) == (2, 1)
    assert f"{tmp_path / 'training'} holds a training that this one does not continue (" in err
    assert reason in err
    assert err.endswith("): choose another --out, or delete it\n")
    assert contents(tmp_path) == before
    shutil.rmtree(tmp_path / "training")  # as it says
    assert command("demo", "--out", tmp_path, *options)[0] == 0


def test_train_with_the_preset_demo_plans_the_same(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    plans = []
    for module in (train, demo):
        monkeypatch.setattr(module, "prepare", lambda folder, choice, progress: choice)
        monkeypatch.setattr(module, "train", lambda plan: plans.append(plan) or 1 / 0)
    for arguments in (["train", "--preset", "demo"], ["demo"]):
        with pytest.raises(ZeroDivisionError):
            command(*arguments, "--out", tmp_path)
    assert replace(plans[0], folder=tmp_path / "training") == plans[1]
    assert plans[0].config == TransformerConfig.demo()
