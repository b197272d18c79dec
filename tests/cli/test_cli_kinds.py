"""A model of another kind goes through the same commands as a Transformer."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.cli_runs import Command, Run, refuse

from minitransformer import RecurrentConfig, load_checkpoint, save_checkpoint
from minitransformer.cli.train import Plan, train
from minitransformer.data.preparation import open_prepared
from minitransformer.training import TrainingSettings

CONFIG = RecurrentConfig(vocab_size=400, d_model=16, max_length=48)


@pytest.fixture
def checkpoint(trained: Run, tmp_path: Path) -> Path:
    """Two steps of a recurrent model, on the text of the Transformer's training."""
    folder = tmp_path / "run"
    shutil.copytree(trained.folder / "data", folder / "data")
    settings = TrainingSettings(**load_checkpoint(trained.checkpoint).state["settings"])
    settings = replace(settings, steps=2, valid_interval=2, checkpoint_interval=2)
    path = train(Plan(folder, CONFIG, settings, open_prepared(folder / "data"))).checkpoint
    assert path is not None
    return path


def test_a_recurrent_model_is_shown_used_and_trained_on(checkpoint: Path, command: Command) -> None:
    status, out, _ = command("info", checkpoint)
    assert status == 0
    rows = dict(line.split(maxsplit=1) for line in out.splitlines() if len(line.split()) == 2)
    assert (rows["kind"], rows["cell"], rows["decoder.attention.score"]) == ("recurrent", "lstm", "16")
    status, out, _ = command("translate", checkpoint, "A dog runs.")
    assert (status, out.count("\n")) == (0, 1)
    refuse(
        command, "translate", checkpoint, "A dog.", "--attention", checkpoint.parent / "a.png", says="recurrent model"
    )
    refuse(command, "train", "--resume", checkpoint.parent, "--num-heads", "2", says="has num_heads None, not 2")
    status, _, _ = command("train", "--resume", checkpoint.parent, "--steps", "4")
    assert status == 0
    assert load_checkpoint(checkpoint.parent / "step-00000004.safetensors").config == CONFIG.to_dict()


def test_an_unknown_kind_is_one_sentence(trained: Run, tmp_path: Path, command: Command) -> None:
    checkpoint = load_checkpoint(trained.checkpoint)
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, replace(checkpoint, config={"kind": "oracle", **checkpoint.config}))
    for arguments in (["info", path], ["translate", path, "A dog."]):
        refuse(command, *arguments, says="kind 'oracle', which this program does not know")
