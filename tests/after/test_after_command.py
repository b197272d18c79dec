"""`python -m after`: its budget, and what it refuses; all else is the study's, which the paper's tests try."""

from pathlib import Path

import pytest

from after.command import STUDY, main
from after.task import Texts
from study import command
from study.report import Origin, from_longer, save_findings


def test_what_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["table1"]) == 2
    assert "there is no experiment 'table1': choose from decoding" in capsys.readouterr().err
    assert main(["--report", "--out", "empty"]) == 2
    assert capsys.readouterr().err == "after: error: empty holds no results of the experiments after the paper\n"
    assert main(["decoding", "--data", "x"]) == 2
    assert capsys.readouterr().err == "after: error: --data goes with distillation\n"


def test_an_experiment_that_is_named_twice_runs_once() -> None:
    args = command.build_parser(STUDY).parse_args(["inside", "decoding", "inside"])
    assert command._names(STUDY, args.experiments) == ["inside", "decoding"]
    assert command._command(STUDY, args) == f"{STUDY.program} inside decoding"


@pytest.mark.parametrize("core_minutes", [0.0, 1.0])
def test_only_trainings_can_have_been_longer(core_minutes: float, tmp_path: Path) -> None:
    decoding, path = STUDY.experiments["decoding"], tmp_path / "results" / "decoding.json"
    path.parent.mkdir()
    save_findings(STUDY, tmp_path, decoding, Origin("", "all", 2.0, 2.0, core_minutes, "", "", 4), {})
    assert from_longer(STUDY, tmp_path, decoding, "all", scale=1.0) == (path if core_minutes else None)


def test_multi30k_may_be_on_disk(tmp_path: Path) -> None:
    assert Texts(str(tmp_path)).multi30k().data == str(tmp_path.resolve())
    assert Texts().multi30k().dataset == "multi30k"
