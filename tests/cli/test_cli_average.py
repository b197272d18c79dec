"""`average`: what it writes, and what it refuses to take or to write over."""

import re
from pathlib import Path

from support.cli_runs import SMALL, Command, Run, refuse

from minitransformer import load_checkpoint


def test_an_average_is_the_mean_and_info_says_of_what(trained: Run, tmp_path: Path, command: Command) -> None:
    average = tmp_path / "average.safetensors"
    status, out, _ = command("average", "--last", "2", trained.folder, "--output", average)
    assert status == 0
    assert "steps 2, 4" in out
    weights = [load_checkpoint(trained.folder / f"step-0000000{step}.safetensors").parameters for step in (2, 4)]
    for name, value in load_checkpoint(average).parameters.items():
        assert abs(value - (weights[0][name] + weights[1][name]) / 2).max() < 1e-6
    assert command("translate", average, "A dog.")[0] == 0
    out = command("info", average)[1]
    assert re.search(r"^  average of steps +2, 4$", out, re.MULTILINE)
    assert re.search(r"^  d_model +16$", out, re.MULTILINE)
    again, both = tmp_path / "again.safetensors", sorted(trained.folder.glob("*.safetensors"))
    assert command("average", *both, "--output", again)[0] == 0
    assert again.read_bytes() == average.read_bytes()


def test_checkpoints_of_different_models_are_not_averaged(trained: Run, tmp_path: Path, command: Command) -> None:
    other = tmp_path / "other"
    options = [*SMALL, "--d-model", "32", "--steps", "1"]
    assert command("train", "--data", trained.data, "--out", other, *options)[0] == 0
    paths = [trained.checkpoint, other / "step-00000001.safetensors"]
    refuse(command, "average", *paths, "--output", tmp_path / "average", says="cannot be averaged")
    assert not (tmp_path / "average").exists()
    refuse(command, "average", "--last", "9", other, "--output", tmp_path / "average", says="holds 1 checkpoints")


def test_an_average_takes_no_checkpoint_s_place_and_none_twice(trained: Run, tmp_path: Path, command: Command) -> None:
    first, last = sorted(trained.folder.glob("*.safetensors"))
    copy = tmp_path / "copy"
    copy.write_bytes(first.read_bytes())
    for paths, output, says in (
        ([copy, last], copy, "would replace what is read"),
        ([copy, last], tmp_path / ".." / tmp_path.name / "copy", "would replace what is read"),
        ([first, last], tmp_path / "step-00000009.safetensors", "has the name of a training's own checkpoint"),
        ([first, last, first], tmp_path / "average", "is given twice"),
    ):
        refuse(command, "average", *paths, "--output", output, says=says)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
    assert copy.read_bytes() == first.read_bytes()
