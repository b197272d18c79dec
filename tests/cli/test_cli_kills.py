"""Commands that are killed at any operation on their files: the same command goes on, or says how, to the same end."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli_runs import SMALL, Command, Run
from support.first_edition import make_first_edition, make_first_edition_log
from support.folders import assert_same_training
from support.processes import killed_at

from minitransformer.cli import main
from minitransformer.training.checkpoint import list_checkpoints

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX (Linux, macOS): it forks and kills")


@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_a_training_killed_anywhere_ends_as_if_it_never_was(
    trained: Run, tmp_path: Path, command: Command, stride: int
) -> None:
    """The original command, and with --resume once there is a checkpoint; nothing is left of what was half written."""
    for number in range(0, 1000, stride):
        folder = tmp_path / str(number)
        begin = ["train", "--data", str(trained.data), "--out", str(folder), *SMALL]
        if not killed_at(number, folder, lambda begin=begin: main(begin)):
            assert number > 50
            break
        status, _, err = command(*begin, *(["--resume"] if list_checkpoints(folder) else []))
        assert status == 0, err
        assert_same_training(folder, trained.folder)


def test_a_training_of_the_first_edition_goes_on_to_the_same_end(
    trained: Run, tmp_path: Path, command: Command
) -> None:
    """As it stood after two steps: whole, without the file that says what text it was, and without any data."""
    deletions: list[Callable[[Path], None]] = [
        lambda data: None, lambda data: shutil.rmtree(data / "train"), lambda data: shutil.rmtree(data),
    ]  # fmt: skip
    for number, delete in enumerate(deletions):
        folder = tmp_path / str(number)
        shutil.copytree(trained.folder, folder)
        make_first_edition(folder / "data")
        make_first_edition_log(folder / "log.jsonl")
        (folder / "step-00000004.safetensors").unlink()
        delete(folder / "data")
        options = ["--data", trained.data] if not (folder / "data").exists() else []
        assert command("train", "--resume", folder, *options)[0] == 0
        if number == 0:
            shutil.rmtree(folder / "data")
            shutil.copytree(trained.folder / "data", folder / "data")
        assert_same_training(folder, trained.folder)
