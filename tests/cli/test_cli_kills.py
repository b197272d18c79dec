"""Commands that are killed at any operation on their files: the same command goes on, or says how, to the same end."""

import os
from pathlib import Path

import pytest
from support.cli_runs import SMALL, Command, Run
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
